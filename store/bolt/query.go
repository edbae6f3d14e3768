package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	bbolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// picker collects the entries that a Query selects from one snapshot. It matches labels
// inside the transaction, because the matching records must be of the same moment as
// their headers, and because copying all records takes longer than reading all headers.
// The Matcher is not user code.
type picker struct {
	s        *scopeStore
	sn       *snapshot
	after    string
	prefix   string
	limit    int
	matcher  labels.Selector
	keeps    bool // objects that are decoded for the query are cached
	keysOnly bool // entries contain only keys: see keys
	view     record.HeaderView
	entries  []store.Entry
	hashes   [][]byte // of the entries that the cache does not have
	records  []found  // of the entries whose records are to be copied out of the file
	objects  walker
}

// found is a record in the file's memory, with its file key and the position of its
// entry.
type found struct {
	entry  int
	key    string
	record []byte
}

// Select implements store.Store.
func (s *scopeStore) Select(q store.Query) ([]store.Entry, error) {
	s, err := s.reader()
	if err != nil {
		return nil, err
	}
	q.Selector = q.Matcher() // convert the selector only once
	if entries, ok := s.selectDecoded(q); ok {
		return entries, nil
	}
	name, values := s.narrowest(q)
	return s.pick(q, name, values, s.opts.DecodedBytes < 0 && q.At.IsZero())
}

// narrowest returns the index by which a query is answered, and the values in it; "" if
// all keys have to be looked at.
func (s *scopeStore) narrowest(q store.Query) (name string, values []string) {
	if q.Index == "" && q.Namespace == "" && q.Keys == nil && q.Limit <= 0 && q.At.IsZero() {
		return s.labelIndex(q.Selector)
	}
	return q.Index, q.Values
}

// labelIndex returns a stored index and the values in it that contain everything that a
// selector can match. It returns "" if there is no such index.
func (s *scopeStore) labelIndex(matcher labels.Selector) (name string, values []string) {
	s.mu.Lock()
	stored := s.indexes.Stored
	s.mu.Unlock()
	requirements, _ := matcher.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			idx := index.Label(r.Key())
			if there, ok := stored[idx.Name]; ok && there.Identity() == idx.Identity() {
				return idx.Name, r.ValuesUnsorted()
			}
		}
	}
	return "", nil
}

// pick answers a query by values of the named index, or by all keys if the name is "".
// keep is set if the caller will decode the whole answer: pick then decodes it and caches
// it, if all of it fits into the budget. A larger answer would only evict objects that
// other readers use.
func (s *scopeStore) pick(q store.Query, indexName string, values []string, keep bool) ([]store.Entry, error) {
	p, find, err := s.newPicker(q, indexName, values)
	if err != nil {
		return nil, err
	}
	p.keeps = keep
	if s.db.readOnly {
		// A missing entry has no checksum that could fail.
		if err := errors.Join(s.whyIncomplete(), s.verifyStored()); err != nil {
			return nil, err
		}
	}
	w := want{index: indexName, values: values, tickets: keep, at: q.At}
	err = s.readAs("objects", w, func(sn *snapshot) error {
		if sn.objects != nil {
			p.objects.Cursor = sn.objects.Cursor()
		}
		if err := p.find(sn, find); err != nil {
			return err
		}
		return p.copyOut()
	})
	if err == nil && q.At.IsZero() {
		s.objects.Lend(p.entries, p.hashes)
	}
	if err == nil && p.keeps && s.objects.Fits(p.entries) {
		err = p.keep()
	}
	if err != nil {
		return nil, err
	}
	return p.entries, nil
}

// newPicker returns a picker for a query by values of the named index, or by all keys if
// the name is "".
func (s *scopeStore) newPicker(q store.Query, indexName string, values []string) (p *picker, find finder, err error) {
	after, prefix := q.Range()
	p = &picker{s: s, limit: q.Limit, matcher: q.Matcher(), after: record.FileKey(after), prefix: prefix}
	switch {
	case indexName != "":
		if find, err = s.finder(indexName, values, !q.At.IsZero()); q.Keys != nil {
			find = find.among(q.Keys)
		}
	case q.Keys != nil:
		find = byKeys(q.Keys)
	}
	return p, find, err
}

// byKeys returns those of the keys that exist.
func byKeys(names []string) finder {
	return func(sn *snapshot) ([]string, error) {
		keys := make([]string, 0, len(names))
		for _, name := range names {
			if key := record.FileKey(name); sn.exists(key) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return slices.Compact(keys), nil
	}
}

// among returns a finder of what f finds among the keys.
func (f finder) among(names []string) finder {
	return func(sn *snapshot) ([]string, error) {
		some, _ := byKeys(names)(sn)
		found, err := f(sn)
		return slices.DeleteFunc(slices.Clone(found), func(key string) bool {
			_, ok := slices.BinarySearch(some, key)
			return !ok
		}), err
	}
}

// find collects the entries.
func (p *picker) find(sn *snapshot, find finder) error {
	p.sn = sn
	switch {
	case labels.MatchesNothing(p.matcher):
		return nil
	case find != nil:
		return p.byIndex(find)
	}
	return p.all()
}

// keys returns only the keys.
func (p *picker) keys(sn *snapshot, find finder) ([]string, error) {
	p.keysOnly = true
	if err := p.find(sn, find); err != nil {
		return nil, err
	}
	keys := make([]string, len(p.entries))
	for i, e := range p.entries {
		keys[i] = e.Key
	}
	return keys, nil
}

func (p *picker) all() (err error) {
	n := 0
	order := p.sn.over.Merge(p.sn.headers, p.after, func(key string, pending *overlay.Entry, header []byte) (more bool) {
		n++
		more, err = p.take(key, pending, header)
		return more
	})
	if order == nil && p.sn.isShort(n) && p.after == "" && p.prefix == "" && p.limit <= 0 && p.sn.headers != nil {
		order = fmt.Errorf("%d headers instead of %d", n, p.sn.length)
	}
	if err == nil && order != nil {
		err = p.s.db.corrupt("scope "+p.s.scope.String(), order)
	}
	return err
}

func (p *picker) byIndex(find finder) error {
	keys, err := find(p.sn)
	for more := true; err == nil && more && len(keys) > 0; keys = keys[1:] {
		if keys[0] <= p.after {
			continue
		}
		pending, ok := p.sn.over.Get(keys[0])
		var header []byte
		if !ok && p.sn.headers != nil {
			header = p.sn.headers.Get([]byte(keys[0]))
		}
		more, err = p.take(keys[0], pending, header)
	}
	return err
}

// take adds the entry of a key if its labels match. header is used if the key is not
// pending.
func (p *picker) take(key string, pending *overlay.Entry, header []byte) (more bool, err error) {
	if !strings.HasPrefix(key, p.prefix) {
		return false, nil
	}
	var set labels.Labels
	var hash []byte
	if pending != nil && pending.Head != nil {
		set, hash = labels.Set(pending.Head.Labels), pending.Head.Hash
	} else {
		if err := p.view.Set(key, header); err != nil {
			return false, p.s.db.corrupt("header "+key, err)
		}
		set, hash = &p.view, p.view.Hash
		if p.s.seal != nil && !p.matcher.Empty() {
			h, err := p.s.seal.Header(seal.InScope, key, header)
			if err != nil {
				return false, p.s.db.unreadable("header "+key, err)
			}
			set = labels.Set(h.Labels)
		}
	}
	if !p.matcher.Matches(set) {
		return true, nil
	}
	name, err := p.sn.name(key)
	if err != nil {
		return false, p.s.db.corrupt("header "+key, err)
	}
	if p.keysOnly {
		p.entries = append(p.entries, store.Entry{Key: name})
		return p.limit <= 0 || len(p.entries) < p.limit, nil
	}
	e, isCached := p.entry(key, name, pending, hash)
	p.entries, p.hashes = append(p.entries, e), append(p.hashes, nil)
	if !isCached {
		p.hashes[len(p.hashes)-1] = bytes.Clone(hash)
	}
	return p.limit <= 0 || len(p.entries) < p.limit, nil
}

// entry returns the entry of a key with its decoded object, if the cache has the object
// with the content of the snapshot; the cache may be newer. Otherwise it returns the
// pending state. For an object that only the file contains, copyOut sets Raw later.
// isCached reports whether keep has nothing to do for it.
func (p *picker) entry(key, name string, pending *overlay.Entry, hash []byte) (e store.Entry, isCached bool) {
	if v, ok := p.s.objects.Peek(key); ok && bytes.Equal(v.Hash, hash) {
		e = v.Entry(name)
		return e, e.Object != nil
	}
	if obj, _, ok := p.s.objects.Held(key, hash); ok {
		return store.Entry{Key: name, Object: obj}, false
	}
	if pending != nil {
		e = p.s.codec.Pending(pending)
		return e, e.Object != nil
	}
	p.records = append(p.records, found{len(p.entries), key, p.objects.get(key)})
	return store.Entry{Key: name}, false
}

// copied is the number of bytes of records that are copied into one allocation.
const copied = 1 << 20

// copyOut copies the found records on all cores, because freed pages are not reused while
// the transaction is open, and 50,000 pods are 125 MB.
func (p *picker) copyOut() error {
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
		return pagefile.Guard(p.s.db.path, "objects", func() error { return p.copyPart(parts[i]) })
	})
}

func (p *picker) copyPart(records []found) error {
	size := 0
	for _, r := range records {
		size += len(r.record)
	}
	buf := make([]byte, 0, size) // a record is longer than its raw form
	for _, r := range records {
		e := &p.entries[r.entry]
		if r.record == nil {
			return p.s.db.corrupt("object "+e.Key, errors.New("missing"))
		}
		raw, err := p.s.codec.AppendRaw(buf, r.key, r.record)
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

// keep decodes the entries that are not decoded yet, and puts the objects that the cache
// does not have into it.
func (p *picker) keep() error {
	objects, err := store.DecodeAll[kruntime.Object](p.s, p.entries)
	if err != nil {
		return err
	}
	for i, e := range p.entries {
		if p.hashes[i] == nil {
			continue
		}
		key, size, isKnown := record.FileKey(e.Key), record.RawSize(e.Raw), true
		if e.Object != nil { // a reader holds it
			_, size, isKnown = p.s.objects.Held(key, p.hashes[i])
		}
		if isKnown {
			p.s.offer(key, objcache.Value{Object: objects[i], Encoded: size, Hash: p.hashes[i]}, p.sn.tickets.Of(key))
		}
		p.entries[i] = store.Entry{Key: e.Key, Object: objects[i]}
	}
	return nil
}
