package inspect

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// serveChanges sends changes until the client disconnects or the informer ends.
func (e *endpoint) serveChanges(a *answer, q question) error {
	inf, err := e.find(q)
	if err != nil {
		return err
	}
	p, err := q.sender(inf)
	if err != nil {
		return err
	}
	rv, initial, err := q.begin()
	if err != nil {
		return err
	}
	release, err := q.slot(e.following)
	if err != nil {
		return err
	}
	defer release()
	if rv != "" {
		return e.serveLogged(a, q, inf, p, rv)
	}
	if !inf.Persisted() {
		// The log in memory begins when somebody follows, who may come back.
		_ = leads(q.ctx, inf.Reader(), store.Place{})
	}
	events, err := inf.Follow(q.ctx, informer.FollowOptions{Initial: initial})
	if err != nil {
		return err
	}
	// Initial objects count as a request that reads objects, unless they wait for a list.
	current := func() {}
	if initial && inf.HasSynced() {
		if current, err = e.catchingUp(q); err != nil {
			return err
		}
		defer current()
	}
	a.waits = informer.FollowPatience
	if initial {
		a.ends = time.Time{}
		a.begin("application/jsonl")
		if err := a.flush(); err != nil {
			return err
		}
	}
	for event, err := range events {
		if err != nil {
			return err
		}
		a.begin("application/jsonl")
		if event.Type == informer.Current {
			current()
			a.ends = time.Time{}
		} else if err := p.send(a, event); err != nil {
			return err
		}
		if !event.More {
			if err := a.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin reads the parameters that specify where to begin: after a resource version, or
// now, with the stored objects or without.
func (q question) begin() (rv string, initial bool, err error) {
	answer, err := q.oneOf("initial", "false", "true")
	if err != nil {
		return "", false, err
	}
	initial = answer == "true"
	if since := q.Get("since"); q.Has("since") && since != "now" {
		if _, err := resourceversion.CompareResourceVersion(since, since); err != nil {
			return "", false, refuse(http.StatusBadRequest, "since is %q, want now or a resource version, which is a number from 1 on", since)
		}
		rv = since
	}
	if rv != "" && initial {
		return "", false, refuse(http.StatusBadRequest, "initial=true goes with since=now only, not with a resource version")
	}
	return rv, initial, nil
}

// sender sends the changes that a client wants.
type sender struct {
	printer
	namespace string          // "" means all
	labels    labels.Selector // nil means all
	sendsOld  bool            // with the state before
	needsOld  bool            // to send it, or to select
	bookmarks bool
}

func (q question) sender(inf *informer.Informer) (p sender, err error) {
	if p.printer, err = q.printer(inf); err != nil {
		return p, err
	}
	old, err := q.oneOf("old", "false", "true")
	if err != nil {
		return p, err
	}
	bookmarks, err := q.oneOf("bookmarks", "false", "true")
	if err != nil {
		return p, err
	}
	selector, err := q.selector()
	if err != nil {
		return p, err
	}
	p.bookmarks = bookmarks == "true"
	if !selector.Empty() {
		p.labels = selector
	}
	p.namespace, p.sendsOld = q.Get("namespace"), old == "true"
	p.needsOld = p.sendsOld || p.labels != nil
	return p, nil
}

func (p sender) matches(obj runtime.Object) (bool, error) {
	m, err := meta.Accessor(obj)
	return err == nil && (p.labels == nil || p.labels.Matches(labels.Set(m.GetLabels()))), err
}

// send sends a change if the client wants it.
func (p sender) send(a *answer, e informer.Event) error {
	m, err := meta.Accessor(e.Object)
	if err != nil || p.namespace != "" && m.GetNamespace() != "" && m.GetNamespace() != p.namespace {
		return err
	}
	e, ok, err := e.Selected(p.matches)
	if err != nil || !ok {
		return err
	}
	line := wire.ChangeLine{Type: string(e.Type), Inside: e.Inside, Listed: e.Listed}
	if line.Object, err = p.json(e.Object); err != nil {
		return err
	}
	if p.sendsOld && e.Old != nil {
		if line.Old, err = p.json(e.Old); err != nil {
			return err
		}
	}
	return a.line(line)
}
