package content_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// file has the content of one scope.
type file struct {
	*testing.T
	db     *bbolt.DB
	id     string
	packer *pack.Packer
}

func newFile(t *testing.T) *file {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	packer, err := pack.New(pack.Options{
		Trains: true, Codec: 1,
		Spent: func(time.Time) {}, Samples: func() [][]byte { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	m := record.NewManifest(store.Scope{Cluster: "c", Resource: "pods"})
	m.Indexes["by"] = record.IndexState{Identity: "by", Ready: true}
	f := &file{T: t, db: db, id: m.Scope().ID(), packer: packer}
	f.update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("scope"))
		if err != nil {
			return err
		}
		return layout.CreateContent(b, m)
	})
	return f
}

func (f *file) update(fn func(tx *bbolt.Tx) error) {
	f.Helper()
	if err := f.db.Update(fn); err != nil {
		f.Fatal(err)
	}
}

// write writes entries as a commit does, and returns what was there before.
func (f *file) write(entries ...*overlay.Entry) (befores []content.Before) {
	f.Helper()
	packed, err := f.packer.Pack(seal.InScope, entries)
	if err != nil {
		f.Fatal(err)
	}
	f.update(func(tx *bbolt.Tx) error {
		w, err := content.NewWriter(f.id, tx.Bucket([]byte("scope")), content.Options{
			Packer: f.packer, Codec: 1, Logger: logr.Discard(),
			Corrupt: func(_ string, err error) error { return err },
		})
		if err != nil {
			return err
		}
		for i, e := range entries {
			b := w.Before(e.Key)
			if err := w.Put(e, packed[i], b); err != nil {
				return err
			}
			befores = append(befores, content.Before{Header: bytes.Clone(b.Header), Record: bytes.Clone(b.Record), Head: b.Head})
		}
		return w.End()
	})
	return befores
}

func (f *file) verify() (err error) {
	f.Helper()
	_ = f.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("scope"))
		m, readErr := layout.ReadManifest(f.id, b)
		if readErr != nil {
			f.Fatal(readErr)
		}
		err = content.Verify(f.Context(), m, b)
		return nil
	})
	return err
}

func entry(key, value string) *overlay.Entry {
	return &overlay.Entry{
		Key: key, Name: key, Payload: record.Packed{Bytes: []byte(strings.Repeat(value, 200))},
		Head: &record.Header{RV: value, Index: map[string][]string{"by": {value}}},
	}
}

// TestPut writes random changes. What is in the file verifies after each of them, and is
// what was put last.
func TestPut(t *testing.T) {
	f := newFile(t)
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	for range 300 {
		chosen := map[string]*overlay.Entry{}
		for range 1 + rng.IntN(3) {
			e := entry(fmt.Sprint(rng.IntN(10)), fmt.Sprint(rng.IntN(3)))
			if rng.IntN(3) == 0 {
				e = &overlay.Entry{Key: e.Key, Name: e.Key}
			}
			chosen[e.Key] = e
		}
		entries := slices.Collect(maps.Values(chosen))
		for i, b := range f.write(entries...) {
			e := entries[i]
			was, existed := want[e.Key]
			if (b.Header != nil) != existed || (b.Record != nil) != existed || existed && b.Head.RV != was {
				t.Fatalf("before %s: %v, want %q", e.Key, b.Head, was)
			}
			if delete(want, e.Key); e.Head != nil {
				want[e.Key] = e.Head.RV
			}
		}
		if err := f.verify(); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	f.update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("scope")).Bucket(layout.Headers).ForEach(func(k, v []byte) error {
			h, err := record.DecodeHeader(string(k), v)
			if err == nil {
				got[string(k)] = h.RV
			}
			return err
		})
	})
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestVerify checks that each part that is lost or changed is noticed.
func TestVerify(t *testing.T) {
	for name, damage := range map[string]func(b *bbolt.Bucket) error{
		"header lost":  func(b *bbolt.Bucket) error { return b.Bucket(layout.Headers).Delete([]byte("1")) },
		"object lost":  func(b *bbolt.Bucket) error { return b.Bucket(layout.Objects).Delete([]byte("1")) },
		"headers lost": func(b *bbolt.Bucket) error { return b.DeleteBucket(layout.Headers) },
		"both lost": func(b *bbolt.Bucket) error {
			return errors.Join(b.Bucket(layout.Headers).Delete([]byte("1")), b.Bucket(layout.Objects).Delete([]byte("1")))
		},
		"index lost": func(b *bbolt.Bucket) error { return b.DeleteBucket(layout.Indexes) },
		"index entry lost": func(b *bbolt.Bucket) error {
			i := layout.Index(b, "by")
			k, _ := i.Cursor().First()
			return i.Delete(bytes.Clone(k))
		},
		"another object": func(b *bbolt.Bucket) error {
			o := b.Bucket(layout.Objects)
			return o.Put([]byte("1"), bytes.Clone(o.Get([]byte("2"))))
		},
		"record changed": func(b *bbolt.Bucket) error {
			o := b.Bucket(layout.Objects)
			rec := bytes.Clone(o.Get([]byte("1")))
			rec[len(rec)-1] ^= 1
			return o.Put([]byte("1"), rec)
		},
		"dictionary lost": func(b *bbolt.Bucket) error { return b.DeleteBucket(layout.Dictionaries) },
		"uses": func(b *bbolt.Bucket) error {
			m, err := layout.ReadManifest(record.NewManifest(store.Scope{Cluster: "c", Resource: "pods"}).Scope().ID(), b)
			if err != nil {
				return err
			}
			m.Uses[77]++
			return layout.WriteManifest(b, m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			entries := make([]*overlay.Entry, 300)
			for i := range entries {
				entries[i] = entry(fmt.Sprint(i), fmt.Sprintf("value %d of many values, ", i))
			}
			f.write(entries...)
			if err := f.verify(); err != nil {
				t.Fatal(err)
			}
			f.update(func(tx *bbolt.Tx) error { return damage(tx.Bucket([]byte("scope"))) })
			if err := f.verify(); err == nil {
				t.Error("not noticed")
			}
		})
	}
}

// TestDamagedRecordReplaced checks that a damaged record that is overwritten does not
// take away the dictionary of another one.
func TestDamagedRecordReplaced(t *testing.T) {
	f := newFile(t)
	many := func(what string, from, to int) (out []*overlay.Entry) {
		for i := from; i < to; i++ {
			out = append(out, entry(fmt.Sprint(i), fmt.Sprintf("%s %d of many, ", what, i)))
		}
		return out
	}
	f.write(many("first", 0, 300)...)
	f.packer = f.packer.Renew()
	f.write(many("second", 1, 300)...) // object 0 alone has the first dictionary
	f.update(func(tx *bbolt.Tx) error {
		o := tx.Bucket([]byte("scope")).Bucket(layout.Objects)
		a, err := record.Decode("0", o.Get([]byte("0")))
		if err != nil {
			return err
		}
		was := bytes.Clone(o.Get([]byte("7")))
		b, err := record.Decode("7", was)
		b.Dictionary = a.Dictionary
		rec := b.Encode("7")
		copy(rec, was[:4]) // the checksum is that of before: some bits have flipped
		if err == nil {
			err = o.Put([]byte("7"), rec)
		}
		return err
	})
	f.write(many("second", 7, 8)...) // it is mended
	if err := f.verify(); err != nil {
		t.Error("after the mend:", err)
	}
	f.packer = f.packer.Renew()
	f.write(many("third", 100, 300)...)
	if err := f.verify(); err != nil {
		t.Error("after another dictionary:", err)
	}
}

// TestValueStays checks that a change of an object leaves the pages of an index as they
// are if its value stays.
func TestValueStays(t *testing.T) {
	f := newFile(t)
	var entries, changed []*overlay.Entry
	for i := range 500 { // more than a bucket has inside another one's page
		e := entry(fmt.Sprintf("namespace/name-%03d", i), "one")
		entries = append(entries, e)
		other := entry(e.Key, "two")
		other.Head.Index = e.Head.Index
		changed = append(changed, other)
	}
	root := func() (root string) {
		f.update(func(tx *bbolt.Tx) error {
			root = fmt.Sprint(tx.Bucket([]byte("scope")).Bucket(layout.Indexes).Bucket([]byte("by")).Root())
			return nil
		})
		return root
	}
	f.write(entries...)
	before := root()
	f.write(changed[:2]...)
	f.write(changed...)
	if after := root(); after != before || before == "0" {
		t.Errorf("the index begins at page %s, and began at %s", after, before)
	}
	f.write(entry(entries[0].Key, "three"))
	if after := root(); after == before {
		t.Error("another value was not written")
	}
	if err := f.verify(); err != nil {
		t.Error(err)
	}
}
