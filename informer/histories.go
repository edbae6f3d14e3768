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
	// of has when each was last part of a rewind.
	of map[history]map[*ingest.Pipeline]time.Time
}{of: map[history]map[*ingest.Pipeline]time.Time{}}

// isShared reports whether it is known which informers have the same history: without a
// backend, or with one that cannot be compared, it is not.
func (h history) isShared() bool {
	return h.backend != nil && reflect.TypeOf(h.backend).Comparable()
}

// join adds an informer until leave is called.
func (h history) join(p *ingest.Pipeline) (leave func()) {
	if !h.isShared() {
		return func() {}
	}
	histories.mu.Lock()
	defer histories.mu.Unlock()
	if histories.of[h] == nil {
		histories.of[h] = map[*ingest.Pipeline]time.Time{}
	}
	histories.of[h][p] = time.Time{}
	return func() {
		histories.mu.Lock()
		defer histories.mu.Unlock()
		if delete(histories.of[h], p); len(histories.of[h]) == 0 {
			delete(histories.of, h)
		}
	}
}

// rewound has the others list, because one of them has found that history was rewound.
func (h history) rewound(by *ingest.Pipeline) {
	if !h.isShared() {
		return
	}
	now := time.Now()
	histories.mu.Lock()
	defer histories.mu.Unlock()
	for p, at := range histories.of[h] {
		if histories.of[h][p] = now; p == by || now.Sub(at) < rewoundOnce {
			continue
		}
		p.OtherHistory()
		p.Reflector().Relist(rewoundElsewhere)
	}
}
