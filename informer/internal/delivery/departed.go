package delivery

import "github.com/informctl/informctl/internal/resume"

// loadDepartedLocked reads the next departed objects. After the last one, the handler
// goes on with the stored objects, and receives later departures like any deletion. It
// returns false if the store cannot be read now.
func (r *Registration) loadDepartedLocked() bool {
	some, more, err := r.hub.departures.Next(&r.departed)
	if err != nil {
		r.hub.env.Failed(err)
		return false
	}
	r.cursor.walk(some...)
	r.fences.Queue(len(some))
	if !more {
		r.departedLocked()
	}
	return true
}

// lacksLocked reports whether a handler that is removed, and is no resume.Handler, has
// not received everything that has departed.
func (r *Registration) lacksLocked() bool {
	d := &r.hub.departures
	if r.client || r.goesOn != nil || !d.Exist() || r.departed.Confirmed >= d.Last() {
		return false
	}
	// After End it has dropped what waited.
	return r.stage == departing || r.departed.Deletions > 0 || r.hub.phase == ended
}

// settleLocked tells the store which departed objects all handlers have confirmed.
func (h *Hub) settleLocked() {
	if !h.departures.Exist() {
		return
	}
	last, present := h.departures.Last(), false
	upTo := last
	for r := range h.handlers {
		if r.client {
			continue // the client may come again
		}
		if r.goesOn == nil && r.departed.Deletions == 0 && r.HasSynced() && h.phase != ended {
			r.departed.Confirmed = last
		}
		upTo, present = min(upTo, r.departed.Confirmed), true
	}
	if present {
		h.departures.Settle(upTo, last, resume.IsOwed(h.scope))
	}
}
