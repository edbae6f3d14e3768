package overlay_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// put returns an entry of an object with a value in an index.
func put(key, value string) *overlay.Entry {
	return &overlay.Entry{
		Key: key, Name: key, Payload: record.Packed{Bytes: []byte(value)},
		Head: &record.Header{Index: map[string][]string{"by": {value}}},
	}
}

func deleted(key string) *overlay.Entry { return &overlay.Entry{Key: key, Name: key} }

// TestMap applies random changes, takes views, and commits some of them. The views stay
// as they were, and the bytes are those of what is left.
func TestMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var sum atomic.Int64
	m := overlay.NewMap(&sum)
	other := overlay.NewMap(&sum)
	other.Set(put("other", "x"))
	others := sum.Load()
	now := map[string]*overlay.Entry{}
	var view overlay.View
	var seen map[string]*overlay.Entry
	check := func(v overlay.View, want map[string]*overlay.Entry) {
		t.Helper()
		for _, value := range []string{"u", "v"} {
			var found, keys []string
			v.ByIndex("by", value, func(e *overlay.Entry) { found = append(found, e.Key) })
			for _, key := range slices.Sorted(maps.Keys(want)) {
				if slices.Contains(want[key].Values("by"), value) {
					keys = append(keys, key)
				}
			}
			if !slices.Equal(found, keys) {
				t.Fatalf("keys of %s: %q, want %q", value, found, keys)
			}
		}
		n := 0
		v.Scan(func(e *overlay.Entry) bool {
			if n++; want[e.Key] != e {
				t.Fatalf("another entry of %s", e.Key)
			}
			return true
		})
		if n != len(want) || v.Len() != n {
			t.Fatalf("%d and %d entries, want %d", n, v.Len(), len(want))
		}
	}
	for i := range 3000 {
		key := fmt.Sprint(rng.IntN(8))
		switch rng.IntN(10) {
		case 0:
			view, seen = m.View(), maps.Clone(now)
		case 1:
			if seen == nil {
				continue
			}
			check(view, seen)
			m.Committed(view)
			for key, e := range seen {
				if now[key] == e {
					delete(now, key)
				}
				if was := now[key]; was != nil {
					now[key], _ = m.Get(key)
					if is := now[key]; is.Head != was.Head || is.Absent != (e.Head == nil) {
						t.Fatalf("after a commit of %+v, %+v has become %+v", e, was, is)
					}
				}
			}
			seen = nil
		case 2:
			if m.Lost(nil); i%2 == 0 {
				m.Lost(nil)
			}
			clear(now)
			seen = nil
		case 3:
			now[key] = deleted(key)
			m.Set(now[key])
		default:
			now[key] = put(key, []string{"u", "v"}[rng.IntN(2)])
			m.Set(now[key])
		}
		check(m.View(), now)
		size := 0
		for _, e := range now {
			size += e.Size()
		}
		if m.Bytes() != size || sum.Load() != others+int64(size) {
			t.Fatalf("%d bytes, %d of all; want %d", m.Bytes(), sum.Load()-others, size)
		}
	}
}

// TestCommittedDeparture checks that an object that replaces one that has departed does
// not depart again after the first commit.
func TestCommittedDeparture(t *testing.T) {
	var sum atomic.Int64
	m := overlay.NewMap(&sum)
	gone := deleted("a")
	gone.Departs, gone.Before = 7, put("a", "u")
	m.Set(gone)
	written := m.View()
	again := put("a", "v")
	again.Departs, again.Before = gone.Departs, gone.Before
	m.Set(again)
	m.Committed(written)
	if e, ok := m.Get("a"); !ok || e.Departs != 0 || e.Before != nil || e.Head != again.Head {
		t.Errorf("waiting: %+v", e)
	}
	if e, _ := m.Get("a"); m.Bytes() != e.Size() {
		t.Errorf("%d bytes, want %d", m.Bytes(), e.Size())
	}
}

// TestMerge compares what is read over a bucket with a map of both.
func TestMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for range 50 {
		want := map[string]string{}
		v := overlay.NewView()
		err := db.Update(func(tx *bbolt.Tx) error {
			_ = tx.DeleteBucket([]byte("b"))
			b, err := tx.CreateBucket([]byte("b"))
			for i := range rng.IntN(20) {
				if key := fmt.Sprintf("%02d", i); rng.IntN(2) == 0 && err == nil {
					err, want[key] = b.Put([]byte(key), []byte("file")), "file"
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for range rng.IntN(20) {
			key := fmt.Sprintf("%02d", rng.IntN(25))
			if rng.IntN(3) == 0 {
				v.Put(deleted(key))
				delete(want, key)
				continue
			}
			v.Put(put(key, "u"))
			want[key] = "over"
		}
		after := fmt.Sprintf("%02d", rng.IntN(25))
		if rng.IntN(3) == 0 {
			after = ""
		}
		maps.DeleteFunc(want, func(key, _ string) bool { return key <= after })
		limit := rng.IntN(30)
		got, left := map[string]string{}, limit
		err = db.View(func(tx *bbolt.Tx) error {
			return v.Merge(tx.Bucket([]byte("b")), after, func(key string, e *overlay.Entry, value []byte) bool {
				if got[key] = "over"; e == nil {
					got[key] = string(value)
				}
				left--
				return left > 0
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		keys := slices.Sorted(maps.Keys(want))
		for _, key := range keys[min(max(limit, 1), len(keys)):] {
			delete(want, key)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("after %q, at most %d: %v, want %v", after, limit, got, want)
		}
	}
}

// TestCommittedBefore checks which state before a deletion stays when what waited before
// it is written.
func TestCommittedBefore(t *testing.T) {
	before, other := put("a", "u"), put("a", "v")
	gone := func(before *overlay.Entry) *overlay.Entry {
		e := deleted("a")
		e.Absent, e.Before = true, before
		return e
	}
	for name, test := range map[string]struct {
		written, waits *overlay.Entry
		want           *overlay.Entry
	}{
		"the log has it":  {gone(before), gone(before), nil},
		"the file has it": {before, gone(before), nil},
		"neither has it":  {gone(before), gone(other), other},
	} {
		var sum atomic.Int64
		m := overlay.NewMap(&sum)
		m.Set(test.written)
		written := m.View()
		m.Set(test.waits)
		m.Committed(written)
		got, ok := m.Get("a")
		if !ok || got.Before != test.want || got.Absent != (test.written.Head == nil) || m.Bytes() != got.Size() {
			t.Errorf("%s: %+v, %d bytes", name, got, m.Bytes())
		}
	}
}
