package inspect

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/wire"
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
	opts, err := q.changes()
	if err != nil {
		return err
	}
	release, err := q.slot(e.following)
	if err != nil {
		return err
	}
	defer release()
	events, err := inf.Follow(q.ctx, opts)
	switch {
	case errors.Is(err, informer.ErrForgotten), err == nil && opts.Since != "" && p.needsOld:
		// The informer does not remember the change, or not the state before it.
		logErr := reaches(q.ctx, inf.Reader(), opts.Since)
		switch {
		case logErr == nil:
			return p.serveLogged(a, q, inf.Reader(), opts.Since)
		case !isUnreached(logErr):
			return logErr
		case err != nil:
			return err
		}
	case err != nil:
		return err
	}
	// Initial objects and earlier changes count as a request that reads objects, unless
	// they wait for a list.
	current := func() {}
	if opts.Since != "" || opts.Initial && inf.HasSynced() {
		release, err := q.slot(e.reading)
		if err != nil {
			return err
		}
		current = sync.OnceFunc(release)
		defer current()
		defer time.AfterFunc(readingTime, current).Stop() // a slower request reads little
	}
	a.waits = informer.FollowPatience
	if opts.Initial {
		a.ends = time.Time{}
		a.begin("application/jsonl")
		if err := a.flush(); err != nil {
			return err
		}
	}
	begun, isCurrent := time.Now(), false
	for event, err := range events {
		if err != nil {
			return err
		}
		a.begin("application/jsonl")
		if event.Type == informer.Current {
			current()
			isCurrent, a.ends = true, time.Time{}
		} else if err := p.send(a, event); err != nil {
			return err
		}
		if !event.More {
			if err := a.flush(); err != nil {
				return err
			}
		}
		if opts.Since != "" && !isCurrent && time.Since(begun) > readingTime {
			return fmt.Errorf("to send what came before took longer than %s; go on from the last line", readingTime)
		}
	}
	return nil
}

// changes reads the parameters that specify where to begin.
func (q question) changes() (opts informer.FollowOptions, err error) {
	initial, err := q.oneOf("initial", "false", "true")
	if err != nil {
		return opts, err
	}
	opts.Initial = initial == "true"
	if rv := q.Get("since"); q.Has("since") && rv != "now" {
		if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
			return opts, refuse(http.StatusBadRequest, "since is %q, want now or a resource version, which is a number from 1 on", rv)
		}
		opts.Since = rv
	}
	if opts.Since != "" && opts.Initial {
		return opts, refuse(http.StatusBadRequest, "initial=true goes with since=now only, not with a resource version")
	}
	return opts, nil
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
	if err != nil || p.namespace != "" && m.GetNamespace() != p.namespace {
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
