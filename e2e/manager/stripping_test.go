package manager_test

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestStrippedManagedFields checks that a cache which strips managed fields with
// controller-runtime's own function needs no version of its transform for a warm start,
// and that its objects differ from the server's in nothing else. A closure that calls the
// function is not recognized: it could do more.
func TestStrippedManagedFields(t *testing.T) {
	w := theWorld(t)
	strip := crcache.TransformStripManagedFields()
	for _, row := range []struct {
		name       string
		transform  cache.TransformFunc
		recognized bool
	}{
		{"controller-runtime's", strip, true},
		{"a closure around it", func(obj any) (any, error) { return strip(obj) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := setup{options: crcache.Options{DefaultTransform: row.transform}}
			path := filepath.Join(t.TempDir(), "informers.db")
			for _, start := range []string{"cold", "again"} {
				t.Run(start, func(t *testing.T) {
					c := w.open(t, path, s)
					for _, form := range forms {
						checkStripped(t, reader{c, shape{}, form})
					}
					c.stop()
					want := len(forms)
					if start == "again" && row.recognized {
						want = 0
					}
					if got := w.lists(t, t.Name()); len(got) != want {
						t.Errorf("%d lists, want %d: %q", len(got), want, got)
					}
				})
			}
		})
	}
}

// checkStripped compares the pods that no test changes with the server's without managed
// fields, as they are read and as a handler receives them.
func checkStripped(t *testing.T, r reader) {
	t.Helper()
	added := map[string]client.Object{}
	for calls := handle(t, r.informerOf(t, pods), ""); len(calls) > 0; {
		if call := <-calls; call.what == "add" {
			obj := call.obj.(client.Object).DeepCopyObject().(client.Object)
			obj.GetObjectKind().SetGroupVersionKind(pods)
			added[keyOf(obj)] = obj
		}
	}
	for key, name := range map[string]string{"one/pod-1": "pod-1", "one/pod-5": "pod-5"} {
		want := known(t, r, "one", name)
		if len(want.GetManagedFields()) == 0 {
			t.Errorf("%s: the server has no managed fields", key)
		}
		want.SetManagedFields(nil)
		wantSame(t, key, want, r.get(t, pods, "one", name))
		wantSame(t, key+" in a handler", want, added[key])
	}
}
