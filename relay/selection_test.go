package relay

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestOtherNodeIndex selects the pods of a node where a program has an index of its own
// under the name of that of nodes: it is not used.
func TestOtherNodeIndex(t *testing.T) {
	other := index.Index{Name: index.NodeName().Name, Version: "of the program", Func: func(any) ([]string, error) { return nil, nil }}
	for _, idx := range []index.Index{index.NodeName(), other} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db := openFile(t, path)
		c, err := codec.For(&corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := db.Open(podScope, store.Options{Codec: c, Indexes: []index.Index{idx}})
		if err != nil {
			t.Fatal(err)
		}
		pod := onePod(0, 1)
		pod.Spec.NodeName = "n1"
		bolttest.List(t, s, "1000", pod)
		isOwn := idx.Version == index.NodeName().Version
		selectNode(t, s, isOwn)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if db, err = bolt.OpenReadOnly(path, bolt.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if s, err = db.Open(podScope, store.Options{}); err != nil {
			t.Fatal(err)
		}
		selectNode(t, s, isOwn)
	}
}

// selectNode lists the one pod of a node, with the index of nodes or without it.
func selectNode(t *testing.T, r store.Reader, byIndex bool) {
	t.Helper()
	server, err := New(Collections{{Scope: podScope, Reader: r}}, Options{Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	pods := server.find("pods")
	if got := pods.hasNodeIndex(store.Place{}); got != byIndex {
		t.Errorf("the index is used: %t, want %t", got, byIndex)
	}
	of := &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "n1")}
	l, err := pods.List(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for entries, err := range l.(*list).pages {
		if err != nil {
			t.Fatal(err)
		}
		n += len(entries)
	}
	if n != 1 {
		t.Errorf("the list has %d pods, want 1 (by the index: %t)", n, byIndex)
	}
}
