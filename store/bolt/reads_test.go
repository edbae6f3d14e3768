package bolt_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestWork checks that encoding, compressing and decoding are counted with their
// durations, and that reads of decoded objects are not counted.
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
		if _, ok, err := store.Indexer(s).GetByKey(testobjects.Pod(1, 1).Namespace + "/" + testobjects.Pod(1, 1).Name); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	s := open()
	check(s, "opened", 0, 0, false, false)
	if err := s.Apply(store.Batch{RV: "1", Changes: []store.Change{{Object: testobjects.Pod(1, 1)}, {Object: testobjects.Pod(2, 1)}}}); err != nil {
		t.Fatal(err)
	}
	check(s, "applied", 2, 0, true, false)
	get(s)
	check(s, "found decoded", 2, 0, false, false)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(s, "compressed", 2, 0, true, false)
	if _, _, err := s.Compare(testobjects.Pod(1, 1)); err != nil {
		t.Fatal(err)
	}
	check(s, "compared", 3, 0, true, false)
	if _, err := s.Encode(testobjects.Pod(1, 1)); err != nil {
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
	if n := len(store.Indexer(s).List()); n != 2 {
		t.Fatal(n)
	}
	if n := s.(store.ReadCounter).Reads().DecodedBytes; n <= 0 {
		t.Errorf("%d bytes of memory for two pods", n)
	}
	check(s, "listed, one of two found decoded", 0, 2, false, true)
}

// TestDecodedBytes checks that the memory of decoded objects is reported alike with and
// without a bound, and that it is released with the objects.
func TestDecodedBytes(t *testing.T) {
	for name, budget := range map[string]int64{"bounded": 0, "all": -1} {
		t.Run(name, func(t *testing.T) {
			db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			c, err := codec.For(&corev1.Pod{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := db.Open(podScope, store.Options{Codec: c, DecodedBytes: budget})
			if err != nil {
				t.Fatal(err)
			}
			bytes := func() int64 { return s.(store.ReadCounter).Reads().DecodedBytes }
			if n := bytes(); n != 0 {
				t.Errorf("%d bytes of nothing", n)
			}
			pod := testobjects.Pod(1, 1)
			apply := func(c store.Change) {
				t.Helper()
				if err := s.Apply(store.Batch{RV: "1", Changes: []store.Change{c}}); err != nil {
					t.Fatal(err)
				}
			}
			apply(store.Change{Object: pod})
			one := bytes()
			if encoded, err := c.Encode(pod); err != nil || one < 3*int64(len(encoded)) || one > 4*int64(len(encoded)) {
				t.Errorf("%d bytes for one that is encoded in %d (%v)", one, len(encoded), err)
			}
			apply(store.Change{Object: pod})
			if n := bytes(); n != one {
				t.Errorf("%d bytes after it was replaced, want %d", n, one)
			}
			apply(store.Change{Object: testobjects.Pod(2, 1)})
			if n := bytes(); n < one*3/2 {
				t.Errorf("%d bytes for two, %d for one", n, one)
			}
			for _, i := range []int{1, 2} {
				apply(store.Change{Key: testobjects.Pod(i, 1).Namespace + "/" + testobjects.Pod(i, 1).Name})
			}
			if n := bytes(); n != 0 {
				t.Errorf("%d bytes after both were deleted", n)
			}
		})
	}
}

// TestStoredBytes checks that the size of a scope's records in the file is known without
// reading them.
func TestStoredBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openPods(t, path, bolt.Options{})
	defer func() { _ = db.Close() }()
	last := int64(0)
	check := func(what string, grows, shrinks bool) {
		t.Helper()
		want := int64(0)
		infos, err := db.Scopes()
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			want += info.Bytes
		}
		got := s.(store.Committer).Commits().Stored
		if got != want || got > last != grows || got < last != shrinks {
			t.Errorf("%s: %d bytes, after %d; the file says %d", what, got, last, want)
		}
		last = got
	}
	check("nothing", false, false)
	listPods(t, s, 100, 1)
	// a small list is compressed by the committer
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("the first list", true, false)
	if err := s.Apply(store.Batch{RV: "1001", Changes: []store.Change{{Object: testobjects.Pod(200, 1)}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("one more", true, false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, s = openPods(t, path, bolt.Options{})
	check("opened again", false, false)
	listPods(t, s, 50, 1)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("a list of fewer", false, true)
	if _, err := db.Wipe(nil); err != nil {
		t.Fatal(err)
	}
	check("wiped", false, true)
}

// TestCommitBuckets checks that each transaction is counted by its duration and by its
// size.
func TestCommitBuckets(t *testing.T) {
	db, s := openPods(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{Compression: bolt.Uncompressed})
	defer func() { _ = db.Close() }()
	before := s.(store.Committer).Commits()
	for i := range 3 {
		b := store.Batch{RV: fmt.Sprint(i + 1)} // the first and the last have no object
		if i == 1 {
			b.Changes = []store.Change{{Object: testobjects.Pod(1, 1)}}
		}
		if err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := s.(store.Committer).Commits()
	if slices.Equal(c.Sizes, before.Sizes) || before.Sizes[len(before.Sizes)-1].Count != 0 {
		t.Errorf("what was told before has changed: %v", before.Sizes)
	}
	if c.Count != 3 {
		t.Fatalf("%d transactions", c.Count)
	}
	for _, b := range c.Sizes {
		want := uint64(2)
		if b.UpTo >= float64(c.Bytes) { // the bucket includes the second transaction
			want = 3
		}
		if b.Count != want {
			t.Errorf("%d of 3 transactions wrote up to %v bytes, want %d; the second wrote %d", b.Count, b.UpTo, want, c.Bytes)
		}
	}
	for _, b := range c.Durations {
		if b.UpTo >= c.Took.Seconds() && b.Count != 3 || b.UpTo < c.LastTook.Seconds() && b.Count == 3 {
			t.Errorf("%d of 3 transactions took up to %v s, all %s and the last %s", b.Count, b.UpTo, c.Took, c.LastTook)
		}
	}
	if first, last := c.Sizes[0].UpTo, c.Sizes[len(c.Sizes)-1].UpTo; first > 1024 || last < 1<<30 {
		t.Errorf("sizes are from %v to %v", first, last)
	}
	if first, last := c.Durations[0].UpTo, c.Durations[len(c.Durations)-1].UpTo; first > 0.001 || last < 30 {
		t.Errorf("durations are from %v to %v", first, last)
	}
}
