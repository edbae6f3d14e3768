package bolt

import (
	"errors"
	"iter"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Parts implements store.Relist.
func (r *relist) Parts(rv string) iter.Seq2[store.Batch, error] {
	return func(take func(store.Batch, error) bool) {
		yield := func(b store.Batch, err error) bool {
			r.s.waitForRoom()
			return take(b, err)
		}
		if err := r.check(); err != nil {
			yield(store.Batch{}, err)
			return
		}
		if r.direct {
			if err := r.endLoad(); err != nil {
				yield(store.Batch{}, err)
				return
			}
			yield(store.Batch{RV: rv, Loaded: true}, nil)
			return
		}
		if !r.deletions(yield) || !r.differences(yield) {
			return
		}
		yield(store.Batch{RV: rv}, nil)
	}
}

// deletions yields a deletion for each stored object that was not in the list.
func (r *relist) deletions(yield func(store.Batch, error) bool) bool {
	for after, more := "", true; more; {
		var keys []string
		err := r.s.read("keys", func(sn *snapshot) (err error) {
			if keys, err = sn.Keys(after, 8*partChanges); err != nil {
				err = r.s.db.corrupt("scope "+r.s.scope.String(), err)
			}
			return err
		})
		if err != nil {
			return yield(store.Batch{}, r.giveUp(err)) && false
		}
		more = len(keys) == 8*partChanges
		var b store.Batch
		for _, key := range keys {
			after = key
			if _, kept := r.seen[record.FileKey(key)]; kept {
				continue
			}
			b.Changes = append(b.Changes, store.Change{Key: key})
			if len(b.Changes) == partChanges {
				if !yield(b, nil) {
					return false
				}
				b = store.Batch{}
			}
		}
		if len(b.Changes) > 0 && !yield(b, nil) {
			return false
		}
	}
	return true
}

// differences yields the objects of the list that differ from the stored ones, in key
// order.
func (r *relist) differences(yield func(store.Batch, error) bool) bool {
	var b store.Batch
	bytes := 0
	add := func(e *overlay.Entry) bool {
		c, err := r.change(e)
		if err != nil {
			yield(store.Batch{}, err)
			return false
		}
		b.Changes = append(b.Changes, c)
		if bytes += e.Size(); bytes < partBytes && len(b.Changes) < partChanges {
			return true
		}
		full := b
		b, bytes = store.Batch{}, 0
		return r.replaces(full, yield)
	}
	r.awaitWritten()
	going := true
	for after := ""; r.spilled && going; {
		entries, err := r.stagedInFile(after)
		if err != nil {
			yield(store.Batch{}, r.giveUp(err))
			return false
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			after = e.Key
			if _, newer := r.staged.Get(e.Key); newer || !going {
				continue
			}
			going = add(e)
		}
	}
	if going {
		r.staged.Scan(func(_ string, e *overlay.Entry) bool {
			if e.Head != nil { // else deletions has handled it
				going = add(e)
			}
			return going
		})
	}
	if going && len(b.Changes) > 0 {
		going = r.replaces(b, yield)
	}
	return going
}

func (r *relist) stagedInFile(after string) (entries []*overlay.Entry, err error) {
	err = r.s.db.view("staging", func(tx *bbolt.Tx) error {
		scope := r.s.bucket(tx)
		if scope == nil || scope.Bucket(layout.Staging) == nil {
			return r.s.db.corrupt("staging of "+r.s.scope.String(), errors.New("missing"))
		}
		c := scope.Bucket(layout.Staging).Cursor()
		k, v := c.Seek([]byte(after))
		for n := 0; k != nil && n < partBytes; k, v = c.Next() {
			if string(k) == after {
				continue
			}
			e, err := r.s.decodeStaged(string(k), v)
			if err != nil {
				return r.s.db.corrupt("staged "+string(k), err)
			}
			entries = append(entries, e)
			n += len(v)
		}
		return nil
	})
	return entries, err
}

// change returns the change for a staged entry. The object stays encoded unless every
// object is kept decoded; the receiver decodes it. An entry that was read back from the
// file lacks the values of index functions without an identity, and an entry that was
// staged before an AddIndexes call lacks the values of the added functions: Prepare runs
// the functions again.
func (r *relist) change(e *overlay.Entry) (store.Change, error) {
	c := r.s.codec.Pending(e)
	if r.s.opts.DecodedBytes < 0 {
		obj, err := r.s.Decode(c)
		if err != nil {
			return store.Change{}, err
		}
		c, e.Object = store.Entry{Key: e.Name, Object: obj}, obj
	}
	if e.Indexes == nil && len(r.indexes.Volatile) == 0 {
		e.Indexes = r.indexes // staged entries were made with this set
	}
	return store.Change{Key: e.Name, Object: c.Object, Raw: c.Raw, Prepared: e}, nil
}

// replaces yields a batch of listed objects. Those that take the name of another stored
// object depart.
func (r *relist) replaces(b store.Batch, yield func(store.Batch, error) bool) bool {
	err := r.s.read("headers", func(sn *snapshot) error {
		for i := range b.Changes {
			e := b.Changes[i].Prepared.(*overlay.Entry)
			// A damaged header is overwritten; its UID is not known.
			if h, err := sn.Header(e.Key); err == nil && h != nil {
				b.Changes[i].Departs = h.IsAnother(e.Head)
			}
		}
		return nil
	})
	if err != nil {
		yield(store.Batch{}, err)
		return false
	}
	return yield(b, nil)
}
