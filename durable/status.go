package durable

import (
	"cmp"
	"slices"
)

// Status describes a Consumer.
type Status struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Active  bool   `json:"active"`
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

// ScopeStatus describes what a Consumer knows of one scope.
type ScopeStatus struct {
	ID string `json:"id"`
	// ResourceVersion is that of the place in the ledger.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Handlers        int    `json:"handlers"`
	// Missing is the number of handlers that the place knows and that were not added yet.
	// The place does not move until they are.
	Missing int `json:"missing,omitempty"`
	// Everything says why handlers received everything; "" if they went on.
	Everything string `json:"everything,omitempty"`
}

// Status describes the Consumer now.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := Status{Name: c.name, Version: c.opts.Version, Active: c.phase == active, Term: c.term.Number, Scopes: []ScopeStatus{}}
	for _, s := range c.scopes {
		out.Scopes = append(out.Scopes, ScopeStatus{
			ID: s.id, ResourceVersion: s.known.RV, Handlers: len(s.members),
			Missing: max(s.allowed-len(s.members), 0), Everything: s.why,
		})
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
