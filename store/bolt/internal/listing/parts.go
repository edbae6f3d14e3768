package listing

import (
	"iter"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// partChanges and partBytes bound one batch of Parts.
const (
	partChanges = 256
	partBytes   = 1 << 20
)

// Parts implements store.Relist.
func (l *List) Parts(rv string) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		if err := l.check(); err != nil {
			yield(store.Batch{}, err)
			return
		}
		if l.loads {
			if err := l.loadRest(); err != nil {
				yield(store.Batch{}, err)
				return
			}
			yield(store.Batch{RV: rv, Loaded: true}, nil)
			return
		}
		if !l.deletions(yield) || !l.differences(yield) {
			return
		}
		yield(store.Batch{RV: rv}, nil)
	}
}

// loadRest writes the rest of a first list.
func (l *List) loadRest() error {
	l.awaitWritten()
	if err := l.content.LoadRest(l.staged.Values(), !l.sent); err != nil {
		return err
	}
	l.reset()
	return nil
}

// deletions yields a deletion for each stored object that was not in the list.
func (l *List) deletions(yield func(store.Batch, error) bool) bool {
	for after, more := "", true; more; {
		keys, err := l.content.Keys(after, 8*partChanges)
		if err != nil {
			return yield(store.Batch{}, err) && false
		}
		more = len(keys) == 8*partChanges
		var b store.Batch
		for _, key := range keys {
			after = key
			if l.Listed.Has(record.FileKey(key)) {
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

// differences yields the objects of the list that differ from the stored ones: those that
// were written in key order, then those in memory in key order.
func (l *List) differences(yield func(store.Batch, error) bool) bool {
	var part []*overlay.Entry
	bytes := 0
	end := func() bool {
		changes, err := l.content.Changes(part)
		part, bytes = nil, 0
		if err != nil {
			return yield(store.Batch{}, err) && false
		}
		return yield(store.Batch{Changes: changes}, nil)
	}
	l.awaitWritten()
	for e, err := range l.differing() {
		if err != nil {
			return yield(store.Batch{}, err) && false
		}
		part = append(part, e)
		if bytes += e.Size(); (bytes >= partBytes || len(part) == partChanges) && !end() {
			return false
		}
	}
	return len(part) == 0 || end()
}

// differing returns the entries that differ. An entry in memory is newer than one of its
// key that was written, and one without a header says that the list has lost the key:
// deletions has handled it.
func (l *List) differing() iter.Seq2[*overlay.Entry, error] {
	return func(yield func(*overlay.Entry, error) bool) {
		for after, more := "", l.spilled; more; {
			entries, err := l.content.Staged(after, partBytes)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range entries {
				after = e.Key
				if _, newer := l.staged.Get(e.Key); !newer && !yield(e, nil) {
					return
				}
			}
			more = len(entries) > 0
		}
		l.staged.Scan(func(_ string, e *overlay.Entry) bool { return e.Head == nil || yield(e, nil) })
	}
}
