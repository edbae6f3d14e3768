package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Departed implements store.Departer.
func (s *scopeStore) Departed(after uint64, limit int) (out []store.Departed, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	var hint graveyard.Hint
	// Those of an earlier process are there while a first list is loaded.
	err = s.readAs("departed objects", want{loaded: true, left: true}, func(sn *snapshot) error {
		hint = sn.hint
		out, err = s.departedIn(sn, &hint, max(after, sn.settled), limit)
		return err
	})
	if err != nil {
		return nil, err // the hint may lack places
	}
	s.mu.Lock() // not in the transaction: a reader that has mu may wait for its end
	defer s.mu.Unlock()
	s.departed.Hint = hint
	return out, nil
}

// departing is a departed object in the file, in pending or of the former content.
type departing struct {
	number        uint64
	logged        *record.LogEntry
	pending, gone *overlay.Entry
}

func (s *scopeStore) departedIn(sn *snapshot, hint *graveyard.Hint, after uint64, limit int) (out []store.Departed, err error) {
	found, err := s.loggedDepartures(sn, hint, after, limit)
	if err != nil {
		return nil, err
	}
	written := map[uint64]bool{}
	for _, d := range found {
		written[d.number] = true
	}
	// A commit of unknown outcome may have written them.
	sn.over.Scan(func(e *overlay.Entry) bool {
		if e.Departs > after && !written[e.Departs] {
			found = append(found, departing{number: e.Departs, pending: e})
		}
		return true
	})
	for _, e := range sn.gone {
		if e.Departs > after && !written[e.Departs] {
			found = append(found, departing{number: e.Departs, gone: e})
		}
	}
	slices.SortFunc(found, func(a, b departing) int { return cmp.Compare(a.number, b.number) })
	for _, d := range found[:min(limit, len(found))] {
		out = append(out, s.openDeparted(sn, d))
	}
	return out, nil
}

// loggedDepartures returns the first departed objects in the log with a number above
// after. The file may be ahead of what is acknowledged.
func (s *scopeStore) loggedDepartures(sn *snapshot, hint *graveyard.Hint, after uint64, limit int) ([]departing, error) {
	b := sn.logScope()
	if b == nil {
		return nil, nil
	}
	m, err := layout.ReadManifest(s.id, b)
	if err != nil {
		return nil, s.db.corrupt("scope "+s.scope.String(), err)
	}
	if m.Log.Departed <= after {
		*hint = graveyard.Hint{}
		return nil, nil
	}
	if places := hint.Behind(after, m.Log.Departed, limit); len(places) > 0 {
		if found, ok := s.departedAt(sn, places); ok {
			hint.EndAfter(places[len(places)-1])
			return found, nil
		}
	}
	*hint = graveyard.Hint{After: after, UpTo: m.Log.Departed}
	err = s.logOf(sn).EachReadable(0, func(b *record.Block) bool {
		for i := range b.Entries {
			if number := b.Entries[i].Departs; number > after {
				hint.Places = append(hint.Places, graveyard.Place{Number: number, Block: b.Key})
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(hint.Places, func(a, b graveyard.Place) int { return cmp.Compare(a.Number, b.Number) })
	found, ok := s.departedAt(sn, hint.Places[:min(limit, len(hint.Places))])
	if !ok {
		return nil, s.db.corrupt("log of "+s.scope.String(), errors.New("it has changed while it was read"))
	}
	if len(found) > 0 {
		hint.EndAfter(hint.Places[len(found)-1])
	}
	return found, nil
}

// departedAt returns the objects at some places. ok is false if one is not there.
func (s *scopeStore) departedAt(sn *snapshot, places []graveyard.Place) (found []departing, ok bool) {
	if len(places) == 0 {
		return nil, true
	}
	scope := sn.logScope()
	if scope == nil || scope.Bucket(layout.Log) == nil {
		return nil, false
	}
	log := scope.Bucket(layout.Log)
	blocks := map[uint64]*record.Block{}
	for _, p := range places {
		b := blocks[p.Block]
		if b == nil {
			var err error
			if b, err = record.DecodeBlock(p.Block, log.Get(changelog.Key(p.Block))); err != nil {
				return nil, false
			}
			blocks[p.Block] = b
		}
		i := slices.IndexFunc(b.Entries, func(e record.LogEntry) bool { return e.Departs == p.Number })
		if i < 0 {
			return nil, false
		}
		found = append(found, departing{number: p.Number, logged: &b.Entries[i]})
	}
	return found, true
}

// openDeparted returns one departed object. It leaves out content that cannot be read,
// because a relist cannot restore it.
func (s *scopeStore) openDeparted(sn *snapshot, d departing) store.Departed {
	out := store.Departed{Number: d.number}
	if d.gone != nil {
		out.Before = s.codec.Pending(d.gone.Before)
		return out
	}
	key, rec := "", []byte(nil)
	if d.pending != nil {
		out.Before.Key, key = d.pending.Name, d.pending.Key
		if d.pending.Last.Bytes != nil && !changelog.IsAnother(s.seal, key, sn.headerOf(key), d.pending.Before) {
			out.Last = s.codec.FinalEntry(d.pending.Name, d.pending.Last)
		}
		if rec = sn.record(key); rec == nil {
			if d.pending.Before != nil {
				out.Before = s.codec.Pending(d.pending.Before)
			}
			return out
		}
	} else {
		out.Before.Key, key, rec = d.logged.OwnKey(), d.logged.Key, d.logged.Record
		if d.logged.Final != nil {
			if raw, err := s.seal.AppendRaw(nil, seal.InDeparted, key, d.logged.Final); err == nil {
				out.Last = store.Entry{Key: d.logged.OwnKey(), Raw: raw}
			}
		}
	}
	if rec == nil {
		return out
	}
	before, err := s.codec.Stored(key, rec)
	if err != nil {
		s.db.opts.Logger.Error(s.db.unreadable(fmt.Sprintf("departed object %d", d.number), err), "A deleted object cannot be read")
		return out
	}
	out.Before.Raw = before.Raw
	return out
}

// headerOf returns an object's header in the file, or nil if there is none. It is valid
// until the snapshot's transaction ends.
func (sn *snapshot) headerOf(key string) []byte {
	if sn.headers == nil {
		return nil
	}
	return sn.headers.Get([]byte(key))
}

// record returns an object's record in the file, or nil if there is none. It is valid
// until the snapshot's transaction ends.
func (sn *snapshot) record(key string) []byte {
	if sn.objects == nil {
		return nil
	}
	return sn.objects.Get([]byte(key))
}

// Settle implements store.Departer.
func (s *scopeStore) Settle() { s.SettleUpTo(math.MaxUint64) }

// Unsettle implements store.Departer.
func (s *scopeStore) Unsettle() { s.SettleUpTo(0) }

// LastDeparted implements store.PartSettler.
func (s *scopeStore) LastDeparted() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.Last
}

// SettleUpTo implements store.PartSettler.
func (s *scopeStore) SettleUpTo(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Load() != nil || s.db.readOnly || s.db.isClosed() || s.cause != nil {
		return
	}
	if s.departed.Settle(number) {
		s.progress.changed()
		s.db.tell(false)
	}
}

// Compares implements store.Departer.
func (s *scopeStore) Compares() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.Compares
}

// Departures implements store.Departer.
func (s *scopeStore) Departures() (kept, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.Kept, s.departed.Dropped
}

var _ store.PartSettler = (*scopeStore)(nil)
