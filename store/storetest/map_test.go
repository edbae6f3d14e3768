package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/storetest"
)

// TestMapBackend checks that a map behind a mutex is a backend: it implements nothing but
// store.Backend, store.Store and store.Relist.
func TestMapBackend(t *testing.T) {
	cfg := storetest.Config{Open: func(*testing.T, string) store.Backend {
		return &mapDB{scopes: map[string]*mapScope{}, ended: make(chan struct{})}
	}}
	t.Run("suite", func(t *testing.T) { storetest.Run(t, cfg) })
	t.Run("model", func(t *testing.T) { storetest.RunModel(t, cfg) })
}

// mapDB is a backend. Its mutex protects everything.
type mapDB struct {
	mu     sync.Mutex
	scopes map[string]*mapScope
	closed bool
	ended  chan struct{}
}

type mapScope struct {
	info       store.Info
	objects    map[string]mapObject
	indexers   cache.Indexers
	identities map[string]string // of the indexes that have one
	lease      *mapStore
	recent     store.Recent
}

// mapObject is an object with its index values.
type mapObject struct {
	runtime.Object
	values map[string][]string
}

func (db *mapDB) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	s := &mapStore{db: db, opts: opts, mapScope: db.scopes[scope.ID()]}
	indexers, identities := cache.Indexers{}, map[string]string{}
	maps.Copy(indexers, opts.Indexers)
	for _, idx := range opts.Indexes {
		if _, twice := indexers[idx.Name]; twice || idx.Name == "" {
			return nil, fmt.Errorf("index %q twice or without a name", idx.Name)
		}
		indexers[idx.Name], identities[idx.Name] = idx.Func, idx.Identity()
	}
	for name, fn := range indexers {
		if fn == nil {
			return nil, fmt.Errorf("index %q without a function", name)
		}
	}
	info := store.Info{ID: scope.ID(), Scope: scope, TransformVersion: opts.TransformVersion}
	if opts.Codec != nil {
		info.Codec, info.TypeFingerprint = opts.Codec.Name(), opts.Codec.Fingerprint()
	}
	switch {
	case db.closed:
		return nil, store.ErrClosed
	case s.mapScope != nil && s.lease != nil:
		return nil, store.ErrInUse
	case s.mapScope == nil || opts.Fresh || s.info.TransformVersion != info.TransformVersion ||
		info.Codec != "" && s.info.TypeFingerprint != info.TypeFingerprint:
		info.Checkpoint = store.Checkpoint{Reason: "nothing stored yet", Time: time.Now()}
		s.mapScope = &mapScope{info: info, objects: map[string]mapObject{}}
		db.scopes[scope.ID()] = s.mapScope
	}
	old := s.identities
	s.lease, s.indexers, s.identities = s, indexers, identities
	for key, o := range s.objects {
		values := map[string][]string{}
		for name, fn := range indexers {
			if values[name] = o.values[name]; identities[name] != "" && identities[name] == old[name] {
				continue
			}
			var err error
			if values[name], err = index.Values(fn, o.Object); err != nil && opts.Rejected != nil {
				opts.Rejected(&store.ObjectError{Key: key, Err: err})
			}
		}
		s.objects[key] = mapObject{o.Object, values}
	}
	return s, nil
}

func (db *mapDB) Scopes() (infos []store.Info, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil, store.ErrClosed
	}
	for _, s := range db.scopes {
		info := s.info
		info.Objects = len(s.objects)
		for _, name := range slices.Sorted(maps.Keys(s.identities)) {
			values, _ := s.valuesLocked(name)
			info.Indexes = append(info.Indexes, store.IndexInfo{Name: name, Identity: s.identities[name], Values: len(values)})
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b store.Info) int {
		return cmp.Or(strings.Compare(a.Scope.Resource, b.Scope.Resource), strings.Compare(a.Scope.Namespace, b.Scope.Namespace),
			strings.Compare(a.Scope.LabelSelector, b.Scope.LabelSelector))
	})
	return infos, nil
}

func (db *mapDB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.closed {
		db.closed = true
		close(db.ended)
	}
	return nil
}

// mapStore is a lease of a scope. The lease before it shows the same objects.
type mapStore struct {
	*mapScope
	db     *mapDB
	opts   store.Options
	list   *mapRelist // the one that is not closed
	closed bool
}

// locked calls fn with the mutex held, unless the database is closed.
func (s *mapStore) locked(fn func() error) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.db.closed {
		return store.ErrClosed
	}
	return fn()
}

func (s *mapStore) write(fn func() error) error {
	return s.locked(func() error {
		if s.closed {
			return store.ErrClosed
		}
		return fn()
	})
}

// indexed returns an object with its index values.
func (s *mapScope) indexed(key string, obj runtime.Object) (o mapObject, err error) {
	o = mapObject{obj, map[string][]string{}}
	for name, fn := range s.indexers {
		if o.values[name], err = index.Values(fn, obj); err != nil {
			return o, &store.ObjectError{Key: key, Err: fmt.Errorf("index %q: %w", name, err)}
		}
	}
	return o, nil
}

// collectMap returns a value of each object that matches q, in key order.
func collectMap[T any](s *mapStore, q store.Query, value func(key string, obj runtime.Object) (T, error)) (found []T, err error) {
	after, prefix := q.Range()
	matcher := q.Matcher()
	err = s.locked(func() error {
		if q.Index != "" && s.indexers[q.Index] == nil {
			return store.NoIndex(q.Index, s.indexers)
		}
		objects, err := s.atLocked(q.At)
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			o := objects[key]
			m, err := meta.Accessor(o.Object)
			if err != nil {
				return err
			}
			fits := (q.Keys == nil || slices.Contains(q.Keys, key)) && key > after && strings.HasPrefix(key, prefix) && matcher.Matches(labels.Set(m.GetLabels()))
			if fits && q.Index != "" {
				fits = slices.ContainsFunc(o.values[q.Index], func(v string) bool { return slices.Contains(q.Values, v) })
			}
			if !fits {
				continue
			}
			v, err := value(key, o.Object)
			if err != nil {
				return err
			}
			if found = append(found, v); len(found) == q.Limit {
				break
			}
		}
		return nil
	})
	return found, err
}

func (s *mapStore) Checkpoint() (c store.Checkpoint) {
	_ = s.locked(func() error { c = s.info.Checkpoint; return nil })
	return c
}

func (s *mapStore) Len() (n int) {
	_ = s.locked(func() error { n = len(s.objects); return nil })
	return n
}

func (s *mapStore) Object(key string) (obj runtime.Object, ok bool, err error) {
	var o mapObject
	err = s.locked(func() error { o, ok = s.objects[key]; return nil })
	return o.Object, ok, err
}

func (s *mapStore) Objects(q store.Query) ([]runtime.Object, error) {
	return collectMap(s, q, func(_ string, obj runtime.Object) (runtime.Object, error) { return obj, nil })
}

func (s *mapStore) Keys(q store.Query) ([]string, error) {
	return collectMap(s, q, func(key string, _ runtime.Object) (string, error) { return key, nil })
}

func (s *mapStore) Select(q store.Query) ([]store.Entry, error) {
	return collectMap(s, q, func(key string, obj runtime.Object) (store.Entry, error) {
		return store.Entry{Key: key, Object: obj}, nil
	})
}

func (s *mapStore) Entry(key string) (store.Entry, bool, error) {
	obj, ok, err := s.Object(key)
	if !ok {
		return store.Entry{}, false, err
	}
	return store.Entry{Key: key, Object: obj}, true, nil
}

func (s *mapStore) Before(keys []string) (store.Before, error) { return store.BeforeOf(s, keys) }

func (s *mapStore) HeadersOf(keys []string) (headers []store.Header, err error) {
	for _, key := range keys {
		obj, ok, err := s.Object(key)
		if err != nil {
			return nil, err
		}
		if h, err := store.HeaderOf(obj); ok && err == nil {
			headers = append(headers, h)
		}
	}
	return headers, nil
}

func (s *mapStore) Values(name string) (values []string, err error) {
	err = s.locked(func() (err error) { values, err = s.valuesLocked(name); return err })
	return values, err
}

func (s *mapScope) valuesLocked(name string) ([]string, error) {
	if s.indexers[name] == nil {
		return nil, store.NoIndex(name, s.indexers)
	}
	found := map[string]bool{}
	for _, o := range s.objects {
		for _, value := range o.values[name] {
			found[value] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func (s *mapStore) Indexers() (indexers cache.Indexers) {
	_ = s.locked(func() error { indexers = maps.Clone(s.indexers); return nil })
	return indexers
}

func (s *mapStore) AddIndexes(added cache.Indexers) error {
	return s.write(func() error {
		before := s.indexers
		s.indexers = maps.Clone(before)
		maps.Copy(s.indexers, added)
		for name, fn := range added {
			if fn == nil || before[name] != nil {
				s.indexers = before
				return fmt.Errorf("index %q is nil or exists", name)
			}
		}
		next := map[string]mapObject{}
		for key, o := range s.objects {
			var err error
			if next[key], err = s.indexed(key, o.Object); err != nil {
				s.indexers = before
				return err
			}
		}
		s.objects = next
		return nil
	})
}

func (s *mapStore) Encode(obj runtime.Object) (store.Entry, error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	return store.Entry{Key: key, Object: obj}, err
}

func (s *mapStore) Decode(e store.Entry) (runtime.Object, error) {
	if e.Object == nil {
		return nil, errors.New("an entry without an object")
	}
	return e.Object, nil
}

func (s *mapStore) All() iter.Seq2[runtime.Object, error] { return store.AllOf(s) }

func (s *mapStore) Compare(obj runtime.Object) (held store.Header, same bool, err error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return held, false, err
	}
	old, ok, err := s.Object(key)
	if headers, _ := s.HeadersOf([]string{key}); ok && len(headers) > 0 {
		held = headers[0]
	}
	if err != nil {
		return held, false, err
	}
	same, err = s.info.Scope.SameButKind(obj, func() (bool, error) { return ok && equality.Semantic.DeepEqual(old, obj), nil })
	return held, same, err
}

// change checks a change and returns its key and object.
func (s *mapStore) change(c store.Change) (key string, o mapObject, err error) {
	if c.Object == nil {
		if c.Key == "" {
			err = &store.ObjectError{Err: errors.New("deletion without a key")}
		}
		return c.Key, o, err
	}
	if key, err = store.KeyOf(cache.MetaNamespaceKeyFunc, c.Object); err != nil {
		return "", o, err
	}
	if s.opts.Codec == nil {
		return key, o, &store.ObjectError{Key: key, Err: errors.New("no codec")}
	}
	if _, err = s.opts.Codec.Encode(c.Object.DeepCopyObject()); err != nil {
		return key, o, &store.ObjectError{Key: key, Err: err}
	}
	o, err = s.indexed(key, c.Object)
	return key, o, err
}

func (s *mapStore) Prepare(b *store.Batch) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var errs []error
	kept := b.Changes[:0]
	for _, c := range b.Changes {
		var err error
		if c.Key, _, err = s.change(c); err == nil {
			kept = append(kept, c)
		}
		errs = append(errs, err)
	}
	b.Changes = kept
	return errors.Join(errs...)
}

func (s *mapStore) Apply(b store.Batch) error {
	return s.write(func() error {
		changed, rvs, shorts := map[string]mapObject{}, map[string]string{}, map[string]runtime.Object{}
		for _, c := range b.Changes {
			key, o, err := s.change(c)
			if err != nil {
				return err
			}
			changed[key], rvs[key] = o, c.RV
			shorts[key] = c.Short.Object
		}
		if b.Loaded {
			s.objects, changed = map[string]mapObject{}, s.list.listed
		}
		var events []store.Event
		for key, o := range changed {
			e := store.Event{Key: key, RV: rvs[key], Old: mapVersion(key, s.objects[key]), New: mapVersion(key, o)}
			if e.Old == nil && e.New == nil && shorts[key] != nil {
				e.Short = mapVersion(key, mapObject{Object: shorts[key]})
			}
			if e.Old == nil || e.New == nil || !equality.Semantic.DeepEqual(e.Old.Entry.Object, e.New.Entry.Object) {
				events = append(events, e)
			}
			if s.objects[key] = o; o.Object == nil {
				delete(s.objects, key)
			}
		}
		defer func() { s.recent.Note(b, events, s.info.Checkpoint.RV) }()
		if s.list != nil && !s.info.Complete && !b.Loaded {
			return nil // nothing is complete yet
		}
		if b.RV != "" || b.Reason != "" {
			s.info.Checkpoint = b.Checkpoint(s.info.Checkpoint)
		}
		s.info.Complete = s.info.Complete || b.Loaded || b.RV != ""
		return nil
	})
}

func (s *mapStore) Invalidate(_ context.Context, reason string) error {
	return s.write(func() error {
		b := store.Batch{Reason: cmp.Or(reason, "invalidated")}
		s.info.Checkpoint = b.Checkpoint(s.info.Checkpoint)
		s.recent.Note(b, nil, "")
		return nil
	})
}

func (s *mapStore) Follow(ctx context.Context, p store.Place) iter.Seq2[store.Event, error] {
	return s.recent.Follow(ctx, p, s.db.ended)
}

func (s *mapStore) History() (state store.LogState, err error) {
	err = s.locked(func() error { state = s.recent.State(); return nil })
	return state, err
}

func mapVersion(key string, o mapObject) *store.Version {
	if o.Object == nil {
		return nil
	}
	h, _ := store.HeaderOf(o.Object)
	return &store.Version{Header: h, Entry: store.Entry{Key: key, Object: o.Object}}
}

// atLocked returns the objects at a place.
func (s *mapScope) atLocked(p store.Place) (map[string]mapObject, error) {
	if p.IsZero() {
		return s.objects, nil
	}
	before, err := s.recent.Before(p)
	objects := maps.Clone(s.objects)
	for key, v := range before {
		if delete(objects, key); v != nil {
			if objects[key], err = s.indexed(key, v.Entry.Object); err != nil {
				return nil, err
			}
		}
	}
	return objects, err
}

func (s *mapStore) Flush(context.Context) error { return s.locked(func() error { return nil }) }

func (s *mapStore) Close() error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if !s.closed {
		s.closed, s.lease, s.list = true, nil, nil
	}
	return nil
}

// mapRelist collects a list. A nil object was listed and cannot be stored.
type mapRelist struct {
	s      *mapStore
	listed map[string]mapObject
}

func (s *mapStore) Relist() (store.Relist, error) {
	r := &mapRelist{s, map[string]mapObject{}}
	return r, s.write(func() error {
		if s.list = r; s.info.Complete {
			s.recent.ListBegun()
		}
		return nil
	})
}

func (r *mapRelist) Add(obj runtime.Object) error {
	return r.s.write(func() error {
		if r.s.list != r {
			return store.ErrClosed
		}
		key, o, err := r.s.change(store.Change{Object: obj})
		if err != nil {
			r.Keep(key)
			return err
		}
		r.listed[key] = o
		return nil
	})
}

func (r *mapRelist) Keep(key string) {
	if _, added := r.listed[key]; !added {
		r.listed[key] = mapObject{}
	}
}

func (r *mapRelist) Remove(key string) { delete(r.listed, key) }

func (r *mapRelist) Parts(rv string) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		b := store.Batch{RV: rv}
		err := r.s.write(func() error {
			if r.s.list != r {
				return store.ErrClosed
			}
			if b.Loaded = !r.s.info.Complete; b.Loaded {
				return nil
			}
			for _, key := range slices.Sorted(maps.Keys(r.s.objects)) {
				if _, listed := r.listed[key]; !listed {
					b.Changes = append(b.Changes, store.Change{Key: key})
				}
			}
			for _, key := range slices.Sorted(maps.Keys(r.listed)) {
				o := r.listed[key]
				if o.Object == nil {
					continue
				}
				same, _ := r.s.info.Scope.SameButKind(o.Object, func() (bool, error) {
					return equality.Semantic.DeepEqual(o.Object, r.s.objects[key].Object), nil
				})
				if !same {
					b.Changes = append(b.Changes, store.Change{Key: key, Object: o.Object})
				}
			}
			return nil
		})
		yield(b, err)
	}
}

func (r *mapRelist) Close() error {
	r.s.db.mu.Lock()
	defer r.s.db.mu.Unlock()
	if r.s.list == r {
		r.s.list = nil
	}
	return nil
}
