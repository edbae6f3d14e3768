package durable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Shared keeps the place and the queue of a Consumer outside its file. InCluster returns
// one.
//
// One process at a time has the term: it has raised its number by a compare-and-swap, and
// what it writes later succeeds only while the term is still its own. A process whose
// file has another term than Shared goes on with what Shared has, because another process
// was active since: the keys of the file are dropped, and the log of the file is followed
// from the resource version of the place. Without a file, or if its log does not reach
// back, handlers receive what has departed, what the log has, the objects that are newer,
// and then the rest as Trickle does. Other deletions before the log begins are not known
// then. Handlers receive everything if the resource version of the place is above what
// the informer has 5 seconds after it synced, or may be of the history before a rewind:
// the server was restored from a backup.
type Shared interface {
	// read returns what there is, nil if nothing, and its version.
	read(ctx context.Context) (b []byte, version string, err error)
	// write replaces what has a version, "" if there is nothing, and returns the new
	// one. Otherwise the error is errConflict.
	write(ctx context.Context, b []byte, version string) (string, error)
}

var errConflict = errors.New("somebody else has written")

const (
	// shareEvery is how often Shared is written. A successor repeats what was done since.
	shareEvery = 10 * time.Second
	// sharePatience is how long one call of Shared may take.
	sharePatience = 10 * time.Second
	// firstRetry and lastRetry bound the time between two attempts to take over.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// maxRounds bounds the places that sharing remembers.
	maxRounds = 512
)

// term says which process has, or had, the right to write Shared.
type term struct {
	Number uint64 `json:"number"`
	Holder string `json:"holder"` // random
}

// sharing is what a Consumer has for its Shared. The goroutine of await uses it, and
// after its end Close.
type sharing struct {
	Shared
	holder  string
	version string // of what was read or written last
	written []byte
	// err is why Shared could not be read or written last. Consumer.mu protects it.
	err     error
	failing lasting
	// rounds are the places that were to be written, in their order. A key that began to
	// wait in or after a round has its cause after the places of the round. Consumer.mu
	// protects it.
	rounds []round
}

type round struct {
	number uint64
	scopes map[string]place
}

// lastRound returns the number of the last round, 0 before the first one.
func (s *sharing) lastRound() uint64 {
	if s == nil || len(s.rounds) == 0 {
		return 0
	}
	return s.rounds[len(s.rounds)-1].number
}

// share takes over, and then keeps Shared up to date.
func (c *Consumer) share(ctx context.Context) {
	if !c.takeOver(ctx) {
		return
	}
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	for {
		c.publish(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// takeOver makes the term the consumer's, and goes on with what the process before has
// left. It tries until ctx ends: handlers receive nothing before.
func (c *Consumer) takeOver(ctx context.Context) bool {
	var before document
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		done, err := c.claim(ctx, &before)
		c.noteShared(ctx, err)
		if done {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// claim makes one attempt to take over. before is what another process has left.
func (c *Consumer) claim(ctx context.Context, before *document) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, sharePatience)
	defer cancel()
	b, version, err := c.shared.read(ctx)
	if err != nil {
		return false, err
	}
	var doc document
	if b != nil {
		if err := doc.decode(b); err != nil {
			return false, unreadable(err)
		}
	}
	// If the holder is this process, the answer to an earlier attempt was lost.
	if doc.Term.Holder != c.shared.holder {
		*before = doc
	}
	doc.Term = term{doc.Term.Number + 1, c.shared.holder}
	c.mu.Lock()
	reset := c.reset
	c.mu.Unlock()
	if reset {
		// With this content, nobody goes on from a file of an older term.
		*before, doc = document{}, document{Term: doc.Term, Content: doc.Term}
	}
	if b, _, err = doc.compress(); err != nil {
		return false, err
	}
	if version, err = c.shared.write(ctx, b, version); err != nil {
		return false, err
	}
	c.shared.version = version
	c.mu.Lock()
	defer c.mu.Unlock()
	// A file of either term is not older than the document.
	switch {
	case before.Term.Number != 0 && before.Term != c.term && before.Content != c.term:
		c.replaceLocked(*before)
	case c.damaged:
		c.addKeysLocked(*before)
	}
	for id, known := range before.Scopes {
		if s := c.scopes[id]; s != nil {
			s.rv, s.lineage = known.RV, s.known.Lineage
		}
	}
	c.term, c.reset, c.damaged = doc.Term, false, false
	c.noteStateLocked()
	c.activateLocked()
	return true, nil
}

// replaceLocked replaces the places and the keys of the file by those of a document.
func (c *Consumer) replaceLocked(doc document) {
	c.log().Info("A consumer goes on where another process has ended",
		"term", doc.Term.Number, "keys", len(doc.Keys), "scopes", len(doc.Scopes))
	c.invalid = ""
	if doc.Version != c.opts.Version {
		c.invalid = c.otherVersion(doc.Version)
	}
	for id := range doc.Scopes {
		if c.scopes[id] == nil {
			c.scopes[id] = &scope{id: id}
		}
	}
	for id, s := range c.scopes {
		known, ok := doc.Scopes[id]
		if !ok {
			known = partial(s.known.store()) // this file may know what was deleted since
		}
		s.known, s.allowed, s.sweep, s.next, s.rv = known, known.Handlers, known.Sweep, nil, ""
		c.sweepAnewLocked(s, doc.Revision)
		switch {
		case !ok:
			c.invalidateLocked(s, noPlace)
		case c.invalid != "":
			c.invalidateLocked(s, c.invalid)
		case known.Partial:
			c.invalidateLocked(s, partialWhy)
		case len(s.members) > s.allowed:
			c.invalidateLocked(s, moreHandlers(s.allowed))
		default:
			s.why = ""
			c.noteLocked(s)
		}
	}
	for key := range c.keys {
		c.changed[prefixKey+key] = nil
	}
	c.keys = c.keysLocked(doc)
	for key, state := range c.keys {
		c.changed[prefixKey+key] = state
	}
	if c.queue != nil {
		c.queue.replaceLocked()
	}
}

// addKeysLocked adds the keys of a document that the file lacks, because its ledger is
// damaged.
func (c *Consumer) addKeysLocked(doc document) {
	added := c.keysLocked(doc)
	maps.DeleteFunc(added, func(key string, _ []byte) bool {
		_, has := c.keys[key]
		return has || c.queue != nil && c.queue.hasRestoredLocked(key)
	})
	if len(added) == 0 {
		return
	}
	c.log().Info("A consumer adds keys that were shared, because its ledger is damaged", "keys", len(added))
	for key, state := range added {
		c.changed[prefixKey+key] = state
	}
	if c.queue == nil {
		maps.Copy(c.keys, added)
		return
	}
	c.keys = added
	c.queue.restoreLocked()
}

// keysLocked returns the keys of a document with their encoded states.
func (c *Consumer) keysLocked(doc document) map[string][]byte {
	keys := map[string][]byte{}
	for _, k := range doc.Keys {
		key, err := unquote(k.Key)
		b, err2 := json.Marshal(k.keyState)
		if errors.Join(err, err2) != nil {
			c.loseLocked("a key of the queue cannot be read")
			continue
		}
		keys[key] = b
	}
	return keys
}

// noteShared logs and remembers how an access to Shared has ended.
func (c *Consumer) noteShared(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.shared.err = err; {
	case err == nil:
		if c.shared.failing.end() {
			c.log().Info("What a consumer shares is read and written again")
		}
	case errors.Is(err, errConflict): // the next attempt reads what is there
	case c.shared.failing.isDue(time.Now()):
		c.log().Error(err, "What a consumer shares could not be read or written, trying again")
	}
}

// publish writes what is left to do for a successor, if the consumer is active.
func (c *Consumer) publish(ctx context.Context) {
	doc, rounds, ok := c.document()
	if !ok {
		return
	}
	b, err := doc.encode(rounds)
	if err == nil && !bytes.Equal(b, c.shared.written) {
		err = c.write(ctx, b, doc.Term)
	}
	c.noteShared(ctx, err)
}

func unreadable(err error) error {
	return fmt.Errorf("what was shared cannot be read; delete it to begin anew: %w", err)
}

// write writes a document, unless another process has taken over.
func (c *Consumer) write(ctx context.Context, b []byte, mine term) error {
	ctx, cancel := context.WithTimeout(ctx, sharePatience)
	defer cancel()
	version, err := c.shared.write(ctx, b, c.shared.version)
	if errors.Is(err, errConflict) {
		var there []byte
		var doc document
		if there, version, err = c.shared.read(ctx); err != nil {
			return err
		}
		if there != nil {
			if err := doc.decode(there); err != nil {
				return unreadable(err)
			}
			if doc.Term != mine {
				c.depose(doc.Term)
				return nil
			}
		}
		// Somebody has edited or deleted it, or the answer to an earlier write was lost.
		version, err = c.shared.write(ctx, b, version)
	}
	if err == nil {
		c.shared.version, c.shared.written = version, b
	}
	return err
}

// depose ends all writing: another process goes on with what is left.
func (c *Consumer) depose(by term) {
	// A write of the ledger that has begun ends before.
	_ = c.writing.Acquire(context.Background(), 1) // it fails with its context only
	defer c.writing.Release(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = deposed
	c.log().Info("Another process has taken a consumer over, nothing is written any more",
		"term", c.term.Number, "newTerm", by.Number)
}

// document returns what is left to do, and the rounds before. ok is false if the
// consumer is not active.
func (c *Consumer) document() (doc document, rounds []round, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != active {
		return doc, nil, false
	}
	places := map[string]place{}
	for id, s := range c.scopes {
		before := s.lineage
		s.noteRVLocked()
		if s.rv == "" || before != "" && s.lineage != before {
			c.shared.forget(id)
		}
		if s.rv == "" {
			continue
		}
		p := s.known
		p.Lineage, p.Mark, p.Random, p.RV = "", 0, 0, s.rv
		places[id] = p
	}
	var keys []sharedKey
	if c.queue != nil {
		keys = c.queue.shareLocked()
	}
	for key, value := range c.keys { // nobody has made a queue
		k := sharedKey{Key: quote(key)}
		if json.Unmarshal(value, &k.keyState) == nil {
			keys = append(keys, k)
		}
	}
	rounds = slices.Clone(c.shared.rounds)
	c.shared.beginRound(places)
	doc = document{Term: c.term, Content: c.term, Version: c.opts.Version, Revision: revision(), Scopes: places, Keys: keys}
	return doc, rounds, true
}

// noteRVLocked notes the resource version from where a successor may go on. There is none
// while the place is of a history that is no more: the server was restored from a backup
// since, and what has a lower resource version may be new.
func (s *scope) noteRVLocked() {
	log := s.logLocked()
	history := cmp.Or(s.known.Lineage, s.lineage, log) // of the place
	if log != "" && history != log {
		s.past = history
	}
	switch {
	case s.past != "" && history == s.past:
		s.rv = ""
	case s.known.RV != "":
		s.rv, s.lineage = s.known.RV, history
	case s.lineage != s.known.Lineage: // the history was rewound
		s.rv = ""
	}
}

// logLocked returns the lineage of the log, "" if no handler knows it.
func (s *scope) logLocked() string {
	for _, m := range s.members {
		if !m.feed.Ended() {
			return m.feed.Last().Lineage
		}
	}
	return ""
}

// forget removes the places of a scope, which are of a history that is no more, from the
// rounds: a successor that begins at one of these rounds receives everything. The maps
// are not changed, because a document may have them.
func (s *sharing) forget(id string) {
	if s == nil {
		return
	}
	for i, r := range s.rounds {
		if _, has := r.scopes[id]; has {
			scopes := maps.Clone(r.scopes)
			delete(scopes, id)
			s.rounds[i].scopes = scopes
		}
	}
}

// beginRound remembers places. If there are too many, every second one is forgotten: an
// older place is right, too, but brings more.
func (s *sharing) beginRound(places map[string]place) {
	if n := len(s.rounds); n > 0 && maps.Equal(s.rounds[n-1].scopes, places) {
		return
	}
	next := s.lastRound() + 1 // of those that are forgotten, too: no number comes again
	if len(s.rounds) == maxRounds {
		kept := s.rounds[:0]
		for i, r := range s.rounds {
			if i%2 == 0 {
				kept = append(kept, r)
			}
		}
		s.rounds = kept
	}
	s.rounds = append(s.rounds, round{next, places})
}
