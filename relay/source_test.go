package relay

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// one is a Source of a collection that changes.
type one struct{ Collection }

func (o *one) Collections() []Collection { return []Collection{o.Collection} }

func openFile(t *testing.T, path string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openPods(t *testing.T, db *bolt.DB) store.Store {
	t.Helper()
	c, err := codec.For(&corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(podScope, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAnotherReaderOfALog has a watch that goes on when its collection has another
// reader: it ends without an event, and not with 410.
func TestAnotherReaderOfALog(t *testing.T) {
	path := t.TempDir() + "/informers.db"
	db := openFile(t, path)
	filled(t, db, podScope, &corev1.Pod{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openFile(t, path)
	view, _, err := db.View(podScope.ID())
	if err != nil {
		t.Fatal(err)
	}
	from := &one{Collection{Scope: podScope, Reader: view, Live: true}}
	server, err := New(from, Options{Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx := request.WithNamespace(t.Context(), "")
	w, err := server.find("pods").Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: "1000"})
	if err != nil {
		t.Fatal(err)
	}
	from.Reader = openPods(t, db)
	server.find("pods")
	select {
	case e, ok := <-w.ResultChan():
		if ok {
			t.Errorf("the watch got %v %v", e.Type, e.Object)
		}
	case <-time.After(time.Minute):
		t.Error("the watch has not ended")
	}
}
