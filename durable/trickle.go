package durable

import (
	"time"
)

// sweep is where Trickle is in a scope. It goes from a key to the last one, and then from
// the first one to that key.
type sweep struct {
	Begun time.Time `json:"begun,omitzero"`
	From  string    `json:"from,omitempty"`  // it has begun after this key
	After string    `json:"after,omitempty"` // the last key that was delivered
	Swept int       `json:"swept,omitempty"` // how many were
	Once  bool      `json:"once,omitempty"`  // also with Skip and All
}

// anew returns another sweep, which begins where w is. So each object has its turn even
// if no sweep ever ends.
func (w sweep) anew(begun time.Time, once bool) sweep {
	from := w.After
	if from == ended {
		from = w.From
	}
	return sweep{Begun: begun, From: from, After: from, Once: once}
}

// sweepAnewLocked begins another sweep if the program was built from another revision
// before. That is written together with the revision: the place may not move before the
// process ends.
func (c *Consumer) sweepAnewLocked(s *scope, before string) {
	if before != revision() {
		s.sweep = s.sweep.anew(time.Time{}, s.sweep.Once)
		s.known.Sweep = s.sweep
		c.noteLocked(s)
	}
}

// sweepAtOnce is how many objects of a scope a sweep delivers in one go, at most.
const sweepAtOnce = 256

// noteEvery is how often a sweep is written: a crash repeats what it has delivered since.
const noteEvery = 10 * time.Second

// sweep delivers the objects that are due. A sweep that is late, as after a night without
// a process, catches up at sweepAtOnce a second.
func (c *Consumer) sweep(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != active {
		return
	}
	for _, s := range c.scopes {
		if len(s.members) == 0 || c.opts.Unchanged != Trickle && !s.sweep.Once {
			continue
		}
		if err := c.sweepLocked(s, at); err == nil {
			s.unreadable.end()
		} else if s.unreadable.isDue(at) {
			s.logger.Error(err, "Objects could not be read")
		}
	}
}

func (c *Consumer) sweepLocked(s *scope, at time.Time) error {
	w := &s.sweep
	if w.Begun.IsZero() || w.Begun.After(at) { // the clock was set back
		*w = w.anew(at.Round(0), w.Once)
		if s.why != "" {
			return nil // everything has just been delivered
		}
	}
	age := at.Sub(w.Begun)
	late := age >= c.opts.Every
	if late && w.After == ended {
		if c.queue != nil {
			c.queue.raiseLocked()
		}
		*w = w.anew(at.Round(0), false)
		return nil
	}
	objects := s.members[0].feed.Len()
	w.Swept = min(w.Swept, objects)
	limit := int(float64(objects)*(float64(age)/float64(c.opts.Every))) - w.Swept
	if late {
		// What is missing, and not much more, which would come twice behind From. Objects
		// that went make it too little.
		limit = max(objects-w.Swept, 1+objects/sweepAtOnce)
	}
	if limit = min(limit, sweepAtOnce); limit <= 0 || w.After == ended || !s.areLiveLocked() {
		return nil
	}
	after, more := ended, false
	for _, m := range s.members {
		last, rest, err := m.feed.Sweep(w.After, limit)
		if err != nil {
			return err
		}
		after, more = min(after, last), more || rest
	}
	switch beforeFrom := w.After < w.From; {
	case beforeFrom && after >= w.From, !more && (beforeFrom || w.From == ""):
		after = ended
	case !more:
		after = "" // the first keys follow
	}
	if after != w.After {
		w.After = after
		if more {
			w.Swept += limit
		}
	}
	return nil
}

// areLiveLocked reports whether all handlers receive what a sweep brings.
func (s *scope) areLiveLocked() bool {
	for _, m := range s.members {
		if !m.feed.Live() {
			return false
		}
	}
	return true
}

// ended is the After of a sweep that has delivered all objects: no key is above it. It is
// stored as JSON, which has no other bytes than UTF-8.
const ended = "\U0010ffff"
