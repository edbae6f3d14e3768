package mem

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"sort"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// lease is an opened scope. It implements store.Store for this backend.
type lease struct {
	db    *DB
	id    string
	scope store.Scope
	codec codec.Codec  // only used to check Go types; may be nil
	takes atomic.Value // reflect.Type: a type that codec has accepted

	// write protects closed and relist, and serializes changes of state.
	write  sync.Mutex
	closed bool
	relist *relist // the relist that is not closed, or nil

	state atomic.Pointer[state] // written under write, read without a lock
}

var _ store.Store = (*lease)(nil)

// emptyState is the state that reads use after the database was closed.
var emptyState = newState(nil, "database is closed")

// view returns the state to read from. If it returns an error, the state is empty.
func (s *lease) view() (*state, error) {
	if s.db.closed.Load() {
		return emptyState, store.ErrClosed
	}
	return s.state.Load(), nil
}

// checkLocked returns ErrClosed if the lease or the database is closed.
func (s *lease) checkLocked() error {
	if s.closed || s.db.closed.Load() {
		return store.ErrClosed
	}
	return nil
}

// update calls change with a copy of the current state and publishes the copy, unless
// change returns an error. What it has changed is noted in the log after that: who reads
// the log finds the state that it tells of.
func (s *lease) update(change func(next *state) error) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.checkLocked(); err != nil {
		return err
	}
	next := s.state.Load().copy()
	if err := change(next); err != nil {
		return err
	}
	note := next.note
	next.note = nil
	s.state.Store(next)
	if note != nil {
		note()
	}
	return nil
}

// prepared is the type of Change.Prepared. The values of the item are stored by index
// position, so only the lease that created it can use it.
type prepared struct {
	lease *lease
	item  *item
}

// Prepare computes keys and index values.
func (s *lease) Prepare(b *store.Batch) error {
	var errs []error
	kept := b.Changes[:0]
	for _, c := range b.Changes {
		it, err := s.itemOf(c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if it != nil {
			c.Key, c.Prepared = it.key, prepared{lease: s, item: it}
		}
		kept = append(kept, c)
	}
	clear(b.Changes[len(kept):])
	b.Changes = kept
	return errors.Join(errs...)
}

// itemOf returns the item of a change: the prepared one if there is one, with the values
// of indexes that were added since, nil for a deletion.
func (s *lease) itemOf(c store.Change) (*item, error) {
	if p, ok := c.Prepared.(prepared); ok && p.lease == s {
		return s.state.Load().extend(p.item)
	}
	if c.Object != nil {
		return s.newItem(c.Key, c.Object)
	}
	if c.Raw != nil {
		object, err := s.Decode(c.Entry())
		if err != nil {
			return nil, &store.ObjectError{Key: c.Key, Err: err}
		}
		return s.newItem(c.Key, object)
	}
	if c.Key == "" {
		return nil, &store.ObjectError{Err: errors.New("deletion without a key")}
	}
	return nil, nil
}

// newItem checks an object and calls the index functions. It computes the key if key is
// empty. Its error is an *ObjectError.
func (s *lease) newItem(key string, object runtime.Object) (*item, error) {
	if key == "" {
		var err error
		if key, err = store.KeyOf(cache.MetaNamespaceKeyFunc, object); err != nil {
			return nil, err
		}
	}
	if err := s.checkType(object); err != nil {
		return nil, &store.ObjectError{Key: key, Err: err}
	}
	st := s.state.Load()
	return st.extend(&item{key: key, object: object, values: make([][]string, 0, len(st.inverted))})
}

// checkType calls the codec once per Go type, so that a scope refuses the same objects as
// a backend that encodes them.
func (s *lease) checkType(object runtime.Object) error {
	if s.codec == nil {
		return errors.New("store was opened without a codec")
	}
	t := reflect.TypeOf(object)
	if s.takes.Load() == t {
		return nil
	}
	if _, err := s.codec.Encode(object); err != nil {
		return err
	}
	s.takes.Store(t)
	return nil
}

// Before returns what the scope holds under the keys.
func (s *lease) Before(keys []string) (store.Before, error) { return store.BeforeOf(s, keys) }

// Apply makes a batch visible. It blocks only for other writers.
func (s *lease) Apply(b store.Batch) error {
	items := make([]*item, len(b.Changes))
	for i, c := range b.Changes {
		var err error
		if items[i], err = s.itemOf(c); err != nil {
			return err
		}
	}
	var ends *relist // whose objects are applied, unless an index refuses one
	return s.update(func(next *state) error {
		if r := s.relist; r != nil && r.endsWithLocked(b) {
			next.clear()
			items, ends = r.loaded(), r
			next.listed, b.Loaded = true, true
		}
		var changes []store.Event
		notes := next.recent.IsOn() && !b.Loaded
		for i, it := range items {
			if notes {
				e, err := next.event(b.Changes[i], it)
				if err != nil {
					return err
				}
				if e.Old == nil || it == nil || !equal(e.Old.Entry.Object, it.object) {
					changes = append(changes, e)
				}
			}
			if i < len(b.Changes) && b.Changes[i].Departs {
				next.depart(b.Changes[i], it)
			}
			if it == nil {
				next.delete(b.Changes[i].Key)
				continue
			}
			it, err := next.extend(it)
			if err != nil {
				return err
			}
			next.set(it)
		}
		switch {
		case s.relist != nil && s.relist.first && !next.listed: // nothing is complete yet
		case b.RV != "":
			next.complete(b)
		case b.Reason != "":
			next.checkpoint = b.Checkpoint(next.checkpoint)
		}
		if ends != nil {
			ends.ready = false
		}
		rv := next.checkpoint.RV
		next.note = func() { next.recent.Note(b, changes, rv) }
		return nil
	})
}

// Invalidate sets a checkpoint without an RV. It blocks only for other writers.
func (s *lease) Invalidate(_ context.Context, reason string) error {
	if reason == "" {
		reason = "invalidated"
	}
	return s.update(func(next *state) error {
		b := store.Batch{Reason: reason}
		next.checkpoint = b.Checkpoint(next.checkpoint)
		next.note = func() { next.recent.Note(b, nil, "") }
		return nil
	})
}

var _ store.PartSettler = (*lease)(nil)

// Departed returns the departed objects.
func (s *lease) Departed(after uint64, limit int) ([]store.Departed, error) {
	st, err := s.view()
	if err != nil {
		return nil, err
	}
	objects := st.departed.objects
	i := sort.Search(len(objects), func(i int) bool { return objects[i].Number > after })
	objects = objects[i:]
	return objects[:min(limit, len(objects))], nil
}

// Settle records that every handler has received the departed objects.
func (s *lease) Settle() { s.SettleUpTo(math.MaxUint64) }

// LastDeparted returns the number of the last object that has departed.
func (s *lease) LastDeparted() uint64 {
	st, _ := s.view()
	return st.departed.last
}

// SettleUpTo records that every handler has received the departed objects up to a number.
// It also does after Close, until the scope is opened again.
func (s *lease) SettleUpTo(number uint64) {
	settle := func(next *state) error {
		next.departed.told = min(number, next.departed.last)
		return nil
	}
	if err := s.update(settle); err != nil { // closed
		s.db.settleClosed(s, settle)
	}
}

// Unsettle undoes Settle. The objects that were settled before the lease are not kept.
func (s *lease) Unsettle() { s.SettleUpTo(0) }

// Compares returns false: what a lease cannot use is dropped.
func (s *lease) Compares() bool { return false }

// Departures counts the departed objects.
func (s *lease) Departures() (kept, dropped int) {
	st, _ := s.view()
	return len(st.departed.objects), st.departed.dropped
}

// Checkpoint returns the resource version that the objects are complete up to.
func (s *lease) Checkpoint() store.Checkpoint {
	st, _ := s.view()
	return st.checkpoint
}

// Flush does nothing. It returns store.ErrClosed after Close of the backend.
func (s *lease) Flush(context.Context) error {
	_, err := s.view()
	return err
}

// Len returns the number of objects.
func (s *lease) Len() int {
	st, _ := s.view()
	return st.objects.Len()
}

// Encode implements store.Store. Its callers keep the entry elsewhere; the store itself
// does not encode objects. Without a codec the entry contains the object.
func (s *lease) Encode(obj runtime.Object) (store.Entry, error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil || s.codec == nil {
		return store.Entry{Key: key, Object: obj}, err
	}
	// Encoding may write to the object, see store.Store.
	raw, err := s.codec.Encode(obj.DeepCopyObject())
	if err != nil {
		return store.Entry{}, &store.ObjectError{Key: key, Err: err}
	}
	return store.Entry{Key: key, Raw: raw}, nil
}

// Decode returns the entry's object.
func (s *lease) Decode(e store.Entry) (runtime.Object, error) {
	switch {
	case e.Object != nil:
		return e.Object, nil
	case e.Raw == nil || s.codec == nil:
		return nil, fmt.Errorf("decode %q: entry has no object", e.Key)
	}
	obj, err := s.codec.Decode(e.Raw)
	if err != nil {
		return nil, fmt.Errorf("decode %q: %w", e.Key, err)
	}
	return obj, nil
}

// Compare compares complete objects.
func (s *lease) Compare(obj runtime.Object) (held store.Header, same bool, err error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return held, false, err
	}
	if err := s.checkType(obj); err != nil && s.codec != nil {
		return held, false, &store.ObjectError{Key: key, Err: err}
	}
	st, err := s.view()
	it, ok := st.objects.Get(key)
	if !ok {
		return held, false, err
	}
	held, err = store.HeaderOf(it.object)
	if err != nil || s.codec == nil {
		return held, false, err
	}
	same, err = s.scope.SameButKind(obj, func() (bool, error) { return equal(it.object, obj), nil })
	return held, same, err
}

// All yields every object in key order.
func (s *lease) All() iter.Seq2[runtime.Object, error] { return store.AllOf(s) }

// HeadersOf returns the headers of those keys that exist.
func (s *lease) HeadersOf(keys []string) ([]store.Header, error) {
	v, err := s.view()
	if err != nil {
		return nil, err
	}
	headers := make([]store.Header, 0, len(keys))
	for _, key := range keys {
		it, ok := v.objects.Get(key)
		if !ok {
			continue
		}
		h, err := store.HeaderOf(it.object)
		if err != nil {
			return nil, err
		}
		headers = append(headers, h)
	}
	return headers, nil
}

// Close ends the lease. The store continues to show its last state, even if a later lease
// changes the scope.
func (s *lease) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed {
		return nil
	}
	s.closed, s.relist = true, nil
	s.db.release(s, s.state.Load())
	return nil
}
