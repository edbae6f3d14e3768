package bolt_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/testdata/objects"
)

// TestWork: what is encoded, compressed and decoded is counted with what it took, and
// what is found decoded is not.
func TestWork(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{Compression: bolt.Zstd})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	c, err := codec.For(&corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	open := func() store.Store {
		s, err := db.Open(podScope, store.Options{Codec: c})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var before store.Reads
	check := func(s store.Store, what string, encodes, decodes uint64, encoding, decoding bool) {
		t.Helper()
		now := s.(store.ReadCounter).Reads()
		if now.Encodes.Count != encodes || now.Decodes.Count != decodes ||
			(now.Encodes.Took > before.Encodes.Took) != encoding || (now.Decodes.Took > before.Decodes.Took) != decoding {
			t.Errorf("%s: %+v, after %+v", what, now, before)
		}
		before = now
	}
	get := func(s store.Store) {
		t.Helper()
		if _, ok, err := s.GetByKey(objects.Pod(1, 1).Namespace + "/" + objects.Pod(1, 1).Name); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	s := open()
	check(s, "opened", 0, 0, false, false)
	if err := s.Apply(store.Batch{RV: "1", Changes: []store.Change{{Object: objects.Pod(1, 1)}, {Object: objects.Pod(2, 1)}}}); err != nil {
		t.Fatal(err)
	}
	check(s, "applied", 2, 0, true, false)
	get(s)
	check(s, "found decoded", 2, 0, false, false)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(s, "compressed", 2, 0, true, false)
	if _, _, err := s.Compare(objects.Pod(1, 1)); err != nil {
		t.Fatal(err)
	}
	check(s, "compared", 3, 0, true, false)
	if _, err := s.Encode(objects.Pod(1, 1)); err != nil {
		t.Fatal(err)
	}
	check(s, "encoded", 4, 0, true, false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, before = open(), store.Reads{}
	get(s)
	check(s, "read", 0, 1, false, true)
	get(s)
	check(s, "found decoded again", 0, 1, false, false)
	if n := len(s.List()); n != 2 {
		t.Fatal(n)
	}
	check(s, "listed, one of two found decoded", 0, 2, false, true)
}
