package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Departed objects are the entries of the log that have a number of their own: deletions
// that handlers which are added later still receive. Numbers ascend in the order in which
// the deletions were applied, and are never used again.
//
// Objects that every handler has received are returned until the scope is opened again,
// for handlers that are added later in this process.

// graveyard is the state of the departed objects of an open scope.
type graveyard struct {
	last    uint64 // the highest assigned number
	settled uint64 // objects up to this number were delivered by an earlier process
	told    uint64 // objects up to this number were delivered
	kept    int    // objects in the file as of the last commit
	dropped int    // objects that were not kept since the scope was opened
	// gone are objects of the former content that have departed and are not in the file.
	// The slice is replaced, never changed.
	gone []*overlay.Entry
	// compares is set if the first list is compared with the former content.
	compares bool
}

// encodeLast encodes a final state. A state that cannot be encoded counts as unknown.
func (s *scopeStore) encodeLast(last runtime.Object) record.Packed {
	if last == nil || s.opts.Codec == nil {
		return record.Packed{}
	}
	payload, err := s.encode(last)
	if err != nil {
		return record.Packed{}
	}
	return record.Packed{Bytes: payload}
}

// opened takes over the departed objects of an earlier process's log. It is called once:
// a log that begins anew later does not change which numbers are used, nor which objects
// handlers have received.
func (g *graveyard) opened(l record.LogState) {
	last := max(l.Departed, l.Settled)
	*g = graveyard{last: last, settled: l.Settled, told: l.Settled, kept: int(last - l.Settled)}
}

// applied assigns a number to an entry that departs. An entry that replaces an old one
// that departs and has not been written departs in its place, because the stored state of
// the key is the same. old is nil if nothing waits.
func (g *graveyard) applied(e, old *overlay.Entry) {
	switch {
	case e.Departing:
		g.last++
		e.Departs, e.Departing = g.last, false
		if old != nil && old.Head != nil {
			e.Before = old
		}
	case old != nil && old.Departs != 0:
		e.Departs, e.Before, e.Last = old.Departs, old.Before, old.Last
	}
}

// joined numbers the objects of the former content that a first list does not have.
func (g *graveyard) joined(l loadedList) {
	for _, e := range l.gone {
		g.last++
		e.Departs = g.last
	}
	g.gone = slices.Concat(g.gone, l.gone)
	g.dropped += l.dropped
}

// committed reports whether the bound of the log has dropped objects for the first time.
func (g *graveyard) committed(c capture) (overflows bool) {
	g.gone = g.gone[len(c.gone):]
	g.kept += c.departed - c.dropped
	overflows = c.dropped > 0 && g.dropped == 0
	g.dropped += c.dropped
	return overflows
}

// Lost counts what handlers have not received as dropped. Numbers are not used again.
func (g *graveyard) Lost(error) {
	dropped := g.dropped
	if g.told < g.last {
		dropped += g.kept
	}
	*g = graveyard{last: g.last, settled: g.last, told: g.last, dropped: dropped}
}

// Departed implements store.Departer.
func (s *scopeStore) Departed(after uint64, limit int) (out []store.Departed, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	var hint departsHint
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
	s.hint = hint
	return out, nil
}

// departsHint is where the departed objects behind the last answer of Departed are in the
// log. It saves reading the log again for each part of a long answer.
type departsHint struct {
	after, upTo uint64         // the objects with these numbers are in places
	places      []departsPlace // in the order of numbers
}

// departsPlace is where a departed object is in the log.
type departsPlace struct {
	number uint64
	block  uint64 // its key
}

// behind returns the places of the first objects with a number above after, if they are
// known. last is the highest number in the log.
func (h departsHint) behind(after, last uint64, limit int) []departsPlace {
	if h.after > after {
		return nil
	}
	i, _ := slices.BinarySearchFunc(h.places, after+1, func(p departsPlace, number uint64) int { return cmp.Compare(p.number, number) })
	if len(h.places)-i < limit && h.upTo < last {
		return nil
	}
	return h.places[i:min(i+limit, len(h.places))]
}

// endAfter forgets the places if p is the last one.
func (h *departsHint) endAfter(p departsPlace) {
	if p == h.places[len(h.places)-1] {
		*h = departsHint{}
	}
}

// departing is a departed object in the file, in pending or of the former content.
type departing struct {
	number        uint64
	logged        *record.LogEntry
	pending, gone *overlay.Entry
}

func (s *scopeStore) departedIn(sn *snapshot, hint *departsHint, after uint64, limit int) (out []store.Departed, err error) {
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
func (s *scopeStore) loggedDepartures(sn *snapshot, hint *departsHint, after uint64, limit int) ([]departing, error) {
	b := sn.logScope()
	if b == nil {
		return nil, nil
	}
	m, err := layout.ReadManifest(s.id, b)
	if err != nil {
		return nil, s.db.corrupt("scope "+s.scope.String(), err)
	}
	if m.Log.Departed <= after {
		*hint = departsHint{}
		return nil, nil
	}
	if places := hint.behind(after, m.Log.Departed, limit); len(places) > 0 {
		if found, ok := s.departedAt(sn, places); ok {
			hint.endAfter(places[len(places)-1])
			return found, nil
		}
	}
	*hint = departsHint{after: after, upTo: m.Log.Departed}
	err = s.eachReadable(sn, 0, func(b *record.Block) bool {
		for i := range b.Entries {
			if number := b.Entries[i].Departs; number > after {
				hint.places = append(hint.places, departsPlace{number, b.Key})
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(hint.places, func(a, b departsPlace) int { return cmp.Compare(a.number, b.number) })
	found, ok := s.departedAt(sn, hint.places[:min(limit, len(hint.places))])
	if !ok {
		return nil, s.db.corrupt("log of "+s.scope.String(), errors.New("it has changed while it was read"))
	}
	if len(found) > 0 {
		hint.endAfter(hint.places[len(found)-1])
	}
	return found, nil
}

// departedAt returns the objects at some places. ok is false if one is not there.
func (s *scopeStore) departedAt(sn *snapshot, places []departsPlace) (found []departing, ok bool) {
	if len(places) == 0 {
		return nil, true
	}
	log := sn.logBucket()
	if log == nil {
		return nil, false
	}
	blocks := map[uint64]*record.Block{}
	for _, p := range places {
		b := blocks[p.block]
		if b == nil {
			var err error
			if b, err = record.DecodeBlock(p.block, log.Get(logKey(p.block))); err != nil {
				return nil, false
			}
			blocks[p.block] = b
		}
		i := slices.IndexFunc(b.Entries, func(e record.LogEntry) bool { return e.Departs == p.number })
		if i < 0 {
			return nil, false
		}
		found = append(found, departing{number: p.number, logged: &b.Entries[i]})
	}
	return found, true
}

// openDeparted returns one departed object. It leaves out content that cannot be read,
// because a relist cannot restore it.
func (s *scopeStore) openDeparted(sn *snapshot, d departing) store.Departed {
	out := store.Departed{Number: d.number}
	if d.gone != nil {
		out.Before = s.pendingEntry(d.gone.Before)
		return out
	}
	key, rec := "", []byte(nil)
	if d.pending != nil {
		out.Before.Key, key = d.pending.Name, d.pending.Key
		if d.pending.Last.Bytes != nil && !s.isAnother(key, sn.header(key), d.pending.Before) {
			out.Last = store.Entry{Key: d.pending.Name, Raw: rawForm(s.codecID(), d.pending.Last)}
		}
		if rec = sn.record(key); rec == nil {
			if d.pending.Before != nil {
				out.Before = s.pendingEntry(d.pending.Before)
			}
			return out
		}
	} else {
		out.Before.Key, key, rec = d.logged.OwnKey(), d.logged.Key, d.logged.Record
		if r, err := record.Decode(key, d.logged.Final); d.logged.Final != nil && err == nil {
			raw := record.AppendRawHead(make([]byte, 0, len(d.logged.Final)), r.Codec, r.Dictionary)
			if raw, err = s.seal.AppendPayload(raw, seal.InDeparted, key, r); err == nil {
				out.Last = store.Entry{Key: d.logged.OwnKey(), Raw: raw}
			}
		}
	}
	if rec == nil {
		return out
	}
	before, err := s.fileEntry(key, rec)
	if err != nil {
		s.db.opts.Logger.Error(s.db.unreadable(fmt.Sprintf("departed object %d", d.number), err), "A deleted object cannot be read")
		return out
	}
	out.Before.Raw = before.Raw
	return out
}

// isAnother reports whether the object in the file, with that header, is another one than
// the object that departs: it was replaced by it before anything was written. Handlers
// then receive the one in the file, whose final state is not known.
func (s *scopeStore) isAnother(key string, header []byte, departs *overlay.Entry) bool {
	if header == nil || departs == nil || departs.Head == nil {
		return false
	}
	h, err := s.seal.Header(seal.InScope, key, header)
	return err == nil && h.IsAnother(departs.Head)
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
	return s.departed.last
}

// SettleUpTo implements store.PartSettler.
func (s *scopeStore) SettleUpTo(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := max(min(number, s.departed.last), s.departed.settled)
	if s.departed.told == told || s.next.Load() != nil || s.db.readOnly || s.db.isClosed() || s.cause != nil {
		return
	}
	s.departed.told = told
	s.progress.changed()
	s.db.tell(false)
}

// Compares implements store.Departer.
func (s *scopeStore) Compares() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.compares
}

// Departures implements store.Departer.
func (s *scopeStore) Departures() (kept, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.kept, s.departed.dropped
}

var _ store.PartSettler = (*scopeStore)(nil)
