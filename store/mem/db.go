package mem

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// DB is a database of scopes on the heap. It implements store.Backend and is safe for
// concurrent use. None of its methods blocks, except that Open calls index functions for
// the stored objects.
type DB struct {
	// mu protects scopes and their content, except the fields of the leases, and ledgers.
	mu      sync.Mutex
	scopes  map[string]*kept             // by Scope.ID
	ledgers map[string]map[string][]byte // by name
	logs    bool                         // scopes keep a log from their start
	closed  atomic.Bool                  // set under mu, read without it
	ended   chan struct{}                // closed by Close
}

var _ store.Backend = (*DB)(nil)

// kept is the state of a scope in the database.
type kept struct {
	scope       store.Scope
	codec       string
	fingerprint string // of the codec
	transform   string
	state       *state // as of the last Close
	lease       *lease // nil while the scope is not open
	closed      *lease // the one that has left state; nil while the scope is open
}

// current returns the newest state.
func (k *kept) current() *state {
	if k.lease != nil {
		if st := k.lease.state.Load(); st != nil {
			return st
		}
	}
	return k.state
}

// New returns an empty database. Close is only needed to make its stores return
// store.ErrClosed.
func New() *DB {
	return &DB{scopes: map[string]*kept{}, ledgers: map[string]map[string][]byte{}, ended: make(chan struct{})}
}

// Open leases a scope until Close is called on the Store.
func (db *DB) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	scope, err := scope.Canonical()
	if err != nil {
		return nil, err
	}
	indexes, err := newInverted(opts)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", scope, err)
	}
	s := &lease{db: db, id: scope.ID(), scope: scope, codec: opts.Codec}
	old, err := db.reserve(s, scope, opts)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", scope, err)
	}
	s.state.Store(rebuild(old, indexes, opts.Rejected))
	return s, nil
}

// reserve registers the lease and returns its initial state.
func (db *DB) reserve(s *lease, scope store.Scope, opts store.Options) (*state, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	k := db.scopes[s.id]
	if k != nil && k.lease != nil {
		return nil, store.ErrInUse
	}
	if k == nil {
		k = &kept{scope: scope, transform: opts.TransformVersion, state: newState(nil, "nothing stored yet")}
		db.scopes[s.id] = k
	}
	if reason := k.mismatch(opts); reason != "" {
		k.state.recent.End()
		k.state = newState(nil, reason)
	}
	if k.lease, k.closed, k.transform = s, nil, opts.TransformVersion; db.logs {
		beginLog(k.state.recent)
	}
	if opts.Codec != nil {
		k.codec, k.fingerprint = opts.Codec.Name(), opts.Codec.Fingerprint()
	}
	return k.state, nil
}

// mismatch returns the reason why the kept state cannot be used with opts; "" if it can.
func (k *kept) mismatch(opts store.Options) string {
	switch {
	case opts.Fresh:
		return "opened fresh"
	case k.transform != opts.TransformVersion:
		return "transform changed"
	case opts.Codec != nil && k.fingerprint != "" && k.fingerprint != opts.Codec.Fingerprint():
		return "object type changed"
	}
	return ""
}

// release ends a lease and keeps its state.
func (db *DB) release(s *lease, st *state) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if k := db.scopes[s.id]; k != nil && k.lease == s {
		k.lease, k.closed, k.state = nil, s, st
	}
}

// settleClosed changes the state that a lease has left, unless the scope was opened
// since.
func (db *DB) settleClosed(s *lease, settle func(next *state) error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if k := db.scopes[s.id]; k != nil && k.closed == s {
		next := k.state.copy()
		if settle(next) == nil {
			k.state = next
		}
	}
}

// Scopes describes every scope, ordered by resource, namespace and selectors. Bytes is
// always 0. Scopes returns store.ErrClosed after Close.
func (db *DB) Scopes() ([]store.Info, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	infos := make([]store.Info, 0, len(db.scopes))
	for id, k := range db.scopes {
		st := k.current()
		infos = append(infos, store.Info{
			ID: id, Scope: k.scope, Objects: st.objects.Len(), Codec: k.codec,
			TypeFingerprint: k.fingerprint, TransformVersion: k.transform,
			Indexes: st.indexInfos(), Checkpoint: st.checkpoint, Complete: st.listed,
		})
	}
	slices.SortFunc(infos, func(a, b store.Info) int {
		return cmp.Or(
			strings.Compare(a.Scope.Resource, b.Scope.Resource),
			strings.Compare(a.Scope.Namespace, b.Scope.Namespace),
			strings.Compare(a.Scope.LabelSelector, b.Scope.LabelSelector),
			strings.Compare(a.Scope.FieldSelector, b.Scope.FieldSelector),
			strings.Compare(a.ID, b.ID),
		)
	})
	return infos, nil
}

// indexInfos describes the indexes with an identity, ordered by name.
func (st *state) indexInfos() []store.IndexInfo {
	var infos []store.IndexInfo
	for _, ix := range st.inverted {
		if ix.identity != "" {
			infos = append(infos, store.IndexInfo{Name: ix.name, Identity: ix.identity, Values: len(ix.distinct())})
		}
	}
	slices.SortFunc(infos, func(a, b store.IndexInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

// Close drops everything. Stores that are still open return store.ErrClosed afterwards.
// Close is idempotent and always returns nil.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.closed.Swap(true) {
		close(db.ended)
	}
	db.scopes = nil
	return nil
}

// newInverted returns the indexes in opts, without entries.
func newInverted(opts store.Options) ([]inverted, error) {
	var indexes []inverted
	for _, name := range slices.Sorted(maps.Keys(opts.Indexers)) {
		indexes = append(indexes, fromFunc(name, opts.Indexers[name]))
	}
	for _, ix := range opts.Indexes {
		indexes = append(indexes, inverted{name: ix.Name, identity: ix.Identity(), fn: ix.Func})
	}
	seen := map[string]bool{}
	for _, ix := range indexes {
		switch {
		case ix.name == "" && ix.identity != "":
			return nil, errors.New("an index with an identity has no name")
		case ix.fn == nil:
			return nil, fmt.Errorf("index %q: no function", ix.name)
		case seen[ix.name]:
			return nil, fmt.Errorf("index %q: %w", ix.name, errTwice)
		}
		seen[ix.name] = true
	}
	return indexes, nil
}

var errTwice = errors.New("there is one of that name already")

// fromFunc returns the index of a function. Only the namespace function has an identity.
func fromFunc(name string, fn cache.IndexFunc) inverted {
	ns := index.Namespace()
	if name == ns.Name && fn != nil && index.IsNamespace(fn) {
		return inverted{name: name, identity: ns.Identity(), fn: fn}
	}
	return inverted{name: name, fn: fn}
}

// rebuild returns the old state with other indexes. It keeps the values of an index whose
// identity has not changed and computes the others. If an index function fails for an
// object, the object has no values in that index, and rejected is called; rejected may be
// nil.
func rebuild(old *state, indexes []inverted, rejected func(*store.ObjectError)) *state {
	next := newState(indexes, "")
	next.checkpoint, next.listed = old.checkpoint, old.listed
	next.departed, next.recent = old.departed.withoutTold(), old.recent
	from := make([]int, len(indexes)) // position in old, or -1
	for i, ix := range indexes {
		from[i] = slices.IndexFunc(old.inverted, func(o inverted) bool {
			return ix.identity != "" && o.identity == ix.identity
		})
	}
	old.objects.Scan(func(key string, it *item) bool {
		values := make([][]string, len(indexes))
		for i, ix := range indexes {
			if from[i] >= 0 {
				values[i] = it.values[from[i]]
				continue
			}
			var err error
			if values[i], err = ix.valuesOf(it.object); err != nil && rejected != nil {
				rejected(&store.ObjectError{Key: key, Err: err})
			}
		}
		next.set(&item{key: key, object: it.object, values: values})
		return true
	})
	return next
}
