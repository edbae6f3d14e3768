package cli_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/internal/fakeapi"
)

// TestFollowInNamespace checks that watch and history print the changes of nodes whatever
// the namespace is, and those of pods of that namespace only.
func TestFollowInNamespace(t *testing.T) {
	for _, args := range [][]string{{"watch", "--no-headers"}, {"history", "--follow"}} {
		t.Run(args[0], func(t *testing.T) {
			p := &process{
				path:   filepath.Join(t.TempDir(), "informers.db"),
				server: fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{}),
				nodes:  fakeapi.New(&corev1.Node{}, &corev1.NodeList{}, fakeapi.Options{}),
			}
			p.start(t)
			for _, scope := range []string{"pods", "nodes"} {
				for !bytes.Contains(askSocket(t, p.path, "/v1/history?scope="+scope), []byte(`"Time":"2`)) {
					continue // until the list is written, which is where the log begins
				}
			}
			if args[0] == "watch" {
				args = append(args, "--initial")
			}
			w := following(t, append(args, "nodes,pods", "-n", "a", "-o", "name", "--db", p.path)...)
			if _, err := p.nodes.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}); err != nil {
				t.Fatal(err)
			}
			if got := w.next(t, 1); !strings.HasSuffix(got, "node/one\n") {
				t.Errorf("printed %q", got)
			}
			p.create(t, pod("b", "other", ""))
			p.create(t, pod("a", "this", ""))
			if got := w.next(t, 1); !strings.HasSuffix(got, "pod/this\n") {
				t.Errorf("then %q", got)
			}
			w.stop()
			w.ends(t, 0, "")
			p.stop()
		})
	}
}
