package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/informer"
)

// serveChanges sends changes until the client disconnects or the informer ends.
func (e *endpoint) serveChanges(a *answer, q question) error {
	inf, err := e.find(q)
	if err != nil {
		return err
	}
	p, err := q.printer(inf)
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
	case errors.Is(err, informer.ErrExpired) && !errors.Is(err, informer.ErrForgotten):
		return fmt.Errorf("%w; begin with initial=true", err)
	case errors.Is(err, informer.ErrForgotten):
		return p.serveLogged(a, q, inf.Reader(), opts.Since, fmt.Errorf("%w; begin with initial=true", err))
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
		} else if err := p.sendEvent(a, event); err != nil {
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

func (p printer) sendEvent(a *answer, e informer.Event) error {
	b, err := p.json(e.Object)
	if err != nil {
		return err
	}
	return a.line(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
		Listed bool            `json:"listed,omitempty"`
	}{string(e.Type), b, e.Listed})
}
