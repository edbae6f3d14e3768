package inspect

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// serveHistory describes the log of a scope.
func (e *endpoint) serveHistory(a *answer, q question) error {
	h, err := e.held(q)
	if err != nil {
		return err
	}
	state, err := h.store.History()
	if err != nil {
		return err
	}
	return a.document(state)
}

// serveLog sends what the log of a scope contains after a place, and goes on with what is
// written, until the client disconnects.
func (e *endpoint) serveLog(a *answer, q question) error {
	h, show, err := e.heldAndShown(q)
	if err != nil {
		return err
	}
	var since time.Time
	if text := q.Get("since"); text != "" {
		if since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return refuse(http.StatusBadRequest, "since is %q, want a time such as 2026-01-02T15:04:05Z", text)
		}
	}
	var after store.Place
	if text := q.Get("after"); text != "" && json.Unmarshal([]byte(text), &after) != nil {
		return refuse(http.StatusBadRequest, "after is %q, want a place as /v1/history has it", text)
	}
	release, err := q.slot(e.following)
	if err != nil {
		return err
	}
	defer release()
	current, err := e.catchingUp(q)
	if err != nil {
		return err
	}
	defer current()
	state, err := h.store.History()
	if err != nil {
		return err
	}
	if state.Last.IsZero() || after.Lineage == state.Last.Lineage && after.Mark >= state.Last.Mark {
		current()
	}
	a.ends = time.Time{}
	a.begin("application/jsonl")
	if err := a.flush(); err != nil {
		return err
	}
	some := store.LogFilter{Namespace: q.Get("namespace"), Names: q.Values["name"]}
	events := store.FollowSince(q.ctx, h.store, since, some)
	if !after.IsZero() {
		events = store.FollowSome(q.ctx, h.store, after, some)
	}
	for event, err := range events {
		if err != nil {
			return err
		}
		for _, v := range []**store.Version{&event.Old, &event.New, &event.By, &event.Short} {
			if *v, err = h.sent(*v, show); err != nil {
				return err
			}
		}
		if err := a.line(event); err != nil {
			return err
		}
		if event.Mark == nil {
			continue
		}
		if event.Mark.Mark >= state.Last.Mark {
			current()
		}
		if err := a.flush(); err != nil {
			return err
		}
	}
	return nil
}

// sent returns a state with what is sent of its object: what is sent of a record.
func (h held) sent(v *store.Version, show bool) (*store.Version, error) {
	if v == nil {
		return nil, nil
	}
	out := &store.Version{Header: v.Header, Entry: store.Entry{Key: v.Entry.Key}}
	if !v.IsKnown() {
		return out, nil
	}
	record, err := h.encode(v.Entry.Key, v.Entry, show)
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return out, nil // it is not known any more
	case err != nil:
		return nil, err
	}
	out.Entry.Raw = wire.Raw(record.Codec, record.Payload)
	return out, nil
}
