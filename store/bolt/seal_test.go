package bolt

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// The tests in this file put sealed bytes into wrong places with correct checksums and
// counts, which no caller can do. So they are inside the package.

type oneKey codec.Key

func (k oneKey) Keys(context.Context) ([]codec.Key, error) { return []codec.Key{codec.Key(k)}, nil }

func sealScope(resource string) store.Scope {
	return store.Scope{Resource: resource, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
}

// sealWorld is a file with two scopes of two objects each.
type sealWorld struct {
	*testing.T
	path string
	db   *DB
	s    *scopeStore // the scope that is tampered with
}

func sealObjects() (objects []*corev1.ConfigMap) {
	for _, name := range []string{"a", "b"} {
		objects = append(objects, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", ResourceVersion: "1", Labels: map[string]string{"name": name}},
			Data:       map[string]string{"content": "of " + name},
		})
	}
	return objects
}

func (w *sealWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *sealWorld) open(resource string) *scopeStore {
	w.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	w.must(err)
	s, err := w.db.Open(sealScope(resource), store.Options{Codec: c})
	w.must(err)
	return s.(*scopeStore)
}

func (w *sealWorld) reopen() {
	w.Helper()
	var err error
	if w.db != nil {
		w.must(w.db.Close())
	}
	w.db, err = Open(w.path, Options{Keys: oneKey{1}, EncryptAll: true})
	w.must(err)
}

func newSealWorld(t *testing.T) *sealWorld {
	w := &sealWorld{T: t, path: filepath.Join(t.TempDir(), "informers.db")}
	w.reopen()
	t.Cleanup(func() { w.must(w.db.Close()) })
	for _, resource := range []string{"others", "configmaps"} {
		w.s = w.open(resource)
		b := store.Batch{RV: "1"}
		for _, obj := range sealObjects() {
			b.Changes = append(b.Changes, store.Change{Object: obj})
		}
		w.must(w.s.Apply(b))
		w.must(w.s.Flush(t.Context()))
	}
	return w
}

// tamper lets fn change the record and the header of object a, in a transaction that
// updates all checksums and counts.
func (w *sealWorld) tamper(fn func(scopes *bbolt.Bucket, r *record.Record, h *record.Header)) {
	w.Helper()
	w.must(w.db.update("tamper", func(tx *bbolt.Tx) error {
		scope := w.s.bucket(tx)
		m, err := layout.ReadManifest(w.s.id, scope)
		if err != nil {
			return err
		}
		headers, objects := scope.Bucket(layout.Headers), scope.Bucket(layout.Objects)
		key := []byte("a")
		r, err := record.Decode("a", objects.Get(key))
		if err != nil {
			return err
		}
		h, err := record.DecodeHeader("a", headers.Get(key))
		if err != nil {
			return err
		}
		r.Payload = append([]byte{}, r.Payload...)
		m.Objects.Remove(record.Sum(objects.Get(key)))
		m.Uses.Remove(objects.Get(key))
		m.Headers.Remove(record.Sum(headers.Get(key)))
		fn(tx.Bucket(layout.Scopes), &r, h)
		rec := r.Encode("a")
		head := h.Encode("a")
		m.Objects.Add(record.Sum(rec))
		m.Uses.Add(rec)
		m.Headers.Add(record.Sum(head))
		return errors.Join(objects.Put(key, rec), headers.Put(key, head), layout.WriteManifest(scope, m))
	}))
}

func recordOf(t *testing.T, scope *bbolt.Bucket, key string) record.Record {
	t.Helper()
	r, err := record.Decode(key, scope.Bucket(layout.Objects).Get([]byte(key)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func headerOf(t *testing.T, scope *bbolt.Bucket, key string) record.Header {
	t.Helper()
	h, err := record.DecodeHeader(key, scope.Bucket(layout.Headers).Get([]byte(key)))
	if err != nil {
		t.Fatal(err)
	}
	return *h
}

// TestSealedIsBound checks bytes that were sealed for another place, or whose record
// contains other data than when it was sealed. Although every checksum is correct,
// reading that object must report damage. Other objects are not affected, and a relist
// repairs it (promise 5).
func TestSealedIsBound(t *testing.T) {
	own, other := sealScope("configmaps").ID(), sealScope("others").ID()
	bucket := func(scopes *bbolt.Bucket, id string) *bbolt.Bucket { return scopes.Bucket([]byte(id)) }
	for name, test := range map[string]struct {
		header bool // the header is damaged and not the object
		tamper func(w *sealWorld, scopes *bbolt.Bucket, r *record.Record, h *record.Header)
	}{
		"record of another key": {false, func(w *sealWorld, scopes *bbolt.Bucket, r *record.Record, _ *record.Header) {
			*r = recordOf(w.T, bucket(scopes, own), "b")
		}},
		"record of another scope": {false, func(w *sealWorld, scopes *bbolt.Bucket, r *record.Record, _ *record.Header) {
			*r = recordOf(w.T, bucket(scopes, other), "a")
		}},
		"staged record": {false, func(w *sealWorld, _ *bbolt.Bucket, r *record.Record, _ *record.Header) {
			e, err := w.s.codec.Prepare(w.s.indexes, "", sealObjects()[0], nil)
			w.must(err)
			p, err := w.s.packer.Load().Pack(seal.InStaging, []*overlay.Entry{e})
			w.must(err)
			*r = p[0].Record(r.Codec)
		}},
		"another codec": {false, func(_ *sealWorld, _ *bbolt.Bucket, r *record.Record, _ *record.Header) { r.Codec ^= 3 }},
		"another dictionary": {false, func(_ *sealWorld, _ *bbolt.Bucket, r *record.Record, _ *record.Header) {
			r.Dictionary ^= dictionary.Plain
		}},
		"another data key": {false, func(_ *sealWorld, _ *bbolt.Bucket, r *record.Record, _ *record.Header) { r.DataKey = 2 }},
		"no such data key": {false, func(_ *sealWorld, _ *bbolt.Bucket, r *record.Record, _ *record.Header) { r.DataKey = 77 }},
		"a changed bit":    {false, func(_ *sealWorld, _ *bbolt.Bucket, r *record.Record, _ *record.Header) { r.Payload[20] ^= 1 }},
		"cut short":        {false, func(_ *sealWorld, _ *bbolt.Bucket, r *record.Record, _ *record.Header) { r.Payload = r.Payload[:5] }},
		"header of another key": {true, func(w *sealWorld, scopes *bbolt.Bucket, _ *record.Record, h *record.Header) {
			*h = headerOf(w.T, bucket(scopes, own), "b")
		}},
		"header of another scope": {true, func(w *sealWorld, scopes *bbolt.Bucket, _ *record.Record, h *record.Header) {
			*h = headerOf(w.T, bucket(scopes, other), "a")
		}},
		"another hash": {true, func(_ *sealWorld, _ *bbolt.Bucket, _ *record.Record, h *record.Header) { h.Hash[0] ^= 1 }},
		"another size": {true, func(_ *sealWorld, _ *bbolt.Bucket, _ *record.Record, h *record.Header) { h.Size++ }},
		"header in the clear": {true, func(_ *sealWorld, _ *bbolt.Bucket, _ *record.Record, h *record.Header) {
			*h = record.Header{UID: "uid", RV: "1", Hash: h.Hash, Size: h.Size}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSealWorld(t)
			w.must(w.db.Rekey(t.Context())) // makes a second data key
			w.tamper(func(scopes *bbolt.Bucket, r *record.Record, h *record.Header) { test.tamper(w, scopes, r, h) })
			w.reopen()
			if w.s = w.open("configmaps"); w.db.SetAside() != "" {
				t.Fatal("the sums of this test are not right: the file was set aside")
			}
			_, _, objectErr := store.Indexer(w.s).GetByKey("a")
			var headerErr error
			for _, err := range store.HeadersOfAll(w.s) {
				headerErr = err
			}
			damaged, intact := objectErr, headerErr
			if test.header {
				damaged, intact = headerErr, objectErr
			}
			if !errors.Is(damaged, store.ErrCorrupt) || intact != nil {
				t.Errorf("object: %v; header: %v", objectErr, headerErr)
			}
			if _, ok, err := store.Indexer(w.s).GetByKey("b"); !ok || err != nil {
				t.Errorf("the other object: %t, %v", ok, err)
			}
			r, err := w.s.Relist()
			w.must(err)
			for _, obj := range sealObjects() {
				w.must(r.Add(obj))
			}
			changed := 0
			for b, err := range r.Parts("2") {
				w.must(err)
				changed += len(b.Changes)
				w.must(w.s.Apply(b))
			}
			w.must(r.Close())
			w.must(w.s.Flush(t.Context()))
			if _, ok, err := store.Indexer(w.s).GetByKey("a"); !ok || err != nil || changed != 1 {
				t.Errorf("after a new list with %d changes: %t, %v", changed, ok, err)
			}
			for _, err := range store.HeadersOfAll(w.s) {
				if err != nil {
					t.Errorf("after a new list: %v", err)
				}
			}
		})
	}
}

// TestUnsealedIsRefused checks that a plain-text record in an encrypted scope sets the
// file aside.
func TestUnsealedIsRefused(t *testing.T) {
	w := newSealWorld(t)
	w.tamper(func(_ *bbolt.Bucket, r *record.Record, _ *record.Header) { r.DataKey = 0 })
	w.reopen()
	if w.db.SetAside() == "" {
		t.Error("the file was taken")
	}
}

// TestKeysAreDamaged checks that unreadable or missing data keys are damage of the file,
// and are not taken for those of another key.
func TestKeysAreDamaged(t *testing.T) {
	for name, tamper := range map[string]func(meta *bbolt.Bucket) error{
		"unreadable": func(meta *bbolt.Bucket) error {
			value := append([]byte{}, meta.Get(seal.MetaKey)...)
			value[len(value)-1] ^= 1
			return meta.Put(seal.MetaKey, value)
		},
		"missing": func(meta *bbolt.Bucket) error { return meta.Delete(seal.MetaKey) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newSealWorld(t)
			w.must(w.db.update("tamper", func(tx *bbolt.Tx) error { return tamper(tx.Bucket(layout.Meta)) }))
			w.must(w.db.Close())
			var err error
			if w.db, err = OpenReadOnly(w.path, Options{Keys: oneKey{1}}); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("opened to read: %v, want %v", err, store.ErrCorrupt)
			}
			w.reopen()
			if w.db.SetAside() == "" {
				t.Error("the file was taken")
			}
		})
	}
}

// TestWipedWithItsKeys checks that a wipe of all scopes also removes the keys. If the
// process dies before the next list, the file must not be damaged.
func TestWipedWithItsKeys(t *testing.T) {
	w := newSealWorld(t)
	_, err := w.db.Wipe(nil)
	w.must(err)
	w.reopen()
	if aside := w.db.SetAside(); aside != "" {
		t.Errorf("the wiped file was set aside as %s", aside)
	}
}
