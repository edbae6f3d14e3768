package informer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store/bolt"
)

// theKey is a provider of one key. If its error is set, it returns the error.
type theKey struct {
	key codec.Key
	err error
}

func (k theKey) Keys(context.Context) ([]codec.Key, error) { return []codec.Key{k.key}, k.err }

// secretWorld is an API server of n Secrets.
func secretWorld(t *testing.T, path string, n int) *world {
	w := &world{T: t, path: path, server: fakeapi.New(&corev1.Secret{}, &corev1.SecretList{}, fakeapi.Options{})}
	for i := range n {
		if _, err := w.server.Create(secretMarked(i, 0)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// secretMark is in every part of a Secret that must stay secret.
const secretMark = "mArkerOfASecret"

func secretMarked(i, n int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("s-%d", i), Labels: map[string]string{"app": secretMark},
			Annotations: map[string]string{"a": secretMark},
		},
		Data: map[string][]byte{"password": fmt.Appendf(nil, "%s%d", secretMark, n)},
	}
}

// runSecrets starts an informer of Secrets.
func (w *world) runSecrets(keys codec.KeyProvider, prepare ...func(*informer.Informer)) *run {
	w.Helper()
	db, err := bolt.Open(w.path, bolt.Options{Keys: keys})
	if err != nil {
		w.Fatal(err)
	}
	inf, err := informer.New(w.server, &corev1.Secret{}, informer.Options{Backend: db, Indexes: []index.Index{index.Label("app")}})
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range prepare {
		f(inf)
	}
	r := &run{w: w, inf: inf, db: db, done: make(chan struct{})}
	r.start()
	return r.sync()
}

// TestSecretsWithKey checks that with a key Secrets are stored and resumed like other
// objects. Without a key, or while it is unavailable, they are held in memory, Status
// contains the reason, and the stored ones are kept. Under another key they are listed
// again.
func TestSecretsWithKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		w := secretWorld(t, path, 3)
		for _, step := range []struct {
			keys   codec.KeyProvider
			start  string // "" means memory
			memory string
		}{
			{theKey{key: codec.Key{1}}, "listed", ""},
			{theKey{key: codec.Key{1}}, "resumed", ""},
			{nil, "", "a Secret is not written to disk without a key"},
			{theKey{err: errors.New("not mounted yet")}, "", "no key: not mounted yet"},
			{theKey{key: codec.Key{1}}, "resumed", ""},
			{theKey{key: codec.Key{2}}, "listed", ""},
			{theKey{key: codec.Key{2}}, "resumed", ""},
		} {
			r := w.runSecrets(step.keys)
			status := r.inf.Status()
			if got := len(r.inf.GetStore().List()); got != 3 {
				t.Errorf("%d Secrets are held", got)
			}
			if status.Persisted != (step.memory == "") || !strings.Contains(status.Memory, step.memory) || step.start != "" && status.Start != step.start {
				t.Errorf("persisted %t, memory %q, start %q (%s), want %+v", status.Persisted, status.Memory, status.Start, status.StartReason, step)
			}
			r.end()
		}
		if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, []byte(secretMark)) {
			t.Errorf("the file has some of a Secret (%v)", err)
		}
	})
}

// TestSpillIsSealed checks that files with spilled Secrets contain none of their bytes.
// The files have no names, so the test finds them among the open files of the process.
func TestSpillIsSealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		w := secretWorld(t, path, 200)
		gate := make(chan struct{})
		told := 0
		r := w.runSecrets(theKey{key: codec.Key{1}}, func(inf *informer.Informer) {
			informer.SetBacklogLimits(inf, 16<<10, 64<<10, 1<<30)
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { <-gate; told++ },
				UpdateFunc: func(any, any) { told++ },
			})
			if err != nil {
				w.Fatal(err)
			}
		})
		const rounds = 15
		for n := 1; n <= rounds; n++ {
			for i := range 200 {
				if _, err := w.server.Update(secretMarked(i, n)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		content := unnamedFiles(t, filepath.Dir(path))
		if len(content) < 128<<10 || int64(len(content)) != informer.InFiles(r.inf) {
			t.Errorf("%d bytes are in files, the informer says %d", len(content), informer.InFiles(r.inf))
		}
		if bytes.Contains(content, []byte(secretMark)) || bytes.Contains(content, []byte("password")) {
			t.Error("what waits in files has some of a Secret")
		}
		close(gate)
		synctest.Wait()
		if want := 200 * (1 + rounds); told != want {
			t.Errorf("the handler was told %d times, want %d", told, want)
		}
		r.end()
	})
}

// unnamedFiles returns the content of the open files in a directory that have no name.
func unnamedFiles(t *testing.T, dir string) (content []byte) {
	t.Helper()
	const fds = "/proc/self/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Skipf("the open files of a process are not to be seen: %v", err)
	}
	for _, entry := range entries {
		name, err := os.Readlink(filepath.Join(fds, entry.Name()))
		if err != nil || filepath.Dir(name) != dir || !strings.HasSuffix(name, " (deleted)") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(fds, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, b...)
	}
	return content
}
