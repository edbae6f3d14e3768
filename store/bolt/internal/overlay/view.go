package overlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/tidwall/btree"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/record"
)

// View is what was applied and is not in the file, as of one moment.
type View struct {
	entries *btree.Map[string, *Entry]
	indexed *btree.Map[string, *Entry] // the same by index value
}

// NewView returns a view of nothing.
func NewView() View {
	return View{entries: &btree.Map[string, *Entry]{}, indexed: &btree.Map[string, *Entry]{}}
}

// Get returns the entry of a key.
func (v View) Get(key string) (*Entry, bool) { return v.entries.Get(key) }

// Has reports whether a key has an entry.
func (v View) Has(key string) bool {
	_, ok := v.entries.Get(key)
	return ok
}

// Len returns the number of entries.
func (v View) Len() int { return v.entries.Len() }

// All returns the entries in key order.
func (v View) All() []*Entry { return v.entries.Values() }

// Scan calls fn with the entries in key order, until it returns false.
func (v View) Scan(fn func(e *Entry) bool) {
	v.entries.Scan(func(_ string, e *Entry) bool { return fn(e) })
}

// ByIndex calls fn with the entries that have a value in a stored index, in key order.
func (v View) ByIndex(name, value string, fn func(e *Entry)) {
	prefix := indexPrefix(name, value)
	v.indexed.Ascend(prefix, func(k string, e *Entry) bool {
		if !strings.HasPrefix(k, prefix) {
			return false
		}
		fn(e)
		return true
	})
}

// Put makes an entry the state of its key. It returns the one before, nil if there is
// none. The view must not be shared.
func (v View) Put(e *Entry) (old *Entry) {
	if old, _ = v.entries.Set(e.Key, e); old != nil {
		v.index(old, false)
	}
	v.index(e, true)
	return old
}

func (v View) index(e *Entry, is bool) {
	if e.Head == nil {
		return
	}
	for name, values := range e.Head.Index {
		for _, value := range values {
			if k := indexPrefix(name, value) + e.Key; is {
				v.indexed.Set(k, e)
			} else {
				v.indexed.Delete(k)
			}
		}
	}
}

// indexPrefix returns the prefix of the keys in view.indexed for a value of a stored
// index. No prefix is the beginning of another.
func indexPrefix(name, value string) string {
	b := binary.AppendUvarint(nil, uint64(len(name)))
	return string(record.AppendIndexPrefix(append(b, name...), []byte(value)))
}

// Merge calls fn in key order with every file key after the given one, until fn returns
// false. It passes the entry if there is one, else the value in the bucket, which may be
// nil. It returns an error if the keys do not ascend: on damaged pages bbolt reports
// nothing and may visit one page twice and another not at all.
func (v View) Merge(bucket *bbolt.Bucket, after string, fn func(key string, e *Entry, value []byte) bool) error {
	pending := v.entries.Iter()
	more := pending.Seek(after)
	if more && pending.Key() == after {
		more = pending.Next()
	}
	var c *bbolt.Cursor
	var k, in []byte
	if bucket != nil {
		c = bucket.Cursor()
		if k, in = c.Seek([]byte(after)); k != nil && after != "" && bytes.Equal(k, []byte(after)) {
			k, in = c.Next()
		}
	}
	last := after
	for more || k != nil {
		if k != nil && last != "" && string(k) <= last {
			return errOrder
		}
		if more && (k == nil || pending.Key() <= string(k)) {
			key, e := pending.Key(), pending.Value()
			if k != nil && key == string(k) {
				k, in = c.Next()
			}
			more = pending.Next()
			if last = key; e.Head != nil && !fn(key, e, nil) {
				return nil
			}
			continue
		}
		if last = string(k); !fn(last, nil, in) {
			return nil
		}
		k, in = c.Next()
	}
	return nil
}

var errOrder = errors.New("keys are out of order")
