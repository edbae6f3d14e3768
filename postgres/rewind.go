package postgres

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"

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

var events = []string{"events", "events.events.k8s.io"}

func historyOf(s store.Scope) history {
	return history{s.Cluster, slices.Contains(events, s.Resource)}
}

// rewound is called when a scope is about to be listed because history was rewound.
func (p *publisher) rewound(ctx context.Context, by *sink) {
	if !p.claim(by) {
		return
	}
	// This publisher may not live until all are listed. The note comes first: any list
	// that ends later clears it, and tell has each scope listed once more.
	if err := p.noteElsewhere(ctx, by); err != nil {
		klog.FromContext(ctx).Info("A rewound history was not noted for the other resources", "err", err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(historyOf(by.w.scope), by)
}

// claim notes a rewind that a scope has shown, and reports whether it was not known.
func (p *publisher) claim(by *sink) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := historyOf(by.w.scope)
	at, isKnown := p.rewinds[h]
	// A list that fails is begun again for the same rewind.
	if isKnown && (p.lists[by.w.id].Before(at) || time.Since(at) < once) {
		return false
	}
	p.rewinds[h] = time.Now()
	return true
}

// noteElsewhere says in the database that the scopes of a history are to be listed, and
// which one has shown that it was rewound.
func (p *publisher) noteElsewhere(ctx context.Context, by *sink) error {
	ctx, cancel := context.WithTimeout(ctx, 2*deadline)
	defer cancel()
	h := historyOf(by.w.scope)
	return pgx.BeginFunc(ctx, p.db.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true), set_config('tcp_user_timeout', $1, true)",
			strconv.FormatInt(p.lease.ttl.Milliseconds(), 10))
		if err == nil {
			_, err = tx.Exec(ctx, p.db.sql(`UPDATE informctl.scope SET problem = CASE WHEN id = $6 THEN $7 ELSE $1 END
				WHERE holder = $2 AND cluster = $3 AND (resource = ANY ($4)) = $5 AND complete AND problem = ''`),
				elsewhere, p.lease.holder, h.cluster, events, h.events, by.w.id, reflector.Rewound)
		}
		return err
	})
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

// unlisted is called when the database may have lost what a scope has published, and with
// it a list.
func (p *publisher) unlisted(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lists, id)
}
