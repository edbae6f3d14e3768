package inspect

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// serveHistory sends what the log of a scope contains, and then either ends or goes on
// with what is written.
func (e *endpoint) serveHistory(a *answer, q question) error {
	h, show, err := e.heldAndShown(q)
	if err != nil {
		return err
	}
	follow, err := q.oneOf("follow", "false", "true")
	if err != nil {
		return err
	}
	var since time.Time
	if text := q.Get("since"); text != "" {
		if since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return refuse(http.StatusBadRequest, "since is %q, want a time such as 2026-01-02T15:04:05Z", text)
		}
	}
	slots := e.reading
	if follow == "true" {
		slots = e.following
	}
	release, err := q.slot(slots)
	if err != nil {
		return err
	}
	defer release()
	state, err := h.store.History()
	if err != nil {
		return err
	}
	a.begin("application/jsonl")
	if err := a.line(wire.HistoryHead{Begins: state.Begins, Complete: state.Oldest.Time}); err != nil {
		return err
	}
	p := printer{h.scope, show}
	if follow == "true" {
		a.ends = time.Time{}
	}
	if follow == "false" && state.Last.IsZero() {
		return nil
	}
	last := state.Last.Mark
	for event, err := range h.store.Follow(q.ctx, store.Place{}) {
		if err != nil {
			return err
		}
		if m := event.Mark; m != nil {
			if follow == "false" && m.Mark >= last {
				return nil
			}
			if err := a.flush(); err != nil {
				return err
			}
			continue
		}
		if event.Time.Before(since) {
			continue
		}
		line, err := p.change(h.store, event)
		if err != nil {
			return err
		}
		if err := a.line(line); err != nil {
			return err
		}
	}
	return nil
}

// change returns an event in the form of the wire.
func (p printer) change(s store.Reader, e store.Event) (line wire.HistoryLine, err error) {
	line = wire.HistoryLine{Key: e.Key, RV: e.RV, Time: e.Time, Since: e.Since}
	line.Old, err = p.version(s, e.Old)
	if err == nil {
		line.New, err = p.version(s, e.New)
	}
	return line, err
}

func (p printer) version(s store.Reader, v *store.Version) (*wire.HistoryState, error) {
	switch {
	case v == nil:
		return nil, nil
	case !v.IsKnown():
		return &wire.HistoryState{}, nil
	}
	obj, err := s.Decode(v.Entry)
	if errors.Is(err, store.ErrCorrupt) {
		return &wire.HistoryState{}, nil
	}
	if err != nil {
		return nil, err
	}
	var b json.RawMessage
	if b, err = p.json(obj); err != nil {
		return nil, err
	}
	return &wire.HistoryState{Object: b}, nil
}
