// Package rewind tells the informers of one history of an API server that it was
// rewound, as after an etcd was restored.
package rewind

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// elsewhere is why an informer lists when another one has found that history was
// rewound.
const elsewhere = reflector.Rewound + ", as another resource has shown"

// Informer is one that can be told. Its methods may be called by any goroutine, and do
// not block.
type Informer interface {
	// RewoundElsewhere has the informer list, because another one has found a rewind.
	RewoundElsewhere(reason string)
}

// once is how long one rewind is noticed by different informers.
const once = time.Minute

// History is that of an API server: its resources have their resource versions from one
// etcd. It goes back for all of them, but each informer finds that only if it asks before
// the new history has grown beyond what it holds. Events are often in an etcd of their
// own (kube-apiserver's --etcd-servers-overrides), whose loss says nothing of the others.
// What an aggregated server has cannot be told from the rest: a list too many is better
// than one that is missing.
type History struct {
	backend store.Backend // informers of one backend and one cluster have one history
	cluster string
	events  bool
}

// Of returns the history of a scope of a backend.
func Of(backend store.Backend, scope store.Scope) History {
	events := scope.Resource == "events" || scope.Resource == "events.events.k8s.io"
	return History{backend, scope.Cluster, events}
}

// histories has the informers that run.
var histories = struct {
	mu sync.Mutex // protects of, and the fields of each sharing and member
	of map[History]*sharing
}{of: map[History]*sharing{}}

// sharing are the informers of one history that run.
type sharing struct {
	members map[Informer]*member
	last    time.Time // when a rewind was last noted for scopes that nobody has open

	// ledger serializes what becomes of the ledger's rewinds, and protects unwritten. It
	// is locked before histories.mu.
	ledger    sync.Mutex
	unwritten map[string][]byte // changes that the ledger could not take
}

// member is an informer of a sharing.
type member struct {
	id      string    // of its scope; "" if that is only in memory
	rewound time.Time // when it last was part of a rewind
	isNoted bool      // the ledger may have the id
}

// rewinds is the name of the ledger's values whose keys are the ids of scopes that belong
// to a history that is no more, as the informer of another scope has found. An id is
// taken out as soon as its scope says the same.
const rewinds = "rewinds"

// isShared reports whether it is known which informers have the same history: without a
// backend, or with one that cannot be compared, it is not.
func (h History) isShared() bool {
	return h.backend != nil && reflect.ValueOf(h.backend).Comparable()
}

// Join adds the informer of a scope until leave is called; id is "" if the scope is only
// in memory. If another one has found a rewind since the scope was stored, it lists.
func (h History) Join(ctx context.Context, p Informer, id string) (leave func()) {
	if !h.isShared() {
		return func() {}
	}
	m := &member{id: id}
	histories.mu.Lock()
	with := histories.of[h]
	if with == nil {
		with = &sharing{members: map[Informer]*member{}}
		histories.of[h] = with
	}
	with.members[p] = m
	histories.mu.Unlock()
	with.ledger.Lock()
	defer with.ledger.Unlock()
	if l, ok := h.backend.(store.Ledger); ok {
		noted, err := l.Ledger(ctx, rewinds)
		if err != nil {
			klog.FromContext(ctx).Error(err, "It is not known whether another resource has shown a rewind of history")
		}
		value, isNewer := with.unwritten[id]
		if !isNewer {
			value = noted[id]
		}
		if value != nil && m.joins(time.Now()) {
			p.RewoundElsewhere(elsewhere)
		}
	}
	return func() {
		histories.mu.Lock()
		defer histories.mu.Unlock()
		if delete(with.members, p); len(with.members) == 0 {
			delete(histories.of, h)
		}
	}
}

// joins notes that the informer is part of a rewind that was found now and is in the
// ledger. It reports whether that is news.
func (m *member) joins(now time.Time) bool {
	histories.mu.Lock()
	defer histories.mu.Unlock()
	return m.joinsLocked(now)
}

func (m *member) joinsLocked(now time.Time) bool {
	if m.isNoted = true; now.Sub(m.rewound) < once {
		return false
	}
	m.rewound = now
	return true
}

// Found is called when an informer has found that history was rewound, before its scope
// says so. The others list, too: those that run at once, and the others when their scopes
// are opened, in this process or a later one.
func (h History) Found(ctx context.Context, by Informer) {
	with := h.sharing()
	if with == nil {
		return
	}
	with.ledger.Lock()
	defer with.ledger.Unlock()
	changes, known := with.found(by)
	if known != nil {
		infos, err := h.backend.Scopes()
		if err != nil {
			logUnnoted(ctx, err)
		}
		for _, info := range infos {
			if Of(h.backend, info.Scope) == h && !known.Has(info.ID) {
				changes[info.ID] = []byte(elsewhere)
			}
		}
	}
	with.write(ctx, h.backend, changes)
}

// Noted is called when the scope of an informer says that history was rewound.
func (h History) Noted(ctx context.Context, by Informer) {
	with := h.sharing()
	if with == nil {
		return
	}
	with.ledger.Lock()
	defer with.ledger.Unlock()
	if id := with.noted(by); id != "" {
		with.write(ctx, h.backend, map[string][]byte{id: nil})
	}
}

// sharing returns the informers of the history; nil if none runs or that is not known.
func (h History) sharing() *sharing {
	if !h.isShared() {
		return nil
	}
	histories.mu.Lock()
	defer histories.mu.Unlock()
	return histories.of[h]
}

// found has the other informers list. It returns what changes in the ledger for the
// scopes of those that run, and the ids of these; nil if the ledger has the rewind for
// the other scopes.
func (s *sharing) found(by Informer) (changes map[string][]byte, known sets.Set[string]) {
	now := time.Now()
	changes = map[string][]byte{}
	histories.mu.Lock()
	defer histories.mu.Unlock()
	if now.Sub(s.last) >= once {
		s.last, known = now, sets.New[string]()
	}
	for p, m := range s.members {
		if known != nil && m.id != "" {
			known.Insert(m.id)
		}
		isNew := m.joinsLocked(now)
		if p != by && isNew {
			p.RewoundElsewhere(elsewhere)
		}
		if m.id != "" && (isNew || p == by) {
			changes[m.id] = []byte(elsewhere)
		}
	}
	return changes, known
}

// noted returns the id of an informer's scope that the ledger may have, "" if it has not.
func (s *sharing) noted(by Informer) string {
	histories.mu.Lock()
	defer histories.mu.Unlock()
	m := s.members[by]
	if m == nil || !m.isNoted {
		return ""
	}
	m.isNoted = false
	return m.id
}

// noteFor is how long an informer that ends still writes what it has found.
const noteFor = 5 * time.Second

// write changes the ledger's rewinds. The caller must hold s.ledger.
func (s *sharing) write(ctx context.Context, backend store.Backend, changes map[string][]byte) {
	l, ok := backend.(store.Ledger)
	if !ok {
		return
	}
	if s.unwritten == nil {
		s.unwritten = map[string][]byte{}
	}
	maps.Copy(s.unwritten, changes)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteFor)
	defer cancel()
	if err := l.SetLedger(ctx, rewinds, s.unwritten); err != nil {
		logUnnoted(ctx, err)
		return
	}
	s.unwritten = nil
}

func logUnnoted(ctx context.Context, err error) {
	klog.FromContext(ctx).Error(err, "The rewind of history could not be noted for other resources: after a crash they may resume in it")
}
