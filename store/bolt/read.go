package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// snapshot is the scope at one moment: the file and, merged over it, the pending entries.
type snapshot struct {
	over             overlay.View
	scope            *bbolt.Bucket // nil if the file may not be seen
	headers, objects *bbolt.Bucket
	length           int    // number of objects; -1 if it is not known
	settled          uint64 // the last departed object that was delivered
	hint             graveyard.Hint
	gone             []*overlay.Entry // see departures
	logged           record.LogState  // as of the last acknowledged commit
	storedRV         string           // of the checkpoint then
	found            []string         // see want
	tickets          *objcache.Tickets
	isLeft           bool          // what is in the file is of an earlier process
	left, former     *bbolt.Bucket // see want; nil if there is none
}

// want is what a snapshot has beside the file and the pending entries.
type want struct {
	loaded bool // what a first list has written so far, and what was applied beside it
	beside bool // only what was applied beside a first list, while there is one
	// snapshot.found: the keys of values, if the index is in memory
	index   string
	values  []string    // of index
	tickets bool        // snapshot.tickets: of the cache of decoded objects
	at      store.Place // another moment than now, if it is not zero
	// snapshot.former: the former content; snapshot.left: the bucket of the scope, if
	// nothing in it is of this process yet
	left bool
}

// read runs fn on a snapshot. fn must copy what it needs and must not call user code.
func (s *scopeStore) read(where string, fn func(*snapshot) error) error {
	return s.readAs(where, want{}, fn)
}

// readAs is like read, for a snapshot with more.
func (s *scopeStore) readAs(where string, w want, fn func(*snapshot) error) error {
	var sn *snapshot
	var visible bool
	at := func(isOpen bool, begin func() error) (err error) {
		sn, visible, err = s.snapshot(w, isOpen, begin)
		return err
	}
	return s.db.file.Read(where, at, func(tx *bbolt.Tx) error {
		if tx == nil {
			return fn(sn)
		}
		if visible {
			if sn.scope = s.bucketIn(tx); sn.scope != nil {
				sn.headers, sn.objects = sn.scope.Bucket(layout.Headers), sn.scope.Bucket(layout.Objects)
			}
			if sn.headers == nil || sn.objects == nil {
				return s.db.corrupt("scope "+s.scope.String(), errors.New("headers or objects are missing"))
			}
		}
		if w.left {
			s.findLeft(tx, sn)
		}
		if !w.at.IsZero() {
			if err := s.rewind(sn, w); err != nil {
				return err
			}
		}
		return fn(sn)
	})
}

// isOnlyInMemoryLocked reports whether a read needs no file: it was lost, and what was
// listed since could not be written yet.
func (s *scopeStore) isOnlyInMemoryLocked(w want) bool {
	return s.losses > 0 && s.noBucket.Load() && w.at.IsZero() && s.db.file.Usable() == nil
}

// snapshot begins a transaction and captures the state in memory at the same moment.
// visible reports whether the file is part of the snapshot. Without a file there is no
// transaction.
func (s *scopeStore) snapshot(w want, isOpen bool, begin func() error) (sn *snapshot, visible bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	usesFile := isOpen || !s.isOnlyInMemoryLocked(w)
	if s.cause != nil && (isOpen || !usesFile) {
		return nil, false, s.cause
	}
	// Read this before the transaction begins: if the bucket exists now, the transaction
	// sees it.
	inFile := !s.noBucket.Load()
	if usesFile {
		if err := begin(); err != nil {
			return nil, false, err
		}
	}
	isVisible := w.loaded || !s.isLoading()
	sn = &snapshot{over: overlay.NewView()}
	if isVisible || w.beside {
		sn.over, sn.length = s.overlay.View(), s.length
	}
	if s.miscounted {
		sn.length = -1
	}
	sn.settled, sn.logged, sn.storedRV, sn.hint = s.departed.Settled, s.changelog.Log, s.changelog.StoredRV, s.departed.Hint
	sn.gone = s.departed.Gone
	sn.isLeft = !inFile && s.losses == 0
	if m := s.inMemory[w.index]; m != nil && w.at.IsZero() && !s.isLoading() {
		sn.found = m.Find(w.values)
	}
	if w.tickets {
		sn.tickets = s.objects.Tickets()
	}
	return sn, inFile && isVisible, nil
}

func (sn *snapshot) exists(key string) bool {
	if e, ok := sn.over.Get(key); ok {
		return e.Head != nil
	}
	return sn.headers != nil && sn.headers.Get([]byte(key)) != nil
}

// isShort reports whether n differs from the number of objects, for example because a
// damaged page has lost some. It reports false if the number is not known.
func (sn *snapshot) isShort(n int) bool { return sn.length >= 0 && n != sn.length }

// header returns the header of one object, or nil if the object does not exist.
func (s *scopeStore) header(sn *snapshot, key string) (*record.Header, error) {
	if e, ok := sn.over.Get(key); ok {
		return e.Head, nil
	}
	if sn.headers == nil {
		return nil, nil
	}
	b := sn.headers.Get([]byte(key))
	if b == nil {
		return nil, nil
	}
	h, err := s.seal.Header(seal.InScope, key, b)
	if err != nil {
		return nil, s.db.unreadable("header "+key, err)
	}
	return h, nil
}

// raw returns a copy of the stored form of one object.
func (s *scopeStore) raw(sn *snapshot, key string) (store.Entry, bool, error) {
	if e, ok := sn.over.Get(key); ok {
		return s.codec.Pending(e), e.Head != nil, nil
	}
	if sn.objects == nil {
		return store.Entry{}, false, nil
	}
	b := sn.objects.Get([]byte(key))
	if b == nil {
		if sn.headers.Get([]byte(key)) != nil {
			return store.Entry{}, false, s.db.corrupt("object "+key, errors.New("missing"))
		}
		return store.Entry{}, false, nil
	}
	e, err := s.codec.Stored(key, b)
	if err == nil {
		err = s.named(sn, &e)
	}
	return e, err == nil, err
}

// named replaces the file key of an entry by the object's own key.
func (s *scopeStore) named(sn *snapshot, e *store.Entry) error {
	name, err := sn.name(e.Key)
	if err != nil {
		return s.db.corrupt("header "+e.Key, err)
	}
	e.Key = name
	return nil
}

// Encode implements store.Store.
func (s *scopeStore) Encode(obj kruntime.Object) (store.Entry, error) { return s.codec.Encode(obj) }

// EncodedEntry implements store.EncodedTaker.
func (s *scopeStore) EncodedEntry(o *store.EncodedObject) (store.Entry, error) {
	return s.codec.EncodedEntry(o)
}

// Decode implements store.Store.
func (s *scopeStore) Decode(e store.Entry) (kruntime.Object, error) {
	if now, err := s.reader(); err == nil && now != s {
		return s.codec.Decode(e, now.codec)
	}
	return s.codec.Decode(e, nil)
}

// Entry implements store.Store.
func (s *scopeStore) Entry(key string) (e store.Entry, ok bool, err error) {
	if s, err = s.reader(); err != nil {
		return store.Entry{}, false, err
	}
	s.mu.Lock()
	v, decoded := s.objects.Get(record.FileKey(key))
	decoded = decoded && s.phase == phaseReady && !s.db.isClosed()
	s.mu.Unlock()
	if decoded {
		return v.Entry(key), true, nil
	}
	e, _, ok, err = s.rawEntry(record.FileKey(key))
	return e, ok, err
}

// rawEntry returns an entry and the hash of its content. The hash is nil if the header is
// damaged, which does not affect the object.
func (s *scopeStore) rawEntry(key string) (e store.Entry, hash []byte, ok bool, err error) {
	err = s.read("object "+key, func(sn *snapshot) error {
		if e, ok, err = s.raw(sn, key); ok && err == nil {
			hash = sn.hash(key)
		}
		return err
	})
	if err == nil && !ok && s.db.readOnly {
		err = s.verifyStored()
	}
	return e, hash, ok && err == nil, err
}

func (sn *snapshot) hash(key string) []byte {
	if e, ok := sn.over.Get(key); ok {
		return e.Head.Hash
	}
	var view record.HeaderView
	if sn.headers == nil || view.Set(key, sn.headers.Get([]byte(key))) != nil {
		return nil
	}
	return bytes.Clone(view.Hash)
}

// Object implements store.Store. It takes the object from the cache of decoded objects,
// from pending or from the file.
func (s *scopeStore) Object(key string) (kruntime.Object, bool, error) {
	if s.db.isClosed() {
		return nil, false, store.ErrClosed
	}
	s, err := s.reader()
	if err != nil {
		return nil, false, err
	}
	key = record.FileKey(key)
	if s.isReady.Load() {
		if v, ok := s.objects.Get(key); ok {
			s.hits.Add(1)
			obj, err := s.Decode(v.Entry(key))
			return obj, err == nil, err
		}
	}
	s.mu.Lock()
	if err := s.cause; err != nil || s.isLoading() {
		s.mu.Unlock()
		return nil, false, err
	}
	s.misses.Add(1)
	ticket := s.objects.Ticket(key)
	s.mu.Unlock()
	e, hash, ok, err := s.rawEntry(key)
	if err != nil || !ok {
		return nil, false, err
	}
	obj, _, held := s.objects.Held(key, hash)
	if !held {
		if obj, err = s.Decode(e); err != nil {
			return nil, false, err
		}
	}
	s.offer(key, objcache.Value{Object: obj, Encoded: record.RawSize(e.Raw), Hash: hash}, ticket)
	return obj, true, nil
}

// indexKeys returns the sorted file keys of the objects that have a value in a stored
// index. stored is the form of the value in the file.
func (sn *snapshot) indexKeys(name, value, stored string) []string {
	var found []byte // the keys, concatenated
	var ends []int
	if sn.scope != nil {
		if b := layout.Index(sn.scope, name); b != nil {
			prefix := record.IndexPrefix(stored)
			c := b.Cursor()
			for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
				found = append(found, k[len(prefix):]...)
				ends = append(ends, len(found))
			}
		}
	}
	keys := make([]string, 0, len(ends))
	all, begin := string(found), 0
	for _, end := range ends {
		key := all[begin:end]
		if begin = end; !sn.over.Has(key) {
			keys = append(keys, key)
		}
	}
	inFile := len(keys)
	sn.over.ByIndex(name, value, func(e *overlay.Entry) { keys = append(keys, e.Key) })
	if len(keys) > inFile {
		slices.Sort(keys)
	}
	return keys
}

// indexValues returns the sorted distinct values of a stored index.
func (s *scopeStore) indexValues(sn *snapshot, name string) ([]string, error) {
	values := map[string]struct{}{}
	err := s.eachIndexed(sn, name, func(key, value string) {
		if !sn.over.Has(key) {
			values[value] = struct{}{}
		}
	})
	sn.over.Scan(func(e *overlay.Entry) bool {
		if e.Head != nil {
			for _, value := range e.Head.Index[name] {
				values[value] = struct{}{}
			}
		}
		return true
	})
	return sortedKeys(values), err
}

// name returns the own key of the object with a file key.
func (sn *snapshot) name(key string) (string, error) {
	if !record.IsHashed(key) {
		return key, nil
	}
	if e, ok := sn.over.Get(key); ok {
		return e.Name, nil
	}
	if sn.headers == nil {
		return "", fmt.Errorf("header is missing")
	}
	return record.HeaderName(key, sn.headers.Get([]byte(key)))
}
