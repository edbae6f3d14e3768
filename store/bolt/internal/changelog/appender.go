package changelog

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Options are what an appender has to know of the scope and of the commit.
type Options struct {
	// Bounds returns the bounds of a log that has own bytes.
	Bounds  func(own int64) (bytes int64, age time.Duration)
	Seal    *seal.Seal // nil if the scope is not encrypted
	Codec   byte
	Logger  logr.Logger
	Corrupt func(where string, err error) error
	RV      string // of the commit's checkpoint
	Loading bool   // the scope is not complete
	Settled uint64 // departed objects up to it need not be held
	// Befores are the states that were never written, of what departs or is deleted,
	// Finals the final states of what departs.
	Befores, Finals map[*overlay.Entry]record.Packed
}

// Appender collects what one commit appends to the log.
type Appender struct {
	w *content.Writer
	c Capture
	Options
	stored   string // the stored resource version before the commit
	was      string // the same; "" if a list has led to what the commit writes
	bound    int64
	done     uint64 // entries up to this order are in the log already
	cut      bool   // only deletions are logged
	listed   bool   // the commit contains a list, or a part of it
	known    uint64 // departures up to this number are in the log already
	entries  []noted
	unlogged int // changes that the log has no room for

	Departed int    // departed objects among the entries
	Dropped  int    // departed objects that exceeded the bound
	Held     uint64 // see trimLog
}

type noted struct {
	order uint64
	record.LogEntry
}

// NewAppender returns an appender to the log of the scope that w writes.
func NewAppender(w *content.Writer, c Capture, o Options) *Appender {
	l := &w.Manifest.Log
	bound, _ := o.Bounds(l.Bytes)
	lw := &Appender{w: w, c: c, Options: o, stored: w.Manifest.RV, was: w.Manifest.RV, bound: bound, listed: c.listing || c.Lists != c.Marked, Held: c.Held}
	for _, a := range c.Attempts {
		if a.Mark == l.Mark.Random && l.Mark.Number > 0 {
			lw.done, lw.known = a.order, l.Departed
		}
	}
	if c.rewound {
		l.Above = store.Higher(c.reached, l.Reached(w.Manifest.RV))
	}
	if l.Lineage == "" || c.rewound {
		NewLineage(l)
	}
	if lw.listed && !c.listing {
		lw.was = "" // a list has led here, even if the file was not told when it began
	}
	if !lw.listed {
		l.Listed = 0
	}
	lw.cut = bound == 0 || l.Listed > bound/2
	return lw
}

// Attempt returns the attempt of a commit that notes none of the entries: what one of
// unknown outcome has noted of them stays in the log.
func (lw *Appender) Attempt() Attempt { return Attempt{lw.c.Random, lw.done} }

// Note logs an entry that is about to be written in the place of what was before, if it
// is a change.
func (lw *Appender) Note(e *overlay.Entry, stored *record.Header, was content.Before) error {
	departs := e.Departs
	if departs <= lw.known {
		departs = 0 // it was logged by a commit of unknown outcome
	}
	if e.Order == 0 && departs == 0 || e.Order <= lw.done {
		return nil
	}
	n := noted{order: e.Order, LogEntry: record.LogEntry{
		Key: e.Key, RV: e.RV(), Departs: departs, Header: was.Header, Record: was.Record,
	}}
	if e.Name != e.Key {
		n.Name = e.Name
	}
	if !e.Since.IsZero() {
		n.Since = e.Since.UnixNano()
	}
	switch {
	case stored == nil:
		n.Kind |= record.KindDeleted
	case departs == 0 && lw.isSame(e, stored, was):
		return nil
	case departs == 0 && lw.cut:
		lw.unlogged++
		return nil
	}
	if lw.bound == 0 && departs == 0 {
		lw.unlogged++
		return nil
	}
	if p, ok := lw.Finals[e]; ok && departs != 0 && !IsAnother(lw.Seal, e.Key, was.Header, e.Before) {
		if err := lw.w.Use(p.Dictionary); err != nil {
			return err
		}
		n.Final = p.Record(lw.Codec).Encode(e.Key)
	}
	if was.Header == nil && departs == e.Departs && e.Before != nil { // never written
		if err := lw.before(&n, e); err != nil {
			return err
		}
		n.Kind |= record.KindShort
	}
	isDamaged := was.Header != nil && (was.Head == nil || was.Damaged)
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
	if lw.listed {
		lw.w.Manifest.Log.Listed += int64(n.Size())
	}
	return nil
}

// before gives an entry of the log the state before, which was not in the file.
func (lw *Appender) before(n *noted, e *overlay.Entry) error {
	p := lw.Befores[e]
	if err := lw.w.Use(p.Dictionary); err != nil {
		return err
	}
	n.Header, n.Record = e.Before.Stored(p).Encode(e.Key), p.Record(lw.Codec).Encode(e.Key)
	return nil
}

// NoteGone notes a deletion of the former content.
func (lw *Appender) NoteGone(e *overlay.Entry) error {
	if e.Departs <= lw.known {
		return nil // it was logged by a commit of unknown outcome
	}
	n := noted{LogEntry: record.LogEntry{
		Kind: record.KindDeleted, Key: e.Key, Departs: e.Departs, Since: e.Since.UnixNano(),
	}}
	if e.Name != e.Key {
		n.Name = e.Name
	}
	if err := lw.before(&n, e); err != nil {
		return err
	}
	lw.entries = append(lw.entries, n)
	return nil
}

// isSame reports whether an object is stored again as it was.
func (lw *Appender) isSame(e *overlay.Entry, stored *record.Header, was content.Before) bool {
	if was.Head == nil || !bytes.Equal(was.Head.Hash, stored.Hash) {
		return false
	}
	old, err := lw.Seal.Header(seal.InScope, e.Key, was.Header)
	return err == nil && old.RV == e.Head.RV && old.UID == e.Head.UID
}

// End appends the entries and the mark, and trims the log.
func (lw *Appender) End() error {
	l, c := &lw.w.Manifest.Log, lw.c
	if l.Listing = c.listing; !c.asOf.IsZero() {
		l.AsOf = c.asOf.UnixNano()
	}
	begins := l.Mark.Number < l.Begin
	// A list has a mark even if it has changed nothing: a client that was ahead of it may
	// have what it has not. So has the end of a freeze, since the mark before it cannot
	// be read.
	isPlace := !lw.Loading && !c.listing && !c.frozen
	unfreezes := isPlace && lw.RV != "" && l.Mark.Number > 0 && !l.Mark.IsReadable()
	isDue := isPlace && begins || lw.listed && !c.listing || unfreezes
	isEmpty := len(lw.entries) == 0 && lw.unlogged == 0 && !isDue
	leaves := lw.leaves()
	if isEmpty && !leaves {
		return lw.trim()
	}
	b, err := lw.w.Scope.CreateBucketIfNotExists(layout.Log)
	if err != nil {
		return err
	}
	b.FillPercent = fillOfLog
	slices.SortStableFunc(lw.entries, func(a, b noted) int { return cmp.Compare(a.order, b.order) })
	lw.fit()
	now := time.Now().UnixNano()
	first := l.Last + 1
	var appended int64
	put := func(block *record.Block) error {
		key := block.First()
		value := block.Encode(key)
		l.Blocks.Add(record.Sum(value))
		l.Bytes += int64(len(value))
		appended += int64(len(value))
		return b.Put(Key(key), value)
	}
	if leaves {
		l.Last++
		mark := record.Mark{Number: l.Last, Random: rand.Uint64(), From: lw.stored, To: lw.stored, Time: now}
		if isEmpty {
			mark.Random = c.Random
		}
		setMark(l, mark)
		if err := put(&record.Block{Time: now, Mark: &mark}); err != nil {
			return err
		}
	}
	if isEmpty {
		return lw.trimLog(b, first, appended)
	}
	block, size := &record.Block{Time: now}, 0
	for i := range lw.entries {
		e := &lw.entries[i].LogEntry
		e.Since = min(e.Since, now) // the clock was set back since
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
			lw.Departed++
		}
	}
	l.Last++
	mark := record.Mark{
		Number: l.Last, Random: c.Random, From: lw.was, To: lw.RV, Time: now,
		Frozen: c.frozen, Listing: c.listing, Begins: begins,
	}
	setMark(l, mark)
	block.Mark = &mark
	if err := put(block); err != nil {
		return err
	}
	if lw.unlogged > 0 {
		l.Full, l.Cut, l.Thinned = l.Last, l.Last, l.Bytes
		l.Unlogged += uint64(lw.unlogged)
	}
	return lw.trimLog(b, first, appended)
}

// leaves reports whether the commit leaves a resource version behind that no mark has: a
// list begins, or has led to what the commit writes, or something could not be stored. It
// gets a mark, so that who is there can go on across the list, and it can still be read.
func (lw *Appender) leaves() bool {
	m := &lw.w.Manifest.Log.Mark
	isLast := lw.RV == "" || lw.was == "" || lw.c.frozen
	isMarked := m.Number == 0 || m.Frozen || m.Listing || store.Higher(lw.stored, m.To) == m.To
	return isLast && lw.stored != "" && !isMarked
}

// trim trims a log that has more than its bound although nothing is appended.
func (lw *Appender) trim() error {
	if lw.w.Manifest.Log.Bytes <= BoundOfDeletions(lw.bound) {
		return nil
	}
	t := lw.trimming()
	t.budget = TrimBytes
	return lw.trimAll(t)
}

// fit leaves out what one commit has more than the log may hold: changes that are not
// deletions first, and then the oldest deletions.
func (lw *Appender) fit() {
	bound, size := BoundOfDeletions(lw.bound), int64(0)
	for i := range lw.entries {
		size += int64(lw.entries[i].Size())
	}
	if size <= bound {
		return
	}
	left := func(n noted) bool {
		size -= int64(n.Size())
		lw.w.Manifest.Log.Dropped++
		lw.unlogged++
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
			lw.Dropped++
			lw.Departed++
			return left(n)
		}
		return false
	})
}

// IsAnother reports whether the object in the file, with that header, is another one than
// the object that departs: it was replaced by it before anything was written. Handlers
// then receive the one in the file, whose final state is not known.
func IsAnother(sealed *seal.Seal, key string, header []byte, departs *overlay.Entry) bool {
	if header == nil || departs == nil || departs.Head == nil {
		return false
	}
	h, err := sealed.Header(seal.InScope, key, header)
	return err == nil && h.IsAnother(departs.Head)
}
