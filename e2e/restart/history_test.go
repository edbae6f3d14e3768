package restart_test

import (
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
)

// wantLists checks which scopes have listed since the child started.
func wantLists(t *testing.T, reports map[string]report, want func(name string) bool) {
	t.Helper()
	for name, r := range reports {
		if listed := r.Lists > 0; listed != want(name) {
			t.Errorf("%s: finished %d lists, want any: %v", name, r.Lists, want(name))
		}
	}
}

func always(string) bool { return true }

// TestAPIServerRestart checks a restart of the API server. The watch cache of the new
// server begins at its start, so the server answers 410 to clients that missed something.
func TestAPIServerRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	for i := range 20 {
		for _, col := range collections {
			w.create(col, col.object(i, "default", fmt.Sprintf("still-%d", i)))
		}
	}
	c := w.start()
	c.sync()
	c.atRest()

	t.Run("running", func(t *testing.T) {
		if err := w.cp.RestartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.atRest()
	})
	t.Run("while down", func(t *testing.T) {
		c.stop()
		for i := range 10 {
			for _, col := range collections {
				w.delete(col, "default", fmt.Sprintf("still-%d", i))
				if err := w.annotate(t.Context(), col, "default", fmt.Sprintf("still-%d", i+10), "while down"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.cp.RestartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		c = w.start()
		c.sync()
		reports := c.atRest()
		wantLists(t, reports, always)
		for name, r := range reports {
			if r.Told.Deletes != 10 || r.Told.Updates != 10 {
				t.Errorf("%s: handlers were told of %d deletions and %d updates, want 10 each: a list is compared", name, r.Told.Deletes, r.Told.Updates)
			}
		}
	})
}

// TestSchemaChange checks that a new default in a CRD reaches objects although their
// resource versions do not change.
func TestSchemaChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	c := w.start()
	c.sync()
	c.atRest()
	c.stop()
	before := w.server(collections[2], store.Unstructured)
	w.addDefault()
	after := w.server(collections[2], store.Unstructured)
	changed := 0
	for key, s := range before {
		if now := after[key]; now.RV == s.RV && now.Hash != s.Hash {
			changed++
		}
	}
	if changed == 0 {
		t.Fatal("the new default changed no object at its resource version: the test proves nothing")
	}
	c = w.start()
	c.sync()
	reports := c.atRest()
	// A small collection is compared before it is watched. The Go type does not know the
	// property, so that typed objects are what they were.
	wantLists(t, reports, func(name string) bool { return name == collections[2].name(store.Unstructured) })
	if got := reports[collections[2].name(store.Unstructured)].Told.Updates; got < changed {
		t.Errorf("handlers were told of %d updates, want %d", got, changed)
	}
}

// addDefault gives the CRD's spec a property with a default, and waits until the API
// server serves it.
func (w *world) addDefault() {
	w.t.Helper()
	r := w.client.Resource(testobjects.CRDResource)
	name := testobjects.WidgetCRD().GetName()
	crd, err := r.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		w.t.Fatal(err)
	}
	version := versions[0].(map[string]any)
	property := map[string]any{"type": "string", "default": "new"}
	if err := unstructured.SetNestedMap(version, property, "schema", "openAPIV3Schema", "properties", "spec", "properties", "addedLater"); err != nil {
		w.t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		w.t.Fatal(err)
	}
	if _, err := r.Update(w.t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the new default is served", func() bool {
		list, err := w.client.Resource(testobjects.WidgetResource).List(w.t.Context(), metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		value, _, _ := unstructured.NestedString(list.Items[0].Object, "spec", "addedLater")
		return value == "new"
	})
}

// TestHistoryOverrun checks a start after etcd was compacted past the stored resource
// version, without a watch cache in the API server.
func TestHistoryOverrun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{NoWatchCache: true})
	c := w.start()
	c.sync()
	c.atRest()
	c.stop()
	for _, col := range collections {
		for i := range 5 {
			w.create(col, col.object(i, "default", fmt.Sprintf("missed-%d", i)))
		}
	}
	if err := w.cp.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = w.start()
	c.sync()
	wantLists(t, c.atRest(), always)
}

// TestRewound checks that informers recover after etcd is restored to an older snapshot
// whose resource version is still behind the stored one (kubernetes#107457).
func TestRewound(t *testing.T) {
	t.Parallel()
	for name, whileRunning := range map[string]bool{"before a start": false, "under a running informer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplane.Options{})
			c := w.start()
			c.sync()
			c.atRest()
			snapshot := filepath.Join(t.TempDir(), "snapshot")
			if err := w.cp.Snapshot(t.Context(), snapshot); err != nil {
				t.Fatal(err)
			}
			ghosts := 40
			for _, col := range collections {
				for i := range ghosts {
					w.create(col, col.object(i, "default", fmt.Sprintf("ghost-%d", i)))
				}
			}
			c.atRest()
			if !whileRunning {
				c.stop()
			}
			if err := w.cp.Restore(t.Context(), snapshot); err != nil {
				t.Fatal(err)
			}
			if !whileRunning {
				c = w.start()
				c.sync()
			}
			reports := c.atRest()
			wantLists(t, reports, always)
			for name, r := range reports {
				if r.Told.Deletes != ghosts+2 { // two more for those of atRest
					t.Errorf("%s: handlers were told of %d deletions, want %d", name, r.Told.Deletes, ghosts+2)
				}
			}
		})
	}
}
