package reflector

import (
	"maps"
	"strings"
	"time"
)

// Status describes what a reflector is doing.
type Status struct {
	Listing string         // the reason for the list in progress; "" if there is none
	Listed  int            // objects received by the list
	Lists   int            // finished lists
	Reasons map[string]int // finished lists by reason, which is cut at its first colon
	// Start is how the reflector caught up with the state at the start: "resumed" or
	// "listed", or "" while it has not. StartReason is the reason of the last list
	// before.
	Start, StartReason string
	Resumes            int       // watches that resumed from a held resource version
	Events             int       // changes delivered by watches
	LastEvent          time.Time // zero if there was none
	LastBookmark       time.Time // but for the one that ends a list
	// LastAnswer is when the server last answered a list or a probe, or ended a watch in
	// order; zero if it has not.
	LastAnswer    time.Time
	LastError     string // "" after a success
	LastErrorTime time.Time
	Errors        int // of lists, watches and probes
}

// Status returns a copy of what the reflector is doing. It does not block.
func (r *Reflector) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Reasons = maps.Clone(s.Reasons)
	return s
}

// note updates the status.
func (r *Reflector) note(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

func (s *Status) listed(reason string) {
	s.Lists++
	if s.Reasons == nil {
		s.Reasons = map[string]int{}
	}
	kind, _, _ := strings.Cut(reason, ": ")
	s.Reasons[kind]++
	if s.answered(); s.Start == "" {
		s.StartReason = reason
	}
}

func (s *Status) answered() { s.LastError, s.LastAnswer = "", time.Now() }

func (s *Status) failed(err error) {
	s.LastError, s.LastErrorTime = err.Error(), time.Now()
	s.Errors++
}

func (s *Status) caughtUp() {
	if s.Start = "listed"; s.Lists == 0 {
		s.Start = "resumed"
	}
}
