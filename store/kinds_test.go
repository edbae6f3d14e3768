package store_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestCompareMetadata checks that apiVersion and kind are no difference between metadata
// of a list and of a watch: a server that sends JSON has them in lists, and client-go
// removes them from what a watch brings.
func TestCompareMetadata(t *testing.T) {
	db, err := bolt.Open(t.TempDir()+"/informers.db", bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	c, err := codec.For(&metav1.PartialObjectMetadata{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(store.Scope{Resource: "configmaps", Form: store.Metadata}, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	watched := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	listed := watched.DeepCopy()
	listed.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	other := watched.DeepCopy()
	other.Labels = map[string]string{"a": "b"}
	for _, held := range []*metav1.PartialObjectMetadata{listed, watched} {
		if err := s.Apply(store.Batch{RV: "1", Changes: []store.Change{{Object: held.DeepCopy()}}}); err != nil {
			t.Fatal(err)
		}
		for _, obj := range []*metav1.PartialObjectMetadata{listed, watched, other} {
			if _, same, err := s.Compare(obj.DeepCopy()); err != nil || same != (obj != other) {
				t.Errorf("%+v beside %+v: same %t, %v", obj, held, same, err)
			}
		}
	}
}
