package durable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

// scope is what the consumer knows of a scope. Consumer.mu protects it.
type scope struct {
	id      string
	logger  klog.Logger // names consumer and resource; set before there are members
	known   place       // as in the ledger
	allowed int         // how many handlers may go on from there
	why     string      // why everything is delivered; "" if it is not
	members []*member
	used    bool // there was a member, and its informer has not ended
	// rv is the last resource version that was shared, and lineage the log's at that
	// time. It is shared while known has none, which is so while the scope is listed
	// again: an older one of the same history is right, too.
	rv, lineage string
	// past is the lineage of a history that is no more, in which the place was, or is
	// still.
	past string
	// next is the place that the ledger gets when the fences of all members are passed;
	// nil if there is none.
	next   *store.Place
	fences []fence
	// passed are the fences of the place that the next commit writes. Then their handlers
	// confirm what had departed; nil if there is nothing to confirm.
	passed []fence
	// sweep is where Trickle is, and nextSweep where it was when next was marked: what it
	// has delivered since is not handled.
	sweep, nextSweep sweep
	noted            time.Time // when the sweep was written last
	unreadable       lasting   // objects of a sweep
	recorded         bool      // the ledger has a place
	owed             func()    // ends resume.Owe; nil if there is none
}

// fence is what a member has to pass.
type fence struct {
	m        *member
	at       uint64 // of resume.Feed.Mark
	departed uint64 // the last object that had departed then
}

// noPlace says why everything is delivered at the first start, and partialWhy why after a
// process that had not delivered it.
const (
	noPlace    = "there is no place"
	partialWhy = "the process before had not delivered everything"
)

func moreHandlers(before int) string {
	return fmt.Sprintf("there are more handlers than the %d before", before)
}

// place is the value of a place in the ledger. Without a lineage it has only a resource
// version: it comes from Options.Shared, or there is no place yet.
type place struct {
	Lineage  string `json:"lineage,omitempty"`
	Mark     uint64 `json:"mark,omitempty"`
	Random   uint64 `json:"random,omitempty"`
	RV       string `json:"resourceVersion,omitempty"`
	Handlers int    `json:"handlers"`
	// Partial means that handlers have not received everything since the place.
	Partial bool  `json:"partial,omitempty"`
	Sweep   sweep `json:"sweep,omitzero"`
}

func (p place) store() store.Place {
	return store.Place{Lineage: p.Lineage, Mark: p.Mark, Random: p.Random, RV: p.RV}
}

// member is a handler that was added to an informer.
type member struct {
	feed  resume.Feed
	begun bool
}

// handler is a resume.Handler.
type handler struct {
	cache.ResourceEventHandler
	c *Consumer
}

var _ resume.Handler = (*handler)(nil)

// Handler returns a handler that goes on where that of the process before has ended, when
// it is added to an informer of this project whose scope is in the consumer's backend. It
// may be added to several. Added to another informer, it receives what any handler does.
// A call of h is confirmed by its return: what h adds to a queue of another Consumer, or
// after it has returned, may be lost.
func (c *Consumer) Handler(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return &handler{h, c}
}

// Opened implements resume.Handler.
func (h *handler) Opened(feed resume.Feed) {
	c := h.c
	asked, persisted := feed.Scope()
	if f, ok := feed.(resume.Logged); ok {
		c.logTo(f.Logger())
	}
	logger := klog.LoggerWithValues(c.log(), "resource", asked.String())
	if persisted {
		c.record(asked.ID(), feed, logger)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if feed.Ended() {
		return // Removed came first, or the informer has ended meanwhile
	}
	if !persisted && c.phase == standby {
		c.unplaced = append(slices.DeleteFunc(c.unplaced, resume.Feed.Ended), feed)
		return
	}
	if !persisted || c.phase == over {
		feed.Begin(store.Place{}, true)
		return
	}
	s := c.scopes[asked.ID()]
	s.logger, s.used = logger, true
	// An informer that was made anew takes the place of one that has ended.
	s.members = slices.DeleteFunc(s.members, func(m *member) bool { return m.feed.Ended() })
	m := &member{feed: feed}
	s.members = append(s.members, m)
	s.endOwedLocked() // what m has not confirmed is kept from now on
	s.next = nil      // it does not include the new member
	if s.why == "" && len(s.members) > s.allowed {
		c.invalidateLocked(s, moreHandlers(s.allowed))
	}
	if c.phase == active || c.phase == deposed {
		c.beginLocked(s, m)
	}
}

// endOwedLocked ends resume.Owe.
func (s *scope) endOwedLocked() {
	if s.owed != nil {
		s.owed()
	}
}

// record makes sure that the ledger has a place of a scope before a handler receives
// something. Without a place, the next process would not look for what this one has
// received and not worked on before its first commit.
func (c *Consumer) record(id string, feed resume.Feed, logger klog.Logger) {
	if !c.isUnrecorded(id, feed) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := c.commit(ctx); err != nil {
		logger.Error(err, "Handlers begin before their place is written")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scopes[id].recorded = true
}

// isUnrecorded adds a scope that is new. It reports whether the ledger may have no place
// of it yet.
func (c *Consumer) isUnrecorded(id string, feed resume.Feed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == over {
		return false
	}
	s := c.scopes[id]
	switch {
	case s == nil:
		s = &scope{id: id, why: noPlace, known: partial(feed.Last())}
		c.scopes[id] = s
		c.noteLocked(s)
	case s.known.store().IsZero():
		// The process before has died before the log began, or soon after.
		s.known = partial(feed.First())
		c.noteLocked(s)
	}
	return !s.recorded
}

// beginLocked begins a member at the place of its scope.
func (c *Consumer) beginLocked(s *scope, m *member) {
	if m.begun {
		return
	}
	m.begun = true
	if s.why != "" && s.why != noPlace {
		s.logger.Info("A consumer receives everything", "because", s.why)
	}
	m.feed.Begin(s.known.store(), s.why != "" || c.opts.Unchanged == All)
}

// invalidateLocked makes the handlers of a scope receive everything. Its place stays
// where deletions are known from.
func (c *Consumer) invalidateLocked(s *scope, why string) {
	s.why, s.allowed, s.next, s.passed = why, 0, nil, nil
	s.known.Partial, s.known.Handlers = true, 0
	c.noteLocked(s)
	for _, m := range s.members {
		if m.begun {
			m.begun = false
			c.beginLocked(s, m)
		}
	}
}

// partial returns the place from which deletions are known while everything is delivered.
func partial(at store.Place) place {
	return place{Lineage: at.Lineage, Mark: at.Mark, Random: at.Random, RV: at.RV, Partial: true}
}

// Removed implements resume.Handler. The place does not move until there are as many
// handlers again, or the log does not reach back to it: what a handler has not received
// may be after it.
func (h *handler) Removed(feed resume.Feed) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	for _, s := range h.c.scopes {
		before := len(s.members)
		s.members = slices.DeleteFunc(s.members, func(m *member) bool { return m.feed == feed })
		if len(s.members) < before {
			s.next = nil
		}
	}
	h.c.unplaced = slices.DeleteFunc(h.c.unplaced, func(f resume.Feed) bool { return f == feed })
}

// Lost implements resume.Handler.
func (h *handler) Lost(feed resume.Feed, err error) {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.scopes {
		if slices.ContainsFunc(s.members, func(m *member) bool { return m.feed == feed }) {
			c.lostLocked(s, feed, err)
		}
	}
}

func (c *Consumer) lostLocked(s *scope, feed resume.Feed, err error) {
	defer c.noteLocked(s)
	if s.why == "" && s.known.Lineage == "" && c.opts.Unchanged != All && !errors.Is(err, store.ErrLineage) {
		// What was deleted is not known, nor what was changed and is the same again.
		s.sweep = s.sweep.anew(time.Now().Round(0), true)
		s.known.Sweep = s.sweep
		s.logger.Info("A consumer receives what is newer than its resource version, and the rest one by one",
			"resourceVersion", s.known.RV, "because", err.Error())
		return
	}
	// Who is missing receives everything, too, so nobody waits for it.
	s.why, s.allowed, s.next, s.passed, s.known = err.Error(), 0, nil, nil, partial(feed.First())
	s.rv, s.lineage = "", ""
	if errors.Is(err, store.ErrLineage) {
		c.shared.forget(s.id)
	}
	s.logger.Info("A consumer receives everything", "because", s.why)
}

// advanceLocked moves the places of scopes whose handlers have passed their fences, and
// sets new fences. A place does not move while a handler that it knows is missing, as
// long as the log reaches back to it.
func (c *Consumer) advanceLocked() {
	for _, s := range c.scopes {
		if c.frozen {
			return
		}
		if s.known.store().IsZero() && len(s.members) > 0 {
			// The first list is written, and the log begins there.
			if at := s.members[0].feed.First(); !at.IsZero() {
				s.known = partial(at)
				c.noteLocked(s)
			}
		}
		ended := false
		if s.next == nil {
			c.giveUpLocked(s)
			ended = s.areEndedLocked()
			s.markLocked()
		}
		// First: a handler may return from its last call meanwhile.
		stays := s.staysLocked()
		if s.next == nil || !s.hasPassedLocked() {
			if stays {
				s.dropMembersLocked()
			}
			continue
		}
		next := place{
			Lineage: s.next.Lineage, Mark: s.next.Mark, Random: s.next.Random, RV: s.next.RV,
			Handlers: len(s.members), Sweep: s.nextSweep,
		}
		s.next, s.passed, s.fences = nil, s.fences, nil
		if s.nextSweep != s.known.Sweep {
			s.noted = time.Now()
		}
		if next != s.known {
			s.known = next
			c.noteLocked(s)
		} else if ended && s.sweep == s.known.Sweep {
			s.dropMembersLocked()
		}
	}
}

// giveUpLocked gives up the handlers that are missing when the log does not lead on from
// the place: they would receive everything, and those that are there need not, too.
func (c *Consumer) giveUpLocked(s *scope) {
	missing := s.missingLocked()
	if missing == 0 || len(s.members) == 0 || !c.isLongActiveLocked(time.Now()) {
		return
	}
	first := s.members[0].feed.First()
	why := s.whyCutLocked(first)
	if why == nil || first.IsZero() {
		return
	}
	s.allowed, s.known.Handlers = len(s.members), len(s.members)
	s.logger.Info("Handlers of a consumer are missing, its place moves without them",
		"missing", missing, "because", why.Error())
}

// whyCutLocked returns why the log, which begins at first, does not lead on from the
// place; nil if it does.
func (s *scope) whyCutLocked(first store.Place) error {
	history, after := s.known.Lineage, first.Mark > s.known.Mark
	if history == "" { // the place has only a resource version
		history = cmp.Or(s.lineage, first.Lineage)
		after = store.Higher(s.known.RV, first.RV) != s.known.RV
	}
	switch {
	case history != first.Lineage:
		return store.ErrLineage
	case after:
		return store.ErrTrimmed
	}
	return nil
}

// areEndedLocked reports whether the informers of all handlers have ended.
func (s *scope) areEndedLocked() bool {
	return !slices.ContainsFunc(s.members, func(m *member) bool { return !m.feed.Ended() })
}

// staysLocked reports whether the place stays where it is: the informers have ended, and
// a fence that is set will not be passed. If none is set, a handler is missing or will
// not return from everything that was before the end.
func (s *scope) staysLocked() bool {
	if len(s.members) == 0 || !s.areEndedLocked() {
		return false
	}
	if s.next != nil {
		return slices.ContainsFunc(s.fences, func(f fence) bool {
			_, _, ok := f.m.feed.Mark()
			return !ok && !f.m.feed.Passed(f.at)
		})
	}
	return s.missingLocked() > 0 || slices.ContainsFunc(s.members, func(m *member) bool {
		_, _, ok := m.feed.Mark()
		return !ok
	})
}

// dropMembersLocked forgets handlers whose informers have ended: nothing more comes of
// them, and their objects need no memory.
func (s *scope) dropMembersLocked() {
	s.members, s.used, s.next, s.fences = nil, false, nil, nil
}

// noteLocked writes the place of a scope with the next commit.
func (c *Consumer) noteLocked(s *scope) {
	if b, err := json.Marshal(s.known); err == nil {
		c.changed[prefixPlace+s.id] = b
	}
}

// missingLocked returns how many handlers that the place knows are not there.
func (s *scope) missingLocked() int {
	return max(max(s.allowed, s.known.Handlers)-len(s.members), 0)
}

// markLocked sets a fence for each member.
func (s *scope) markLocked() {
	if len(s.members) == 0 || s.missingLocked() > 0 {
		return
	}
	var first store.Place
	s.fences, s.nextSweep = nil, s.known.Sweep
	if time.Since(s.noted) >= noteEvery || s.sweep.After == ended {
		s.nextSweep = s.sweep
	}
	for i, m := range s.members {
		departed := uint64(0)
		if f, ok := m.feed.(resume.Confirmer); ok {
			departed = f.Departed()
		}
		at, number, ok := m.feed.Mark()
		if !ok {
			return
		}
		if i == 0 {
			first = at
		}
		s.fences = append(s.fences, fence{m, number, departed})
	}
	s.next = &first
}

func (s *scope) hasPassedLocked() bool {
	return !slices.ContainsFunc(s.fences, func(f fence) bool { return !f.m.feed.Passed(f.at) })
}

// confirmLocked confirms what the handlers have received up to the places that are
// written.
func (c *Consumer) confirmLocked() {
	for _, s := range c.scopes {
		for _, f := range s.passed {
			if feed, ok := f.m.feed.(resume.Confirmer); ok {
				feed.Confirm(f.departed)
			}
		}
		s.passed = nil
	}
}

// loseLocked makes all places invalid: handlers receive everything.
func (c *Consumer) loseLocked(why string) {
	if c.invalid == "" {
		c.invalid = why
	}
	for _, s := range c.scopes {
		if s.why == "" {
			c.invalidateLocked(s, why)
		}
	}
}

// Freeze keeps all places where they are until the process ends: the next one receives
// once more what handlers receive from now on. Call it where handlers cannot work any
// more, for example because a context of theirs has ended and they are still called.
// Package controllerruntime calls it when a controller ends.
func (c *Consumer) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freezeLocked()
}

// freezeLocked is Freeze.
func (c *Consumer) freezeLocked() {
	c.frozen = true
	for _, s := range c.scopes {
		s.next = nil
	}
}
