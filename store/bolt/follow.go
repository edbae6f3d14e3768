package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// followBytes is how much of the log Follow reads in one transaction.
const followBytes = 1 << 20

// Follow implements store.Reader.
func (s *scopeStore) Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		err := s.follow(ctx, after, yield)
		if err != nil && !errors.Is(err, errNoMore) {
			yield(store.Event{}, err)
		}
	}
}

// errNoMore ends follow without an error.
var errNoMore = errors.New("no more")

func (s *scopeStore) follow(ctx context.Context, after store.Place, yield func(store.Event, error) bool) error {
	from, all := uint64(0), after.IsZero()
	var insides store.Insides
	if all && s.db.readOnly {
		if err := s.verifyOwnLog(); err != nil {
			return err
		}
	}
	for found := false; !found; {
		news, s, err := s.news()
		if err != nil {
			return err
		}
		switch from, insides, err = s.find(after); {
		case errors.Is(err, store.ErrAhead) && !s.db.readOnly:
			if waitErr := wait(ctx, news, s); waitErr != nil {
				return fmt.Errorf("%w: %w", err, waitErr)
			}
		case err != nil:
			return err
		default:
			found = true
		}
	}
	lineage := after.Lineage
	for {
		news, s, err := s.news()
		if err != nil {
			return err
		}
		part, err := s.readLog(from, lineage, all)
		if err != nil {
			return err
		}
		insides.Set(part.events)
		for _, e := range part.events {
			if !yield(e, nil) {
				return errNoMore
			}
		}
		from = max(from, part.next)
		if !all || part.end {
			lineage, all = part.lineage, false
		}
		if !part.end {
			continue
		}
		if s.db.readOnly {
			return errNoMore
		}
		if err := wait(ctx, news, s); err != nil {
			return err
		}
	}
}

// news returns a channel that is closed after the next attempt to write, and the store
// that answers reads.
func (s *scopeStore) news() (<-chan struct{}, *scopeStore, error) {
	s, err := s.reader()
	if err != nil {
		return nil, nil, err
	}
	if s.db.isClosed() {
		return nil, nil, store.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempt, s, nil
}

// wait waits for an attempt to write.
func wait(ctx context.Context, news <-chan struct{}, s *scopeStore) error {
	select {
	case <-news:
		return nil
	case <-s.db.committer:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// find returns the number of the first item after a place, and which changes the place is
// inside.
func (s *scopeStore) find(p store.Place) (from uint64, insides store.Insides, err error) {
	if p.IsZero() {
		return 0, insides, nil
	}
	err = s.read("log", func(sn *snapshot) error {
		var inside bool
		from, inside, err = s.findIn(sn, p, false)
		insides = store.InsidesOf(p, inside, sn.logged.Mark.Number)
		return err
	})
	return from, insides, err
}

// findIn is find in a snapshot. readable asks for a place whose content is a state of the
// server.
func (s *scopeStore) findIn(sn *snapshot, p store.Place, readable bool) (from uint64, inside bool, err error) {
	l := &sn.logged
	switch {
	case l.Lineage == "" || l.Mark.Number == 0:
		if p.Exact() {
			return 0, false, store.ErrLineage
		}
		return 0, false, store.ErrTrimmed
	case !p.Exact():
		return s.lookUp(sn, p, readable)
	case p.Lineage != l.Lineage || p.Mark > l.Last || p.Mark < l.Begin:
		return 0, false, store.ErrLineage
	case p.Mark < l.Full:
		return 0, false, store.ErrTrimmed
	}
	var mark *record.Mark
	if err := s.eachBlock(sn, p.Mark, func(b *record.Block) bool {
		if b.Mark != nil && b.Mark.Number == p.Mark {
			mark = b.Mark
		}
		return b.Last() < p.Mark
	}); err != nil {
		return 0, false, s.cutLog(err)
	}
	switch {
	case mark == nil && p.Mark <= l.Full: // it was trimmed, so its lineage is not known
		return 0, false, store.ErrTrimmed
	case mark == nil || mark.Random != p.Random:
		return 0, false, store.ErrLineage
	case readable && (mark.Frozen || mark.Listing):
		return 0, false, store.ErrTrimmed
	}
	return p.Mark + 1, false, nil
}

// cutLog turns damage in the log into store.ErrTrimmed: the log ends there for a caller
// that comes from before, and no relist can mend it.
func (s *scopeStore) cutLog(err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		return fmt.Errorf("%w: %w", store.ErrTrimmed, err)
	}
	return err
}

// lookUp finds a place by resource version or time.
func (s *scopeStore) lookUp(sn *snapshot, p store.Place, readable bool) (from uint64, inside bool, err error) {
	l := &sn.logged
	if p.RV != "" && l.Above != "" && store.Higher(p.RV, l.Above) == l.Above {
		return 0, false, store.ErrTrimmed
	}
	var marks []store.Mark
	reader := &logReader{s: s, sn: sn}
	err = s.eachBlock(sn, max(l.Full, l.Begin), func(b *record.Block) bool {
		if m := b.Mark; m != nil && m.Number <= l.Last && m.Number >= max(l.Full, l.Begin) {
			marks = append(marks, *reader.mark(m))
		}
		return b.Last() < l.Last
	})
	if err != nil {
		return 0, false, s.cutLog(err)
	}
	i, inside, err := store.FindMark(marks, sn.storedRV, p, readable)
	if err != nil {
		return 0, false, err
	}
	return marks[i].Mark + 1, inside, nil
}

// logPart is what readLog has read.
type logPart struct {
	events  []store.Event
	next    uint64 // the number of the next item
	lineage string
	end     bool // the log ends here
}

// readLog reads the next part of the log from a number on. If all is set, it reads what
// is left of trimmed parts, too; otherwise the item with that number has to be there, and
// of that lineage if one is given.
func (s *scopeStore) readLog(from uint64, lineage string, all bool) (part logPart, err error) {
	err = s.readAs("log", want{loaded: true}, func(sn *snapshot) error {
		l := &sn.logged
		part = logPart{next: max(from, 1), lineage: l.Lineage, end: true}
		switch {
		case l.Last == 0:
			if lineage != "" {
				return store.ErrLineage
			}
			return nil
		case lineage != "" && lineage != l.Lineage:
			return store.ErrLineage
		}
		return s.readPart(sn, from, all, &part)
	})
	if !all {
		err = s.cutLog(err)
	}
	return part, err
}

func (s *scopeStore) readPart(sn *snapshot, from uint64, all bool, part *logPart) error {
	l := &sn.logged
	full, err := s.full(sn)
	if err != nil {
		return err
	}
	if !all && from <= full {
		return store.ErrTrimmed
	}
	reader := &logReader{s: s, sn: sn, open: map[string]*store.Event{}, now: time.Now().UnixNano()}
	var events []*store.Event
	size, reads, isGap := 0, true, false
	err = s.eachBlock(sn, from, func(b *record.Block) bool {
		if b.Last() < from {
			return true
		}
		if reads && (size >= followBytes || b.First() > l.Last) {
			reads, part.end = false, b.First() > l.Last
		}
		if !reads {
			return reader.lookAhead(b)
		}
		// What is missing up to full was trimmed.
		if isGap = b.First() > part.next && (!all || part.next > full); isGap {
			return false
		}
		at := reader.timeOf(b)
		for i := range b.Entries {
			if e := &b.Entries[i]; e.Number >= from {
				events = append(events, reader.event(e, at))
				size += e.Size()
			}
		}
		if m := b.Mark; m != nil && m.Number >= from {
			events = append(events, &store.Event{Time: time.Unix(0, at), Mark: reader.mark(m)})
		}
		part.next = b.Last() + 1
		return reader.err == nil
	})
	part.end = part.end || reads
	isShort := part.end && part.next <= l.Last && (!all || l.Last > full)
	if part.end && !isShort {
		part.next = max(part.next, l.Last+1)
	}
	if err == nil {
		err = reader.close()
	}
	switch {
	case err != nil:
		return err
	case all && (isGap || isShort):
		return s.db.corrupt("log of "+s.scope.String(), fmt.Errorf("item %d is missing", part.next))
	case isGap || isShort:
		return store.ErrTrimmed
	}
	for _, e := range events {
		part.events = append(part.events, e.Steps()...)
	}
	return nil
}

// logReader makes events of entries. The state after an entry is the state before the
// next entry of its key or, if there is none, that in the file.
type logReader struct {
	s    *scopeStore
	sn   *snapshot
	open map[string]*store.Event // whose state after is not known yet, by file key
	now  int64
	time int64 // of the last block; 0: none
	err  error
}

// timeOf returns the time of the next block. One of a clock that was ahead has that of
// the block before, or it is now.
func (r *logReader) timeOf(b *record.Block) int64 {
	if b.Time <= r.now {
		r.time = b.Time
	}
	return cmp.Or(r.time, r.now)
}

func (r *logReader) mark(m *record.Mark) *store.Mark {
	return &store.Mark{
		Place:  store.Place{Lineage: r.sn.logged.Lineage, Mark: m.Number, Random: m.Random, RV: m.To, Time: time.Unix(0, m.Time)},
		FromRV: m.From, Frozen: m.Frozen, Listing: m.Listing, Begins: m.Begins,
	}
}

// event returns the event of an entry.
func (r *logReader) event(e *record.LogEntry, at int64) *store.Event {
	before := r.before(e)
	r.resolve(e.Key, before)
	out := &store.Event{Key: e.OwnKey(), Old: before, RV: e.RV, Time: time.Unix(0, at)}
	if e.Since != 0 {
		out.Since = time.Unix(0, e.Since)
	}
	switch {
	case e.Kind&record.KindDeleted != 0:
	case e.Number <= r.sn.logged.Cut: // later changes were left out
		out.New = unknown(e.OwnKey())
	default:
		r.open[e.Key] = out
	}
	return out
}

// before returns the state before an entry.
func (r *logReader) before(e *record.LogEntry) *store.Version {
	switch {
	case e.Kind&record.KindUnknown != 0:
		return unknown(e.OwnKey())
	case e.Kind&record.KindShort != 0:
		return nil
	}
	v, err := r.version(e.Key, e.OwnKey(), e.Header, e.Record)
	r.err = errors.Join(r.err, err)
	return v
}

// resolve sets the state after of the last event of a key.
func (r *logReader) resolve(key string, state *store.Version) {
	e, ok := r.open[key]
	if !ok {
		return
	}
	delete(r.open, key)
	if e.New = state; state == nil { // only damage has the object missing
		e.New = unknown(e.Key)
	}
}

// unknown returns a state of which only the key is known.
func unknown(key string) *store.Version {
	return &store.Version{Header: store.Header{Key: key}, Entry: store.Entry{Key: key}}
}

// lookAhead looks for states after in a block behind those that are read. It returns
// false if there is nothing to look for.
func (r *logReader) lookAhead(b *record.Block) bool {
	for i := range b.Entries {
		if e := &b.Entries[i]; r.open[e.Key] != nil {
			r.resolve(e.Key, r.before(e))
		}
	}
	return len(r.open) > 0 && r.err == nil
}

// close takes the remaining states from the file.
func (r *logReader) close() error {
	for key, e := range r.open {
		state, err := r.version(key, e.Key, r.sn.header(key), r.sn.record(key))
		if err != nil {
			return errors.Join(r.err, err)
		}
		r.resolve(key, state)
	}
	return r.err
}

// header returns an object's header in the file, or nil if there is none. It is valid
// until the snapshot's transaction ends.
func (sn *snapshot) header(key string) []byte {
	if sn.headers == nil {
		return nil
	}
	return sn.headers.Get([]byte(key))
}

// version returns a state in the log or in the file; nil if there was no object.
func (r *logReader) version(key, name string, header, rec []byte) (*store.Version, error) {
	if header == nil {
		return nil, nil
	}
	h, err := r.s.seal.Header(seal.InScope, key, header)
	if err != nil {
		return nil, r.s.db.unreadable("header "+key, err)
	}
	v := &store.Version{Header: h.Public(name)}
	v.Entry, err = r.s.fileEntry(key, rec)
	v.Entry.Key = name
	return v, err
}

// History implements store.Reader.
func (s *scopeStore) History() (state store.LogState, err error) {
	if s, err = s.reader(); err != nil {
		return store.LogState{}, err
	}
	err = s.readAs("log", want{loaded: true}, func(sn *snapshot) error {
		l := &sn.logged
		state = store.LogState{Entries: int(l.Entries), Bytes: l.Bytes, Dropped: l.Dropped}
		reader := &logReader{s: s, sn: sn}
		if l.Mark.Number > 0 {
			last := reader.mark(&l.Mark)
			state.Last, state.Newer = last.Place, last.Frozen || last.Listing
		}
		if sn.scope == nil || sn.scope.Bucket(layout.Log) == nil {
			return nil
		}
		state.Begins = beginOfLog(sn.scope)
		return s.eachBlock(sn, max(l.Full, l.Begin), func(b *record.Block) bool {
			if b.Mark == nil || b.Mark.Number < max(l.Full, l.Begin) || b.Mark.Number > l.Last {
				return b.Last() < l.Last
			}
			state.Oldest = reader.mark(b.Mark).Place
			return false
		})
	})
	return state, s.cutLog(err)
}

// verifyOwnLog checks the log of a scope that was opened read-only.
func (s *scopeStore) verifyOwnLog() error {
	return s.read("log of "+s.scope.String(), func(sn *snapshot) error {
		if sn.scope == nil {
			return nil
		}
		return s.db.verifyLogOf(s.id, sn.scope)
	})
}
