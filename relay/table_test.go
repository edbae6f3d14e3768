package relay

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestColumnsChange has the columns of a custom resource change under a watch of Tables:
// it ends before it sends a row with other columns than its first Table had. Of the
// moment before, the columns are those of then, also when the definition is deleted.
func TestColumnsChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		crd := func(columns ...any) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": "widgets.example.com", "uid": "crd", "resourceVersion": "1"},
				"spec":     map[string]any{"versions": []any{map[string]any{"name": "v1", "additionalPrinterColumns": columns}}},
			}}
		}
		column := func(name string) any {
			return map[string]any{"name": name, "type": "string", "jsonPath": ".spec." + name}
		}
		widget := func(rv string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Widget",
				"metadata": map[string]any{"name": "w", "namespace": "default", "uid": "w", "resourceVersion": rv},
			}}
		}
		open := func(resource string, kind schema.GroupVersionKind, obj *unstructured.Unstructured) Collection {
			scope := store.Scope{Resource: resource, Kind: kind, Form: store.Unstructured}
			c, err := codec.For(obj)
			if err != nil {
				t.Fatal(err)
			}
			s, err := db.Open(scope, store.Options{Codec: c})
			if err != nil {
				t.Fatal(err)
			}
			bolttest.List(t, s, "1000", obj)
			return Collection{Scope: scope, Reader: s, Live: true}
		}
		change := func(c Collection, change store.Change, rv string) {
			s := c.Reader.(store.Store)
			if err := s.Apply(store.Batch{Changes: []store.Change{change}, RV: rv}); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		put := func(c Collection, obj *unstructured.Unstructured, rv string) {
			change(c, store.Change{Object: obj}, rv)
		}
		now := func(c Collection) Collection {
			state, err := c.Reader.History()
			if err != nil {
				t.Fatal(err)
			}
			c.At, c.Live = state.Readable, false
			return c
		}
		crds := open(definitions, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, crd(column("a")))
		widgets := open("widgets.example.com", schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, widget("1"))
		server, err := New(Collections{crds, widgets}, Options{Token: "x"})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		before := Collections{now(crds), now(widgets)}
		s := server.find("widgets.example.com")
		to := &target{kind: metav1.SchemeGroupVersion.WithKind("Table"), table: &metav1.TableOptions{}, printer: s.printer()}
		ctx := context.WithValue(request.WithNamespace(t.Context(), ""), targetKey{}, to)
		w, err := s.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: "1000"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		put(widgets, widget("1001"), "1001")
		e := <-w.ResultChan()
		put(crds, crd(column("a"), column("b")), "1002")
		<-time.After(2 * columnsAge)
		table, err := s.ConvertToTable(ctx, e.Object, &metav1.TableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if columns, cells := len(table.ColumnDefinitions), len(table.Rows[0].Cells); columns != 2 || cells != 2 {
			t.Errorf("the Table has %d columns and %d cells, want the name and one more", columns, cells)
		}
		put(widgets, widget("1003"), "1003")
		if got := next(w); got != "end" {
			t.Errorf("after the columns have changed the watch is sent %s, want the end", got)
		}
		change(crds, store.Change{Key: "widgets.example.com", RV: "1004"}, "1004")
		server, err = New(before, Options{Token: "x"})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if got := server.find("widgets.example.com").printer().Columns(); len(got) != 2 || got[1].Name != "a" {
			t.Errorf("of the moment before there are the columns %v, want the name and a", got)
		}
	})
}
