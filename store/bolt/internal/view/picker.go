package view

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	bbolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Picker collects the entries that a Query selects from one snapshot. It matches labels
// inside the transaction, because the matching records must be of the same moment as
// their headers, and because copying all records takes longer than reading all headers.
// The Matcher is not user code.
type Picker struct {
	// Entries are what was found. Hashes has the hash of the content of those that the
	// cache does not have, else nil.
	Entries []store.Entry
	Hashes  [][]byte

	cache    *objcache.Cache
	find     Finder // nil: all keys are looked at
	sn       *Snapshot
	after    string
	prefix   string
	limit    int
	encoded  bool // Entries are not those of the cache
	matcher  labels.Selector
	keysOnly bool // Entries contain only keys
	view     record.HeaderView
	records  []found // of the entries whose records are to be copied out of the file
	objects  walker
}

// NewPicker returns a Picker for a query. find has the keys of the values of its index;
// it is nil if there is no index to ask.
func NewPicker(q store.Query, cache *objcache.Cache, find Finder) *Picker {
	after, prefix := q.Range()
	p := &Picker{cache: cache, find: find, limit: q.Limit, encoded: q.Encoded, matcher: q.Matcher(), after: record.FileKey(after), prefix: prefix}
	switch {
	case q.Keys != nil && find != nil:
		p.find = find.among(q.Keys)
	case q.Keys != nil:
		p.find = byKeys(q.Keys)
	}
	return p
}

// SelectsAll reports whether the Picker leaves out nothing of what its Finder finds, or
// of all keys.
func (p *Picker) SelectsAll() bool {
	return p.matcher.Empty() && p.after == "" && p.prefix == "" && p.limit <= 0
}

// Select collects the entries.
func (p *Picker) Select(sn *Snapshot) error {
	if sn.Objects != nil {
		p.objects.Cursor = sn.Objects.Cursor()
	}
	if err := p.pick(sn); err != nil {
		return err
	}
	return p.copyOut()
}

// Keys returns only the keys.
func (p *Picker) Keys(sn *Snapshot) ([]string, error) {
	p.keysOnly = true
	if err := p.pick(sn); err != nil {
		return nil, err
	}
	keys := make([]string, len(p.Entries))
	for i, e := range p.Entries {
		keys[i] = e.Key
	}
	return keys, nil
}

func (p *Picker) pick(sn *Snapshot) error {
	p.sn = sn
	switch {
	case labels.MatchesNothing(p.matcher):
		return nil
	case p.find != nil:
		return p.byIndex()
	}
	return p.all()
}

// found is a record in the file's memory, with its file key and the position of its
// entry.
type found struct {
	entry  int
	key    string
	record []byte
}

// Finder returns the file keys of some values of one index, in order. nil: there is no
// index to ask.
type Finder func(*Snapshot) ([]string, error)

// byKeys returns those of the keys that exist.
func byKeys(names []string) Finder {
	return func(sn *Snapshot) ([]string, error) {
		keys := make([]string, 0, len(names))
		for _, name := range names {
			if key := record.FileKey(name); sn.Exists(key) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return slices.Compact(keys), nil
	}
}

// among returns a Finder of what f finds among the keys.
func (f Finder) among(names []string) Finder {
	return func(sn *Snapshot) ([]string, error) {
		some, _ := byKeys(names)(sn)
		found, err := f(sn)
		return slices.DeleteFunc(slices.Clone(found), func(key string) bool {
			_, ok := slices.BinarySearch(some, key)
			return !ok
		}), err
	}
}

func (p *Picker) all() (err error) {
	n := 0
	order := p.sn.Overlay.Merge(p.sn.Headers, p.after, func(key string, pending *overlay.Entry, header []byte) (more bool) {
		n++
		more, err = p.take(key, pending, header)
		return more
	})
	if order == nil && p.sn.isShort(n) && p.after == "" && p.prefix == "" && p.limit <= 0 && p.sn.Headers != nil {
		order = fmt.Errorf("%d headers instead of %d", n, p.sn.Length)
	}
	if err == nil && order != nil {
		err = p.sn.Codec.Corrupt("scope "+p.sn.Codec.Scope.String(), order)
	}
	return err
}

func (p *Picker) byIndex() error {
	keys, err := p.find(p.sn)
	for more := true; err == nil && more && len(keys) > 0; keys = keys[1:] {
		if keys[0] <= p.after {
			continue
		}
		pending, ok := p.sn.Overlay.Get(keys[0])
		var header []byte
		if !ok && p.sn.Headers != nil {
			header = p.sn.Headers.Get([]byte(keys[0]))
		}
		more, err = p.take(keys[0], pending, header)
	}
	return err
}

// take adds the entry of a key if its labels match. header is used if the key is not
// pending.
func (p *Picker) take(key string, pending *overlay.Entry, header []byte) (more bool, err error) {
	if !strings.HasPrefix(key, p.prefix) {
		return false, nil
	}
	var set labels.Labels
	var hash []byte
	if pending != nil && pending.Head != nil {
		set, hash = labels.Set(pending.Head.Labels), pending.Head.Hash
	} else {
		if err := p.view.Set(key, header); err != nil {
			return false, p.sn.Codec.Corrupt("header "+key, err)
		}
		set, hash = &p.view, p.view.Hash
		if p.sn.Codec.Seal != nil && !p.matcher.Empty() {
			h, err := p.sn.Codec.Seal.Header(seal.InScope, key, header)
			if err != nil {
				return false, p.sn.Codec.Unreadable("header "+key, err)
			}
			set = labels.Set(h.Labels)
		}
	}
	if !p.matcher.Matches(set) {
		return true, nil
	}
	name, err := p.sn.name(key)
	if err != nil {
		return false, p.sn.Codec.Corrupt("header "+key, err)
	}
	if p.keysOnly {
		p.Entries = append(p.Entries, store.Entry{Key: name})
		return p.limit <= 0 || len(p.Entries) < p.limit, nil
	}
	e, isCached := p.entry(key, name, pending, hash)
	p.Entries, p.Hashes = append(p.Entries, e), append(p.Hashes, nil)
	if !isCached {
		p.Hashes[len(p.Hashes)-1] = bytes.Clone(hash)
	}
	return p.limit <= 0 || len(p.Entries) < p.limit, nil
}

// entry returns the entry of a key with its decoded object, if the cache has the object
// with the content of the snapshot; the cache may be newer. Otherwise, or if the query
// asks for encoded objects, it returns the pending state. For an object that only the
// file contains, copyOut sets Raw later. isCached reports whether keep has nothing to do
// for it.
func (p *Picker) entry(key, name string, pending *overlay.Entry, hash []byte) (e store.Entry, isCached bool) {
	if !p.encoded {
		if v, ok := p.cache.Peek(key); ok && bytes.Equal(v.Hash, hash) {
			e = v.Entry(name)
			return e, e.Object != nil
		}
		if obj, _, ok := p.cache.Held(key, hash); ok {
			return store.Entry{Key: name, Object: obj}, false
		}
	}
	if pending != nil {
		e = p.sn.Codec.Pending(pending)
		return e, e.Object != nil
	}
	p.records = append(p.records, found{len(p.Entries), key, p.objects.get(key)})
	return store.Entry{Key: name}, false
}

// copied is the number of bytes of records that are copied into one allocation.
const copied = 1 << 20

// copyOut copies the found records on all cores, because freed pages are not reused while
// the transaction is open, and 50,000 pods are 125 MB.
func (p *Picker) copyOut() error {
	var parts [][]found
	size := 0
	for i, r := range p.records {
		if size == 0 || size+len(r.record) > copied {
			parts, size = append(parts, p.records[i:i]), 0
		}
		last := &parts[len(parts)-1]
		*last, size = (*last)[:len(*last)+1], size+len(r.record)
	}
	return parallel.Do(len(parts), func(i int) error {
		return pagefile.Guard(p.sn.Path, "objects", func() error { return p.copyPart(parts[i]) })
	})
}

func (p *Picker) copyPart(records []found) error {
	size := 0
	for _, r := range records {
		size += len(r.record)
	}
	buf := make([]byte, 0, size) // a record is longer than its raw form
	for _, r := range records {
		e := &p.Entries[r.entry]
		if r.record == nil {
			return p.sn.Codec.Corrupt("object "+e.Key, errors.New("missing"))
		}
		raw, err := p.sn.Codec.AppendRaw(buf, r.key, r.record)
		if err != nil {
			return err
		}
		e.Raw, buf = raw, buf[:len(buf)+len(raw)]
	}
	return nil
}

// walker gets values from a bucket by keys that are mostly consecutive.
type walker struct {
	*bbolt.Cursor
	key, value []byte
}

// get returns nil if the key does not exist.
func (w *walker) get(key string) []byte {
	if w.Cursor == nil {
		return nil
	}
	if w.key != nil {
		w.key, w.value = w.Next()
	}
	if string(w.key) != key {
		w.key, w.value = w.Seek([]byte(key))
	}
	if string(w.key) != key {
		return nil
	}
	return w.value
}
