package reflector

import (
	"maps"
	"strings"
	"time"
)

// Status is what a reflector is doing.
type Status struct {
	Listing string         // why the list that is under way is; "" where none is
	Listed  int            // objects received of it
	Lists   int            // lists finished
	Reasons map[string]int // the same by reason, up to the reason's first colon
	// Start is how the state of the server at the start was reached: "resumed",
	// "listed", with the reason of the last list before, or "" where it is not yet.
	Start, StartReason string
	Resumes            int       // watches that went on from a held resource version
	Events             int       // changes that watches have brought
	LastEvent          time.Time // zero where there was none
	LastBookmark       time.Time
	LastError          string // "" since the last success
	LastErrorTime      time.Time
	Errors             int // of lists, watches and probes
}

// Status returns a copy of what the reflector is doing. It does not block.
func (r *Reflector) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Reasons = maps.Clone(s.Reasons)
	return s
}

// note changes what Status says.
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
	if s.LastError = ""; s.Start == "" {
		s.StartReason = reason
	}
}

func (s *Status) failed(err error) {
	s.LastError, s.LastErrorTime = err.Error(), time.Now()
	s.Errors++
}

func (s *Status) caughtUp() {
	if s.Start = "listed"; s.Lists == 0 {
		s.Start = "resumed"
	}
}
