package bolt

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Follow implements store.Reader.
func (s *scopeStore) Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error] {
	return s.FollowSome(ctx, after, store.LogFilter{})
}

// FollowSome implements store.LogFilterer.
func (s *scopeStore) FollowSome(ctx context.Context, after store.Place, f store.LogFilter) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		err := s.follow(ctx, after, f, yield)
		if err != nil && !errors.Is(err, errNoMore) {
			yield(store.Event{}, err)
		}
	}
}

// errNoMore ends follow without an error.
var errNoMore = errors.New("no more")

func (s *scopeStore) follow(ctx context.Context, after store.Place, f store.LogFilter, yield func(store.Event, error) bool) error {
	all := after.IsZero()
	var mark store.Mark // after which events are yielded
	var insides store.Insides
	if all {
		if err := s.checks.log(); err != nil {
			return err
		}
	}
	for found := all; !found; {
		news, s, err := s.news()
		if err != nil {
			return err
		}
		switch mark, insides, err = s.find(after); {
		case errors.Is(err, store.ErrAhead) && !s.db.readOnly:
			if waitErr := wait(ctx, news, s); waitErr != nil {
				return fmt.Errorf("%w: %w", err, waitErr)
			}
		case err != nil && s.isReplaced(): // it has no log any more
		case err != nil:
			return err
		default:
			found = true
		}
	}
	from, lineage, ahead := mark.Mark+1, mark.Lineage, changelog.Ahead{Filter: f, WholeCommits: insides != store.Insides{}}
	for {
		news, s, err := s.news()
		if err != nil {
			return err
		}
		part, err := s.readLog(from, lineage, all, &ahead)
		if s.isReplaced() && (err != nil || part.Lineage == "") {
			continue
		}
		if err != nil {
			return err
		}
		insides.Set(part.Events)
		for _, e := range part.Events {
			if !yield(e, nil) {
				return errNoMore
			}
		}
		from = max(from, part.Next)
		if !all || part.End {
			lineage, all = part.Lineage, false
		}
		if !part.End {
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
	attempt, isReplaced := s.attempt, s.isReplaced()
	s.mu.Unlock()
	if isReplaced { // meanwhile: it is written no more
		return s.news()
	}
	return attempt, s, nil
}

// wait waits for an attempt to write.
func wait(ctx context.Context, news <-chan struct{}, s *scopeStore) error {
	select {
	case <-news:
		return nil
	case <-s.db.committer.done:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// find returns the mark that a place means, and which changes the place is inside.
func (s *scopeStore) find(p store.Place) (mark store.Mark, insides store.Insides, err error) {
	err = s.read("log", func(sn *snapshot) (err error) {
		var inside bool
		mark, inside, err = sn.log().MarkAt(p, false)
		insides = store.InsidesOf(p, inside, sn.logged.Mark.Number)
		return err
	})
	return mark, insides, err
}

// MarkAt implements store.MarkFinder.
func (s *scopeStore) MarkAt(p store.Place, readable bool) (m store.Mark, inside bool, err error) {
	if s, err = s.reader(); err != nil {
		return m, false, err
	}
	err = s.read("log", func(sn *snapshot) error {
		m, inside, err = sn.log().MarkAt(p, readable)
		return err
	})
	if err != nil && s.isReplaced() {
		return s.MarkAt(p, readable)
	}
	return m, inside, err
}

// readLog reads the next part of the log from a number on: see changelog.Reader.Read. The
// log has to be of the lineage, if one is given.
func (s *scopeStore) readLog(from uint64, lineage string, all bool, ahead *changelog.Ahead) (part changelog.Part, err error) {
	err = s.readAs("log", want{loaded: true}, func(sn *snapshot) error {
		if lineage != "" && lineage != sn.logged.Lineage {
			return store.ErrLineage
		}
		part, err = sn.log().Read(from, all, ahead)
		return err
	})
	if !all {
		err = changelog.Cut(err)
	}
	return part, err
}

// log returns a reader of the log.
func (sn *snapshot) log() *changelog.Reader {
	s := sn.s
	return &changelog.Reader{
		Scope: s.scope, Bucket: sn.logScope(), Headers: sn.Headers, Objects: sn.Objects, Log: sn.logged, StoredRV: sn.storedRV,
		Seal: s.seal, Logger: s.db.opts.Logger, Corrupt: s.db.corrupt, Unreadable: s.db.unreadable,
	}
}

// logScope returns the bucket of the scope with its log, nil if there is none.
func (sn *snapshot) logScope() *bbolt.Bucket {
	if sn.Scope == nil {
		return sn.left
	}
	return sn.Scope
}

// History implements store.Reader.
func (s *scopeStore) History() (state store.LogState, err error) {
	if s, err = s.reader(); err != nil {
		return store.LogState{}, err
	}
	err = s.readAs("log", want{loaded: true}, func(sn *snapshot) error {
		l := &sn.logged
		state = store.LogState{Entries: int(l.Entries), Bytes: l.Bytes, Dropped: l.Dropped, Unlogged: l.Unlogged, Above: l.Above}
		reader := sn.log()
		if l.Mark.Number > 0 {
			if last := reader.Mark(&l.Mark); !state.SetLast(last, sn.storedRV) {
				state.Readable = reader.Readable()
			}
		}
		if sn.Scope == nil || sn.Scope.Bucket(layout.Log) == nil {
			return nil
		}
		state.Begins = changelog.Begin(sn.Scope)
		now := time.Now()
		err := reader.EachHead(max(l.Full, l.Begin), func(b *record.Block) bool {
			if b.Mark == nil || b.Mark.Number < max(l.Full, l.Begin) || b.Mark.Number > l.Last {
				return b.Last() < l.Last
			}
			if state.Oldest.IsZero() {
				state.Oldest = reader.Mark(b.Mark).Place
			}
			at := time.Unix(0, b.Mark.Time)
			// Of a clock that was ahead, the time is that of the next block.
			if at.After(now) {
				state.Oldest.Time = now
				return b.Last() < l.Last
			}
			state.Oldest.Time = at
			return false
		})
		if errors.Is(changelog.Cut(err), store.ErrTrimmed) {
			return nil // a damaged block: where the log ends is known, and it goes on
		}
		return err
	})
	if s.isReplaced() {
		return s.History()
	}
	return state, changelog.Cut(err)
}
