package postgres

import (
	"strings"
	"time"

	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// elsewhere is why a scope is listed when that of another resource has shown that history
// was rewound.
const elsewhere = reflector.Rewound + ", as another resource has shown"

// isRewind reports whether the reason of a list, or the problem of a scope, is a rewind.
func isRewind(reason string) bool { return strings.HasPrefix(reason, reflector.Rewound) }

// once is how long a rewind that is found is taken for the one that is known.
const once = time.Minute

// history is that of an etcd, which goes back for all resources that are in it. The
// publisher of a scope finds that only if it asks before the new history has grown beyond
// what the scope has. Events are often in an etcd of their own.
type history struct {
	cluster string
	events  bool
}

func historyOf(s store.Scope) history {
	return history{s.Cluster, s.Resource == "events" || s.Resource == "events.events.k8s.io"}
}

// rewound is called when a scope is about to be listed because history was rewound.
func (p *publisher) rewound(by *sink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := historyOf(by.w.scope)
	at, isKnown := p.rewinds[h]
	// A list that fails is begun again for the same rewind.
	if isKnown && (p.lists[by.w.id].Before(at) || time.Since(at) < once) {
		return
	}
	p.tell(h, by)
}

// tell has the other scopes of a history listed. Those that are not published at present
// are listed when they are. p.mu is locked.
func (p *publisher) tell(h history, by *sink) {
	p.rewinds[h] = time.Now()
	for _, s := range p.sinks {
		if s != by && historyOf(s.w.scope) == h {
			s.relist(elsewhere)
		}
	}
}

// listed is called when a list of a scope was published.
func (p *publisher) listed(s *sink, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lists[s.w.id] = began
}
