package informer_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// TestMutationDetector checks that, with client-go's environment variable set, a process
// panics if a handler or reader changes an object of the cache. The variable is read when
// the process starts, so each case is its own process.
func TestMutationDetector(t *testing.T) {
	const role = "INFORMER_TEST_MUTATES"
	if who := os.Getenv(role); who != "" {
		mutate(t, who)
		return
	}
	for who, panics := range map[string]bool{"handler": true, "reader": true, "lister": true, "nobody": false} {
		t.Run(who, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutationDetector$", "-test.v")
			cmd.Env = append(os.Environ(), role+"="+who, "KUBE_CACHE_MUTATION_DETECTOR=true")
			out, err := cmd.CombinedOutput()
			if panicked := strings.Contains(string(out), "cache *v1.ConfigMap modified"); panicked != panics || (err != nil) != panics {
				t.Errorf("panicked: %v, want %v: %v\n%s", panicked, panics, err, out)
			}
		})
	}
}

func mutate(t *testing.T, who string) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		spoil := func(obj any) { obj.(*corev1.ConfigMap).Data["v"] = "spoiled" }
		r := w.run(informer.Options{}, handle(w, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			if who == "handler" {
				spoil(obj)
			}
		}})).sync()
		obj, _, err := r.inf.GetIndexer().GetByKey("default/a")
		if err != nil {
			t.Error(err)
		}
		if who == "reader" {
			spoil(obj)
		}
		if who == "lister" { // of a start without a handler, which would have received it
			r.end()
			r = w.run(informer.Options{}).sync()
			lister, err := informer.NewLister[*corev1.ConfigMap](r.inf)
			if err != nil {
				t.Fatal(err)
			}
			listed, err := lister.List(labels.Everything())
			if err != nil || len(listed) != 1 {
				t.Fatal(len(listed), err)
			}
			spoil(listed[0])
		}
		waitFor(5 * time.Second)
		r.end()
	})
}
