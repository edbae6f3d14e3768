package bolt

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/informctl/informctl/store/bolt/internal/record"
)

// overlay is what was applied and is not in the file.
type overlay struct {
	pending      *btree.Map[string, *entry]
	indexed      *btree.Map[string, *entry] // the same by index value
	pendingBytes int
	all          *atomic.Int64 // the pending bytes of all scopes
}

// set makes an entry the newest state of its key.
func (o *overlay) set(e *entry) {
	if old, replaced := o.pending.Set(e.key, e); replaced {
		o.add(-old.size())
		o.index(old, false)
	}
	o.add(e.size())
	o.index(e, true)
}

// drop removes an entry that is its key's newest state.
func (o *overlay) drop(e *entry) {
	o.pending.Delete(e.key)
	o.add(-e.size())
	o.index(e, false)
}

// committed removes the written entries that have not changed since.
func (o *overlay) committed(c capture) {
	c.pending.Scan(func(key string, e *entry) bool {
		switch now, ok := o.pending.Get(key); {
		case ok && now == e:
			o.drop(e)
		case ok && e.departs != 0 && now.departs == e.departs: // it has departed
			changed := *now
			changed.departs, changed.before, changed.last = 0, nil, packed{}
			o.set(&changed)
		}
		return true
	})
}

func (o *overlay) forget() {
	o.add(-o.pendingBytes)
	o.pending, o.indexed = &btree.Map[string, *entry]{}, &btree.Map[string, *entry]{}
}

func (o *overlay) lost(loss) { o.forget() }

func (o *overlay) index(e *entry, is bool) {
	if e.head == nil {
		return
	}
	for name, values := range e.head.Index {
		for _, value := range values {
			if k := pendingIndexPrefix(name, value) + e.key; is {
				o.indexed.Set(k, e)
			} else {
				o.indexed.Delete(k)
			}
		}
	}
}

// pendingIndexPrefix returns the prefix of the keys in overlay.indexed for a value of a
// stored index. No prefix is the beginning of another.
func pendingIndexPrefix(name, value string) string {
	b := binary.AppendUvarint(nil, uint64(len(name)))
	return string(record.AppendIndexPrefix(append(b, name...), []byte(value)))
}

// add adds n bytes, which may be negative.
func (o *overlay) add(n int) {
	o.pendingBytes += n
	o.all.Add(int64(n))
}
