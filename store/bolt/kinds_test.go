package bolt_test

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestKindsOfCustomResources lists custom resources with apiVersion and kind, as a page
// of a list has them, and without, as a watch does: nothing has changed.
func TestKindsOfCustomResources(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	c, err := codec.For(&testobjects.TypedWidget{})
	must(t, err)
	scope := store.Scope{Resource: testobjects.WidgetResource.Resource, Kind: testobjects.WidgetKind}
	s, err := db.Open(scope, store.Options{Codec: c})
	must(t, err)
	list := func(kind schema.GroupVersionKind, change string) (changed int) {
		t.Helper()
		r, err := s.Relist()
		must(t, err)
		for i := range 3 {
			w := testobjects.NewTypedWidget(i, 1)
			w.SetGroupVersionKind(kind)
			if i == 1 {
				w.Spec.Color += change
			}
			must(t, r.Add(w))
			if w.GroupVersionKind() != kind {
				t.Errorf("a listed object has become a %s", w.GroupVersionKind())
			}
		}
		for b, err := range r.Parts("7") {
			must(t, err)
			changed += len(b.Changes)
			must(t, s.Apply(b))
		}
		must(t, r.Close())
		return changed
	}
	list(schema.GroupVersionKind{}, "")
	for range 2 {
		if n := list(testobjects.WidgetKind, ""); n != 0 {
			t.Errorf("a list with apiVersion and kind changes %d objects", n)
		}
		if n := list(schema.GroupVersionKind{}, ""); n != 0 {
			t.Errorf("a list without apiVersion and kind changes %d objects", n)
		}
	}
	if n := list(testobjects.WidgetKind, " and more"); n != 1 {
		t.Errorf("a list of one changed object changes %d", n)
	}
	if n := list(schema.GroupVersionKind{}, " and more"); n != 0 {
		t.Errorf("the same list without apiVersion and kind changes %d objects", n)
	}
}
