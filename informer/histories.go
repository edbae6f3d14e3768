package informer

import (
	"reflect"
	"sync"
	"time"

	"github.com/informctl/informctl/informer/internal/ingest"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// rewoundElsewhere is why an informer lists when another one has found that history was
// rewound.
const rewoundElsewhere = reflector.Rewound + ", as another resource has shown"

// rewoundOnce is how long one rewind is noticed by different informers.
const rewoundOnce = time.Minute

// history is that of an API server: its resources have their resource versions from one
// etcd. It goes back for all of them, but each informer finds that only if it asks before
// the new history has grown beyond what it holds. Events are often in an etcd of their
// own (kube-apiserver's --etcd-servers-overrides), whose loss says nothing of the others.
// What an aggregated server has cannot be told from the rest: a list too many is better
// than one that is missing.
type history struct {
	backend store.Backend // informers of one backend and one cluster have one history
	cluster string
	events  bool
}

// historyOf returns the history of a scope of a backend.
func historyOf(backend store.Backend, scope store.Scope) history {
	group := scope.Kind.Group
	return history{backend, scope.Cluster, scope.Resource == "events" && (group == "" || group == "events.k8s.io")}
}

// histories has the informers that run.
var histories = struct {
	mu sync.Mutex // protects of
	of map[history]*sharing
}{of: map[history]*sharing{}}

// sharing are the informers of one history.
type sharing struct {
	informers map[*ingest.Pipeline]time.Time // when each was last part of a rewind
	rewound   time.Time                      // when the last rewind was found
}

// isShared reports whether it is known which informers have the same history: without a
// backend, or with one that cannot be compared, it is not.
func (h history) isShared() bool {
	return h.backend != nil && reflect.TypeOf(h.backend).Comparable()
}

// join adds an informer, whose store is as of a time, until leave is called. If a rewind
// was found since that time, it lists.
func (h history) join(p *ingest.Pipeline, stored time.Time) (leave func()) {
	if !h.isShared() {
		return func() {}
	}
	histories.mu.Lock()
	defer histories.mu.Unlock()
	with := histories.of[h]
	if with == nil {
		with = &sharing{informers: map[*ingest.Pipeline]time.Time{}}
		histories.of[h] = with
	}
	with.informers[p] = time.Time{}
	if stored.Before(with.rewound) {
		with.informers[p] = with.rewound
		rewind(p)
	}
	return func() {
		histories.mu.Lock()
		defer histories.mu.Unlock()
		if delete(with.informers, p); len(with.informers) == 0 {
			delete(histories.of, h)
		}
	}
}

// rewind has an informer list, because another one has found a rewind.
func rewind(p *ingest.Pipeline) {
	p.RewoundElsewhere()
	p.Reflector().Relist(rewoundElsewhere)
}

// rewound has the others list, because one of them has found that history was rewound.
func (h history) rewound(by *ingest.Pipeline) {
	if !h.isShared() {
		return
	}
	now := time.Now()
	histories.mu.Lock()
	defer histories.mu.Unlock()
	with := histories.of[h]
	if with == nil {
		return
	}
	with.rewound = now
	for p, at := range with.informers {
		if with.informers[p] = now; p != by && now.Sub(at) >= rewoundOnce {
			rewind(p)
		}
	}
}
