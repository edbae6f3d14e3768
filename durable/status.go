package durable

import (
	"cmp"
	"slices"
	"time"

	"github.com/informctl/informctl/store"
)

// Status describes a Consumer.
type Status struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// State is one of the constants below.
	State string `json:"state"`
	// Term is the number of the term in Options.Shared that the file is of, and
	// SharedError why Shared could not be read or written last.
	Term        uint64 `json:"term,omitempty"`
	SharedError string `json:"sharedError,omitempty"`

	Scopes     []ScopeStatus `json:"scopes"`
	Waiting    int           `json:"waiting"`
	InWork     int           `json:"inWork"`
	Delayed    int           `json:"delayed"`
	Failed     int           `json:"failed"`     // keys with failures, wherever they are
	Unresolved int           `json:"unresolved"` // they run after the next start
}

// count counts a key of the queue.
func (s *Status) count(key keyState, now time.Time) {
	switch {
	case key.Waits, !key.Due.IsZero() && !key.Due.After(now):
		s.Waiting++
	case !key.Due.IsZero():
		s.Delayed++
	}
	if key.Failures > 0 {
		s.Failed++
	}
	if key.Unresolved {
		s.Unresolved++
	}
}

// States of a Consumer.
const (
	Standby = "standby" // it waits for Options.Elected, or for Options.Shared
	Active  = "active"
	Deposed = "deposed" // another process has taken Options.Shared over
	Stopped = "stopped" // no process has it
)

// ScopeStatus describes what a Consumer knows of one scope.
type ScopeStatus struct {
	ID string `json:"id"`
	// ResourceVersion is that of the place in the ledger.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Handlers        int    `json:"handlers"`
	// Missing is the number of handlers that the place knows and that were not added yet,
	// or were removed. The place does not move until they are added, or until the log
	// does not lead on from it: from then on they are not missing, and receive
	// everything if they come. A scope for which no handler has come in ten minutes of
	// work, or whose informers have ended, counts as one that the program has given up:
	// it misses nothing after these ten minutes.
	Missing int `json:"missing,omitempty"`
	// Behind is the number of commits in the log of the scope that are after the place,
	// while a process has the Consumer.
	Behind uint64 `json:"behind,omitempty"`
	// Everything says why handlers received everything; "" if they went on.
	Everything string `json:"everything,omitempty"`
}

// Status describes the Consumer now.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := Status{
		Name: c.name, Version: c.opts.Version, State: [...]string{Standby, Active, Deposed, Stopped}[c.phase],
		Term: c.term.Number, Scopes: []ScopeStatus{},
	}
	for _, s := range c.scopes {
		of := ScopeStatus{ID: s.id, ResourceVersion: s.known.RV, Handlers: len(s.members), Behind: s.behindLocked()}
		if s.used || !c.isLongActiveLocked(time.Now()) {
			of.Missing, of.Everything = s.missingLocked(), s.why
		}
		out.Scopes = append(out.Scopes, of)
	}
	slices.SortFunc(out.Scopes, func(a, b ScopeStatus) int { return cmp.Compare(a.ID, b.ID) })
	if c.shared != nil && c.shared.err != nil {
		out.SharedError = c.shared.err.Error()
	}
	if c.queue != nil {
		c.queue.countLocked(&out)
	}
	return out
}

// behindLocked returns the number of commits after the place.
func (s *scope) behindLocked() uint64 {
	if len(s.members) == 0 {
		return 0
	}
	last := s.members[0].feed.Last()
	if last.Lineage != s.known.Lineage || last.Mark < s.known.Mark {
		return 0
	}
	return last.Mark - s.known.Mark
}

// Statuses describes the consumers of a backend that the process has now, ordered by
// name.
func Statuses(backend store.Backend) []Status {
	out := []Status{}
	for id, c := range consumers.Range {
		//nolint:forcetypeassert // the types of consumers
		if id.(inUse).backend == backend {
			out = append(out, c.(*Consumer).Status())
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
