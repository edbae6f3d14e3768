package bolt

import (
	"errors"

	bbolt "go.etcd.io/bbolt"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/objcodec"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

// snapshot is the scope at one moment: the file and, merged over it, the pending entries.
type snapshot struct {
	view.Snapshot
	s            *scopeStore
	settled      uint64 // the last departed object that was delivered
	hint         graveyard.Hint
	gone         []*overlay.Entry // see departures
	logged       record.LogState  // as of the last acknowledged commit
	storedRV     string           // of the checkpoint then
	isLeft       bool             // what is in the file is of an earlier process
	left, former *bbolt.Bucket    // see want; nil if there is none
}

// want is what a snapshot has beside the file and the pending entries.
type want struct {
	loaded bool // what a first list has written so far, and what was applied beside it
	beside bool // only what was applied beside a first list, while there is one
	// snapshot.Found: the keys of values, if the index is in memory
	index   string
	values  []string     // of index
	tickets bool         // snapshot.Tickets: of the cache of decoded objects
	at      store.Place  // another moment than now, if it is not zero
	also    func(*state) // is called at the moment of the snapshot
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
			if sn.Scope = s.bucketIn(tx); sn.Scope != nil {
				sn.Headers, sn.Objects = sn.Scope.Bucket(layout.Headers), sn.Scope.Bucket(layout.Objects)
			}
			if sn.Headers == nil || sn.Objects == nil {
				return s.db.corrupt("scope "+s.scope.String(), errors.New("headers or objects are missing"))
			}
		}
		if w.left {
			sn.findLeft(tx)
		}
		if !w.at.IsZero() {
			if err := sn.rewind(w); err != nil {
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
	sn = &snapshot{s: s, Snapshot: view.Snapshot{Codec: s.codec, Path: s.db.path, Overlay: overlay.NewView()}}
	if isVisible || w.beside {
		sn.Overlay, sn.Length = s.overlay.View(), s.length
	}
	if s.miscounted {
		sn.Length = -1
	}
	sn.settled, sn.logged, sn.storedRV, sn.hint = s.departed.Settled, s.changelog.Log, s.changelog.StoredRV, s.departed.Hint
	sn.gone = s.departed.Gone
	sn.isLeft = !inFile && s.losses == 0
	if m := s.inMemory[w.index]; m != nil && w.at.IsZero() && !s.isLoading() {
		sn.Found = m.Find(w.values)
	}
	if w.also != nil {
		w.also(&s.state)
	}
	if w.tickets {
		sn.Tickets = s.objects.Tickets()
	}
	return sn, inFile && isVisible, nil
}

// Encode implements store.Store.
func (s *scopeStore) Encode(obj kruntime.Object) (store.Entry, error) { return s.codec.Encode(obj) }

// EncodedEntry implements store.EncodedTaker.
func (s *scopeStore) EncodedEntry(o *store.EncodedObject) (store.Entry, error) {
	return s.codec.EncodedEntry(o)
}

// Decode implements store.Store.
func (s *scopeStore) Decode(e store.Entry) (kruntime.Object, error) {
	return s.codec.Decode(e, s.laterCodec())
}

// laterCodec returns the codec of the store that answers the reads of s after Close, nil
// if that is s.
func (s *scopeStore) laterCodec() *objcodec.Codec {
	if now, err := s.reader(); err == nil && now != s {
		return now.codec
	}
	return nil
}

// AppendPayload implements store.Payloader.
func (s *scopeStore) AppendPayload(buf []byte, e store.Entry) ([]byte, byte, error) {
	return s.codec.AppendPayload(buf, e, s.laterCodec())
}

// PayloadSize implements store.Payloader.
func (s *scopeStore) PayloadSize(e store.Entry) (int, byte, error) {
	return s.codec.PayloadSize(e, s.laterCodec())
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
		if e, ok, err = sn.Raw(key); ok && err == nil {
			hash = sn.Hash(key)
		}
		return err
	})
	if err == nil && !ok {
		err = s.checks.stored()
	}
	return e, hash, ok && err == nil, err
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
			if obj, ok := v.Decoded(); ok {
				return obj, true, nil
			}
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
