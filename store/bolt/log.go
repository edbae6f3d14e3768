package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// The log contains what each commit has changed, with the states before as they were
// stored. Only the committer writes it, in its transaction and in the order in which the
// changes were applied. The entries of one commit end in a mark. What a first list loads,
// and what is written anew with another dictionary, is not logged.

var bucketLog = []byte("log")

const (
	// blockBytes is the size of a block. bbolt has two blocks at least on a page: with
	// this size, two of them fill eight pages of 4 KiB.
	blockBytes = 16 << 10
	// trimBytes is how much a commit trims beyond what it has appended.
	trimBytes = 1 << 20
	// fileLogBytes bounds the logs of all open scopes of a file together: above it, each
	// scope's bound shrinks in proportion.
	fileLogBytes = 256 << 20
)

// logging is the state of a scope's log. scopeStore.mu protects it.
type logging struct {
	// log is the log as of the last acknowledged commit: readers see nothing above its
	// Last.
	log      record.LogState
	storedRV string // of the checkpoint in that commit
	order    uint64 // of the last applied entry
	// attempts are the commits of unknown outcome since the last acknowledged one.
	attempts []attempt
	moment
}

// moment is what a commit has to know of the time of its capture.
type moment struct {
	asOf    time.Time // when the content was last known to be current
	listing bool      // a list is being applied
	frozen  bool      // the content is newer than the checkpoint
	rewound bool      // a new lineage is due
}

// attempt is a commit that may be in the file.
type attempt struct {
	mark  uint64 // the random value of its mark
	order uint64 // entries up to it are in the log if the mark is
}

// newLineage begins another history in a log. What is there stays, for a reader of all
// of it.
func newLineage(l *record.LogState) {
	l.Lineage = strconv.FormatUint(rand.Uint64(), 36)
	l.Begin, l.Full = l.Last+1, l.Last
	l.Thinned = l.Bytes
	l.Mark = record.Mark{Time: l.Mark.Time}
}

// carryLog takes over into a new manifest what has to outlive a dropped scope: numbers
// are never used twice in a file.
func carryLog(m *record.Manifest, old record.LogState) {
	m.Log.Last = max(m.Log.Last, old.Last)
	m.Log.Departed = max(m.Log.Departed, old.Departed)
	m.Log.Settled = m.Log.Departed
	m.Log.Mark.Time = max(m.Log.Mark.Time, old.Mark.Time)
	newLineage(&m.Log)
}

// noteLocked gives an entry its place in the log. It must be called before the entry
// becomes pending.
func (s *scopeStore) noteLocked(e *entry, b store.Batch) {
	if s.phase != phaseReady && s.phase != phaseEmpty {
		return // a first list
	}
	s.order++
	e.order = s.order
	if b.CatchUp || s.listing {
		e.since = s.asOf
	}
}

// momentLocked follows the checkpoint of an applied batch.
func (s *scopeStore) momentLocked(b store.Batch) {
	switch {
	case b.RV != "" || b.Loaded:
		s.listing, s.frozen = false, false
		if !b.CatchUp {
			s.asOf = time.Now()
		}
	case b.Reason != "":
		s.listing = true
		s.rewound = s.rewound || b.Rewound
	case len(b.Changes) > 0 && s.checkpoint.RV != "":
		s.frozen = true
	}
}

// boundsOfLog returns the bounds of the scope's log.
func (s *scopeStore) boundsOfLog() (bytes int64, age time.Duration) {
	bytes, age = s.opts.History.Bounds()
	if all := s.db.logBytes.Load(); all > s.db.fileLogBytes {
		bytes = int64(float64(bytes) * float64(s.db.fileLogBytes) / float64(all))
	}
	return bytes, age
}

// setLogLocked takes over the log of an acknowledged commit.
func (s *scopeStore) setLogLocked(l record.LogState, rv string) {
	s.db.logBytes.Add(l.Bytes - s.log.Bytes)
	s.log, s.storedRV = l, rv
}

// logWriter collects what one commit appends to the log.
type logWriter struct {
	w       *writer
	c       *capture
	was     string // the stored resource version before the commit
	bound   int64
	done    uint64 // entries up to this order are in the log already
	cut     bool   // only deletions are logged
	left    bool   // something was left out
	entries []noted

	departed int // departed objects among the entries
}

type noted struct {
	order uint64
	record.LogEntry
}

func (w *writer) log(c *capture) *logWriter {
	l := &w.m.Log
	bound, _ := w.s.boundsOfLog()
	lw := &logWriter{w: w, c: c, was: w.m.RV, bound: bound}
	if l.Lineage == "" || c.rewound {
		newLineage(l)
	}
	for _, a := range c.attempts {
		if a.mark == l.Mark.Random && l.Mark.Number > 0 {
			lw.done = a.order
		}
	}
	if !c.listing && w.m.RV != "" {
		l.Listed = 0
	}
	lw.cut = bound == 0 || l.Listed > bound/2
	return lw
}

// note logs an entry that is about to be written, if it is a change.
// old is what oldHeader contains, nil if that is damaged.
func (lw *logWriter) note(e *entry, stored, old *record.Header, oldHeader, oldRecord []byte) error {
	if e.order == 0 && e.departs == 0 || e.order <= lw.done {
		return nil
	}
	n := noted{order: e.order, LogEntry: record.LogEntry{
		Key: e.key, RV: e.rv(), Departs: e.departs, Header: oldHeader, Record: oldRecord,
	}}
	if e.name != e.key {
		n.Name = e.name
	}
	if !e.since.IsZero() {
		n.Since = e.since.UnixNano()
	}
	switch {
	case stored == nil:
		n.Kind |= record.KindDeleted
	case e.departs == 0 && lw.isSame(e, stored, old, oldHeader):
		return nil
	case e.departs == 0 && lw.cut:
		lw.left = true
		return nil
	}
	if lw.bound == 0 && e.departs == 0 {
		lw.left = true
		return nil
	}
	if p, ok := lw.c.finals[e]; ok && !lw.w.s.isAnother(e.key, oldHeader, e.before) {
		if err := lw.w.dictionary(p.dictionary); err != nil {
			return err
		}
		n.Final = p.record(lw.w.s.codecID()).Encode(e.key)
	}
	if oldHeader == nil && e.departs != 0 && e.before != nil { // it was never written
		p := lw.c.befores[e]
		head, err := e.before.stored(p).Encode(e.key)
		if err != nil {
			return err
		}
		if err := lw.w.dictionary(p.dictionary); err != nil {
			return err
		}
		n.Header, n.Record = head, p.record(lw.w.s.codecID()).Encode(e.key)
		n.Kind |= record.KindShort
	}
	isDamaged := oldHeader != nil && old == nil
	if n.Record != nil && !isDamaged {
		_, err := record.Decode(e.key, n.Record)
		isDamaged = err != nil
	}
	tooLarge := lw.bound > 0 && int64(n.Size()) > lw.bound/4
	switch {
	case n.Header == nil:
	case n.Kind&record.KindShort != 0 && tooLarge:
		n.Header, n.Record = nil, nil
	case n.Record == nil || isDamaged || tooLarge:
		n.Header, n.Record = nil, nil
		n.Kind |= record.KindUnknown
	}
	n.Header, n.Record = bytes.Clone(n.Header), bytes.Clone(n.Record)
	lw.entries = append(lw.entries, n)
	if lw.c.listing || lw.was == "" {
		lw.w.m.Log.Listed += int64(n.Size())
	}
	return nil
}

// isSame reports whether an object is stored again as it was.
func (lw *logWriter) isSame(e *entry, stored, old *record.Header, oldHeader []byte) bool {
	if old == nil || !bytes.Equal(old.Hash, stored.Hash) {
		return false
	}
	old, err := lw.w.s.seal.Header(seal.InScope, e.key, oldHeader)
	return err == nil && old.RV == e.head.RV && old.UID == e.head.UID
}

// rv returns the resource version of the change that an entry is.
func (e *entry) rv() string {
	if e.head != nil {
		return e.head.RV
	}
	return e.deletedAt
}

// end appends the entries and the mark, and trims the log.
func (lw *logWriter) end() error {
	l, c := &lw.w.m.Log, lw.c
	if l.Listing = c.listing; !c.asOf.IsZero() {
		l.AsOf = c.asOf.UnixNano()
	}
	begins := l.Mark.Number < l.Begin
	if len(lw.entries) == 0 && !lw.left && (!begins || c.loading || c.listing || c.frozen) {
		return nil
	}
	b, err := lw.w.scope.CreateBucketIfNotExists(bucketLog)
	if err != nil {
		return err
	}
	b.FillPercent = fillOfList
	slices.SortStableFunc(lw.entries, func(a, b noted) int {
		if a.order < b.order {
			return -1
		}
		return 1
	})
	lw.fit()
	now := max(time.Now().UnixNano(), l.Mark.Time)
	first := l.Last + 1
	var appended int64
	put := func(block *record.Block) error {
		key := block.First()
		value := block.Encode(key)
		l.Blocks.Add(record.Sum(value))
		l.Bytes += int64(len(value))
		appended += int64(len(value))
		return b.Put(logKey(key), value)
	}
	block, size := &record.Block{Time: now}, 0
	for i := range lw.entries {
		e := &lw.entries[i].LogEntry
		l.Last++
		l.Entries++
		e.Number = l.Last
		if size > 0 && size+e.Size() > blockBytes-256 {
			if err := put(block); err != nil {
				return err
			}
			block, size = &record.Block{Time: now}, 0
		}
		block.Entries = append(block.Entries, *e)
		size += e.Size()
		if l.Departed = max(l.Departed, e.Departs); e.Departs != 0 {
			lw.departed++
		}
	}
	l.Last++
	l.Mark = record.Mark{
		Number: l.Last, Random: c.random, From: lw.was, To: c.checkpoint.RV, Time: now,
		Frozen: c.frozen, Listing: c.listing,
	}
	l.Mark.Begins = begins
	mark := l.Mark
	block.Mark = &mark
	if err := put(block); err != nil {
		return err
	}
	if lw.left {
		l.Full, l.Cut, l.Thinned = l.Last, l.Last, l.Bytes
	}
	return lw.w.trimLog(b, first, appended)
}

// fit leaves out what one commit has more than the log may hold: changes that are not
// deletions first, and then the oldest deletions.
func (lw *logWriter) fit() {
	bound := lw.bound
	if bound == 0 {
		bound, _ = store.History{}.Bounds()
	}
	size := int64(0)
	for i := range lw.entries {
		size += int64(lw.entries[i].Size())
	}
	if size <= bound {
		return
	}
	left := func(n noted) bool {
		size -= int64(n.Size())
		lw.w.m.Log.Dropped++
		lw.left = true
		return true
	}
	lw.entries = slices.DeleteFunc(lw.entries, func(n noted) bool {
		return n.Kind&record.KindDeleted == 0 && n.Departs == 0 && left(n)
	})
	lw.entries = slices.DeleteFunc(lw.entries, func(n noted) bool {
		switch {
		case n.Departs == 0:
			return size > bound && left(n)
		case size > 2*bound:
			lw.w.dropped++
			lw.departed++
			return left(n)
		}
		return false
	})
}

// trimLog drops what exceeds the bounds: first the changes that are not deletions. It
// leaves what begins at or above newest, and does as much as has been appended and
// trimBytes more. Deletions that a handler has not received stay up to twice the bytes.
func (w *writer) trimLog(b *bbolt.Bucket, newest uint64, appended int64) error {
	l := &w.m.Log
	bound, age := w.s.boundsOfLog()
	if bound == 0 {
		bound, _ = store.History{}.Bounds()
	}
	w.s.mu.Lock()
	settled := w.s.departed.settled
	w.s.mu.Unlock()
	type change struct {
		key, value []byte // a nil value is a deletion
	}
	var changes []change
	seen, bytesNow, thinnedNow := int64(0), l.Bytes, l.Thinned
	full := l.Full
	c := b.Cursor()
	k, v := c.First()
	for ; k != nil && seen < appended+trimBytes; k, v = c.Next() {
		if len(k) != 8 || binary.BigEndian.Uint64(k) >= newest {
			break
		}
		number := binary.BigEndian.Uint64(k)
		expired := age > 0 && l.Mark.Time-record.BlockTime(v).UnixNano() > int64(age)
		over := bytesNow > bound
		if !expired && !over {
			break
		}
		isFull := number > full
		if !expired && !isFull && thinnedNow <= bound/2 {
			if k, v = c.Seek(logKey(full + 1)); k == nil || len(k) != 8 || binary.BigEndian.Uint64(k) >= newest {
				break
			}
			number, isFull = binary.BigEndian.Uint64(k), true
		}
		block, err := record.DecodeBlock(number, v)
		if err != nil {
			// The log begins anew behind what is damaged.
			w.s.db.opts.Logger.Error(w.s.db.corrupt(fmt.Sprintf("log of %s at %d", w.s.scope, number), err), "A damaged part of the log is passed over")
			block = &record.Block{Mark: &record.Mark{Number: number}}
		}
		seen += int64(len(v))
		kept := &record.Block{Time: block.Time, Thinned: true}
		for _, e := range block.Entries {
			held := e.Departs > settled && bytesNow <= 2*bound
			if held || isFull && !expired && e.Kind&record.KindDeleted != 0 {
				kept.Entries = append(kept.Entries, e)
				continue
			}
			if l.Dropped++; e.Departs > settled {
				w.dropped++
			}
			l.Entries--
		}
		var value []byte
		if len(kept.Entries) > 0 {
			value = kept.Encode(number)
			l.Blocks.Add(record.Sum(value))
		}
		changes = append(changes, change{bytes.Clone(k), value})
		l.Blocks.Remove(record.Sum(v))
		bytesNow += int64(len(value)) - int64(len(v))
		if thinnedNow += int64(len(value)); !isFull {
			thinnedNow -= int64(len(v))
		}
		full = max(full, block.Last())
	}
	l.Full, l.Bytes, l.Thinned = full, bytesNow, thinnedNow
	for _, ch := range changes {
		var err error
		if ch.value == nil {
			err = b.Delete(ch.key)
		} else {
			err = b.Put(ch.key, ch.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
