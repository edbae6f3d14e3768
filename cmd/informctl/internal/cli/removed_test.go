package cli_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeRemoved writes a file as run leaves it when the definition of a custom resource
// was deleted: only the logs have the objects, of resource versions 10 to 30, and the
// definition.
func writeRemoved(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeLog(t, db, "pods", "Pod", []runtime.Object{pod("a", "one", "web")})
	definitions := store.Scope{
		Resource: "customresourcedefinitions.apiextensions.k8s.io", Form: store.Unstructured,
		Kind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	}
	writeScopeLog(t, db, definitions, []runtime.Object{atVersion(gadgetDefinition())},
		store.Batch{RV: "30", Changes: []store.Change{{Key: "gadgets.example.com", RV: "30"}}})
	one := atVersion(gadget("a", "one", map[string]any{"phase": "Pending"}))
	changed := atVersion(gadget("a", "one", map[string]any{"phase": "Ready"}))
	changed.SetResourceVersion("12")
	gadgets := openScope(t, db, store.Scope{
		Resource: "gadgets.example.com", Form: store.Unstructured,
		Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"},
	})
	load(t, gadgets, "10", one, atVersion(gadget("b", "two", nil)))
	apply(t, gadgets, store.Batch{RV: "12", Changes: []store.Change{{Object: changed}}})
	load(t, gadgets, "30") // that there are none
	if err := errors.Join(gadgets.Invalidate(t.Context(), source.ReasonGone), gadgets.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}
