package bolt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// The log contains what each commit has changed, with the states before as they were
// stored. Only the committer writes it, in its transaction and in the order in which the
// changes were applied. The entries of one commit end in a mark. What a first list loads,
// and what is written anew with another dictionary, is not logged.

const (
	// blockBytes is the size of a block. bbolt has two blocks at least on a page: with
	// this size, two of them fill eight pages of 4 KiB.
	blockBytes = 16 << 10
	// fillOfLog is how full the pages of the log are made, since blocks are appended.
	fillOfLog = 0.95
	// trimBytes is how much a commit trims beyond what it has appended.
	trimBytes = 1 << 20
	// fileLogBytes bounds the logs of all open scopes of a file together: above it, the
	// largest are trimmed.
	fileLogBytes = 256 << 20
)

// logging is the state of a scope's log. scopeStore.mu protects it.
type changelog struct {
	shared   *shared
	unlogged bool // nothing but what departs is logged
	// log is the log as of the last acknowledged commit: readers see nothing above its
	// Last.
	log      record.LogState
	storedRV string // of the checkpoint in that commit
	order    uint64 // of the last applied entry
	// attempts are the commits of unknown outcome since the last acknowledged one.
	attempts []attempt
	marked   uint64      // lists that have a mark in the log
	held     uint64      // see writer.trimLog
	least    untrimmed   // the zero value is not known
	hint     departsHint // where Departed goes on
	moment
}

// moment is what a commit has to know of the time of its capture.
type moment struct {
	asOf    time.Time // when the content was last known to be current
	listing bool      // a list is being applied
	lists   uint64    // lists that were applied since the scope was opened
	frozen  bool      // the content is not that of the checkpoint
	kept    bool      // frozen by an earlier process, until what it left is caught up on
	rewound bool      // a new lineage is due
	// with rewound: the resource version that the lineage before has reached
	reached string
	taken   takenLog
}

// takenLog says when the log of an earlier process was taken over, and the time of its
// newest mark, Unix nanoseconds.
type takenLog struct {
	at     time.Time // with the monotonic clock
	newest int64
}

// now returns the time at which the entries of a log have their ages: that of its newest
// mark. The time between two processes does not count until one age after the log was
// taken over, since whoever was near its end before has to find its place. Neither does a
// step of the clock ahead.
func (t takenLog) now(newest int64, age time.Duration) int64 {
	elapsed := time.Since(t.at)
	newest = min(newest, t.at.UnixNano()+int64(elapsed))
	if t.newest != 0 && elapsed < age {
		return min(newest, t.newest)
	}
	return newest
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

// carryLog takes over into a new manifest what has to outlive a dropped log: numbers are
// never used twice in a file, and resource versions of an earlier history stay known.
func carryLog(m *record.Manifest, old record.LogState) {
	m.Log.Last = max(m.Log.Last, old.Last)
	m.Log.Departed = max(m.Log.Departed, old.Departed)
	m.Log.Settled = m.Log.Departed
	m.Log.Mark.Time = max(m.Log.Mark.Time, old.Mark.Time)
	m.Log.Above = store.Higher(m.Log.Above, old.Above)
}

// opened takes over the log of a stored manifest.
func (s *changelog) opened(m *record.Manifest) {
	l := m.Log
	s.setLog(l, m.RV)
	s.attempts = nil
	isFrozen := l.Mark.Frozen && l.Mark.Number > 0
	s.moment = moment{
		listing: l.Listing, asOf: m.Time, frozen: isFrozen, kept: isFrozen,
		taken: takenLog{at: time.Now(), newest: l.Mark.Time},
	}
	s.marked, s.held, s.least, s.hint = 0, 0, untrimmed{}, departsHint{}
	if l.AsOf != 0 {
		s.asOf = time.Unix(0, l.AsOf)
	}
}

// appliedEntry gives an entry its place in the log, before it becomes pending.
func (s *changelog) appliedEntry(e *overlay.Entry, b store.Batch) {
	s.order++
	e.Order = s.order
	if b.CatchUp || s.listing {
		e.Since = s.asOf
	}
}

// applied follows the checkpoint of an applied batch. rv is that before it.
func (s *changelog) applied(b store.Batch, rv string) {
	switch {
	case b.RV != "" || b.Loaded:
		if s.listing || b.Loaded {
			s.lists++
		}
		s.kept = s.kept && b.CatchUp && !s.listing && !b.Loaded
		s.listing, s.frozen = false, s.kept
		if !b.CatchUp {
			if s.asOf = b.Time; b.Time.IsZero() {
				s.asOf = time.Now()
			}
		}
	case b.Reason != "":
		s.frozen = true
		if b.Rewound {
			s.rewound, s.reached = true, store.Higher(s.reached, rv)
		}
	case len(b.Changes) > 0 && rv != "":
		s.frozen = true
	}
}

// boundsOfLog returns the bounds of the scope's log, which has own bytes.
func (s *scopeStore) boundsOfLog(own int64) (bytes int64, age time.Duration) {
	bytes, age = s.opts.History.Bounds()
	if bytes > 0 {
		bytes = min(bytes, s.db.shareOfLogs(s, own))
	}
	return bytes, age
}

// shareOfLogs returns how many bytes each log may have, so that all of the file have
// fileLogBytes. It counts own bytes for s, and what is acknowledged for the others; s may
// be nil.
func (d *DB) shareOfLogs(s *scopeStore, own int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shareOfLogsLocked(s, own)
}

func (d *DB) shareOfLogsLocked(s *scopeStore, own int64) int64 {
	all := d.logBytes.Load() + own
	if s != nil {
		all -= s.bytesOfLog()
	}
	if all <= d.fileLogBytes {
		return math.MaxInt64
	}
	sizes := make([]int64, 0, len(d.scopes))
	for _, other := range d.scopes {
		size := own
		if other != s {
			size = other.bytesOfLog()
		}
		sizes = append(sizes, size)
	}
	return share(sizes, d.fileLogBytes)
}

// share returns the bound under which sizes add up to all at most, if only those above it
// shrink.
func share(sizes []int64, all int64) int64 {
	slices.Sort(sizes)
	for i, size := range sizes {
		if each := all / int64(len(sizes)-i); size > each {
			return max(each, 1)
		}
		all -= size
	}
	return math.MaxInt64
}

func (s *scopeStore) bytesOfLog() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Bytes
}

func (s *scopeStore) exceeds(share int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasMoreThan(share)
}

// hasMoreThan reports whether the log has more bytes than its share, and may be trimmed.
func (s *changelog) hasMoreThan(share int64) bool {
	if s.log.Bytes <= share {
		return false
	}
	return s.log.Bytes != s.least.bytes || s.log.Bytes > 2*share && share < s.least.share
}

// untrimmed is a log that could not be trimmed to its share, in bytes: the deletions in
// it are held up to twice the share.
type untrimmed struct{ bytes, share int64 }

// trimLater requests another commit if logs have more bytes than their share.
func (d *DB) trimLater() {
	d.mu.Lock()
	defer d.mu.Unlock()
	share := d.shareOfLogsLocked(nil, 0)
	for _, s := range d.scopes {
		if s.exceeds(share) {
			d.tell(false)
			return
		}
	}
}

// boundOfDeletions returns the bytes of a log with this bound. Without a history it holds
// only deletions, and those have the bytes of the default.
func boundOfDeletions(bound int64) int64 {
	if bound == 0 {
		bound, _ = store.History{}.Bounds()
	}
	return bound
}

// setLog takes over the log of an acknowledged commit.
func (s *changelog) setLog(l record.LogState, rv string) {
	s.shared.logBytes.Add(l.Bytes - s.log.Bytes)
	s.log, s.storedRV = l, rv
	if s.shared.logBytes.Load() > s.shared.fileLogBytes {
		s.shared.tell(false)
	}
}

// committed takes over the log that a commit has written.
func (s *changelog) committed(c capture) {
	if s.least = (untrimmed{}); c.log.Last == s.log.Last && c.log.Bytes == s.log.Bytes && c.log.Bytes > c.share && c.held == s.held {
		s.least = untrimmed{c.log.Bytes, c.share}
	}
	s.setLog(c.log, c.checkpoint.RV)
	s.attempts, s.marked, s.held = nil, c.lists, c.held
	s.rewound = s.rewound && !c.rewound
}

func (s *changelog) Lost(error) {
	s.setLog(record.LogState{}, "")
	s.attempts, s.moment = nil, moment{asOf: s.asOf, taken: takenLog{at: time.Now()}}
	s.marked, s.held, s.least, s.hint = 0, 0, untrimmed{}, departsHint{}
}

// forgetLog takes the log of a store that is not used any more out of the file's sum.
func (s *scopeStore) forgetLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLog(record.LogState{}, "")
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
	listed  bool   // the commit contains a list, or a part of it
	known   uint64 // departures up to this number are in the log already
	entries []noted

	departed int // departed objects among the entries
}

type noted struct {
	order uint64
	record.LogEntry
}

func (w *writer) log(c *capture) *logWriter {
	l := &w.Manifest.Log
	bound, _ := w.s.boundsOfLog(l.Bytes)
	lw := &logWriter{w: w, c: c, was: w.Manifest.RV, bound: bound, listed: c.listing || c.lists != c.marked}
	for _, a := range c.attempts {
		if a.mark == l.Mark.Random && l.Mark.Number > 0 {
			lw.done, lw.known = a.order, l.Departed
		}
	}
	if c.rewound {
		l.Above = store.Higher(l.Above, store.Higher(c.reached, store.Higher(w.Manifest.RV, l.Mark.To)))
	}
	if l.Lineage == "" || c.rewound {
		newLineage(l)
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

// note logs an entry that is about to be written in the place of what was before, if it
// is a change.
func (lw *logWriter) note(e *overlay.Entry, stored *record.Header, was content.Before) error {
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
		lw.left = true
		return nil
	}
	if lw.bound == 0 && departs == 0 {
		lw.left = true
		return nil
	}
	if p, ok := lw.c.finals[e]; ok && departs != 0 && !lw.w.s.isAnother(e.Key, was.Header, e.Before) {
		if err := lw.w.Use(p.Dictionary); err != nil {
			return err
		}
		n.Final = p.Record(lw.w.s.codecID()).Encode(e.Key)
	}
	if was.Header == nil && departs != 0 && e.Before != nil { // it was never written
		if err := lw.before(&n, e); err != nil {
			return err
		}
		n.Kind |= record.KindShort
	}
	isDamaged := was.Header != nil && was.Head == nil
	if n.Record != nil && !isDamaged {
		_, err := record.Decode(e.Key, n.Record)
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
	if lw.listed {
		lw.w.Manifest.Log.Listed += int64(n.Size())
	}
	return nil
}

// before gives an entry of the log the state before, which was not in the file.
func (lw *logWriter) before(n *noted, e *overlay.Entry) error {
	p := lw.c.befores[e]
	head, err := e.Before.Stored(p).Encode(e.Key)
	if err != nil {
		return err
	}
	if err := lw.w.Use(p.Dictionary); err != nil {
		return err
	}
	n.Header, n.Record = head, p.Record(lw.w.s.codecID()).Encode(e.Key)
	return nil
}

// noteGone notes a deletion of the former content.
func (lw *logWriter) noteGone(e *overlay.Entry) error {
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
func (lw *logWriter) isSame(e *overlay.Entry, stored *record.Header, was content.Before) bool {
	if was.Head == nil || !bytes.Equal(was.Head.Hash, stored.Hash) {
		return false
	}
	old, err := lw.w.s.seal.Header(seal.InScope, e.Key, was.Header)
	return err == nil && old.RV == e.Head.RV && old.UID == e.Head.UID
}

// end appends the entries and the mark, and trims the log.
func (lw *logWriter) end() error {
	l, c := &lw.w.Manifest.Log, lw.c
	if l.Listing = c.listing; !c.asOf.IsZero() {
		l.AsOf = c.asOf.UnixNano()
	}
	begins := l.Mark.Number < l.Begin
	// A list has a mark even if it has changed nothing: a client that was ahead of it may
	// have what it has not.
	isDue := begins && !c.loading && !c.listing && !c.frozen || lw.listed && !c.listing
	if len(lw.entries) == 0 && !lw.left && !isDue {
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
		return b.Put(logKey(key), value)
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
	return lw.w.trimLog(b, first, appended, c)
}

// trim trims a log that has more than its bound although nothing is appended.
func (lw *logWriter) trim() error {
	if lw.w.Manifest.Log.Bytes <= boundOfDeletions(lw.bound) {
		return nil
	}
	t := lw.w.trimming(lw.c)
	t.budget = trimBytes
	return lw.w.trimAll(t)
}

// fit leaves out what one commit has more than the log may hold: changes that are not
// deletions first, and then the oldest deletions.
func (lw *logWriter) fit() {
	bound, size := boundOfDeletions(lw.bound), int64(0)
	for i := range lw.entries {
		size += int64(lw.entries[i].Size())
	}
	if size <= bound {
		return
	}
	left := func(n noted) bool {
		size -= int64(n.Size())
		lw.w.Manifest.Log.Dropped++
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
// leaves what begins at or above newest, and frees as much as has been appended and
// trimBytes more. Deletions that a handler has not received stay up to twice the bytes;
// writer.held is the number up to which nothing else is left.
func (w *writer) trimLog(b *bbolt.Bucket, newest uint64, appended int64, captured *capture) error {
	t := w.trimming(captured)
	t.budget = appended + trimBytes
	return w.trimLogTo(b, newest, t)
}

// trimming returns the bounds of the log.
func (w *writer) trimming(captured *capture) trimming {
	l := &w.Manifest.Log
	t := trimming{LogState: l, settled: captured.settled}
	t.bound, t.age = w.s.boundsOfLog(l.Bytes)
	t.bound, t.now = boundOfDeletions(t.bound), captured.taken.now(l.Mark.Time, t.age)
	return t
}

// trimAll trims the log up to its last block, which has the last mark.
func (w *writer) trimAll(t trimming) error {
	b := w.Scope.Bucket(layout.Log)
	if b == nil {
		return nil
	}
	k, _ := b.Cursor().Last()
	if len(k) != 8 {
		return nil
	}
	return w.trimLogTo(b, binary.BigEndian.Uint64(k), t)
}

func (w *writer) trimLogTo(b *bbolt.Bucket, newest uint64, t trimming) error {
	l := t.LogState
	start := uint64(0)
	if l.Bytes <= 2*t.bound {
		start = w.held
	} else {
		w.held = 0
	}
	type change struct {
		key, value []byte // a nil value is a deletion
	}
	var changes []change
	damaged, contiguous := false, true
	c := b.Cursor()
	for k, v := c.Seek(logKey(start)); len(k) == 8 && !t.isSpent(); k, v = c.Next() {
		number := binary.BigEndian.Uint64(k)
		if number >= newest {
			break
		}
		isExpired := t.isExpired(b, number, v)
		if l.Bytes <= t.bound && !isExpired {
			break
		}
		// Deletions have half of the bytes: a block of them stays, and the oldest block
		// of all changes is looked at instead.
		if number <= l.Full && l.Thinned <= t.bound/2 && !isExpired {
			contiguous = false
			if k, v = c.Seek(logKey(l.Full + 1)); len(k) != 8 {
				break
			}
			if number = binary.BigEndian.Uint64(k); number >= newest {
				break
			}
			isExpired = t.isExpired(b, number, v)
		}
		block, err := record.DecodeBlock(number, v)
		if err != nil {
			// The log begins anew behind what is damaged.
			w.s.db.opts.Logger.Error(w.s.db.corrupt(fmt.Sprintf("log of %s at %d", w.s.scope, number), err), "A damaged part of the log is passed over")
			damaged = true
			changes = append(changes, change{bytes.Clone(k), nil})
			t.read += int64(len(v))
			l.Full = max(l.Full, lastBefore(b, k, l.Last))
			continue
		}
		kept, lost := t.thin(block, isExpired)
		w.dropped += lost
		var value []byte
		switch {
		case len(kept.Entries) == len(block.Entries) && block.Thinned:
			value = v
		case len(kept.Entries) > 0:
			value = kept.Encode(number)
			fallthrough
		default:
			l.Blocks.Remove(record.Sum(v))
			if value != nil {
				l.Blocks.Add(record.Sum(value))
			}
			changes = append(changes, change{bytes.Clone(k), value})
		}
		t.replaced(number, block, len(v), len(value))
		if contiguous = contiguous && t.isHeld(kept); contiguous {
			w.held = number + 1
		}
	}
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
	if damaged {
		return recount(l, b)
	}
	return nil
}

// trimming is the state of trimLog.
type trimming struct {
	*record.LogState
	bound int64
	age   time.Duration
	now   int64 // the time at which entries have their ages, Unix nanoseconds
	// behind is the time of the block ahead, before which are blocks of a clock that was
	// ahead of now
	ahead   uint64
	behind  int64
	settled uint64 // departures up to it need not be held
	holds   bool   // all other departures are held, whatever the bound
	budget  int64  // bytes to free
	freed   int64
	read    int64
}

// isSpent reports whether one commit has done enough.
func (t *trimming) isSpent() bool { return t.freed >= t.budget || t.read >= 4*t.budget }

// isExpired reports whether a block of the log b is too old. One of a clock that was
// ahead has the time of the next one that is not.
func (t *trimming) isExpired(b *bbolt.Bucket, number uint64, v []byte) bool {
	if t.age <= 0 {
		return false
	}
	at := record.BlockTime(v).UnixNano()
	if at > t.now && number < t.ahead {
		at = t.behind
	}
	if at > t.now {
		c := b.Cursor()
		k, v := c.Seek(logKey(number))
		for ; len(k) == 8 && at > t.now; k, v = c.Next() {
			t.ahead, at = binary.BigEndian.Uint64(k), record.BlockTime(v).UnixNano()
		}
		at = min(at, t.now)
		t.behind = at
	}
	return t.now-at > int64(t.age)
}

// thin returns what stays of a block, and how many departed objects do not.
func (t *trimming) thin(block *record.Block, expired bool) (kept *record.Block, lost int) {
	kept = &record.Block{Time: block.Time, Thinned: true}
	for _, e := range block.Entries {
		switch {
		case e.Departs > t.settled && (t.holds || t.Bytes <= 2*t.bound):
		case !block.Thinned && !expired && e.Kind&record.KindDeleted != 0:
		default:
			t.Dropped++
			t.Entries--
			if e.Departs > t.settled {
				lost++
			}
			continue
		}
		kept.Entries = append(kept.Entries, e)
	}
	return kept, lost
}

// replaced counts a block that takes other bytes now.
func (t *trimming) replaced(number uint64, block *record.Block, was, is int) {
	t.read += int64(was)
	t.freed += int64(was - is)
	t.Bytes += int64(is - was)
	if t.Thinned += int64(is); number <= t.Full {
		t.Thinned -= int64(was)
	}
	t.Full = max(t.Full, block.Last())
}

// isHeld reports whether all that is left of a block has to be held.
func (t *trimming) isHeld(kept *record.Block) bool {
	for _, e := range kept.Entries {
		if e.Departs <= t.settled {
			return false
		}
	}
	return true
}

// lastBefore returns the number before the block behind a key.
func lastBefore(b *bbolt.Bucket, key []byte, last uint64) uint64 {
	c := b.Cursor()
	c.Seek(key)
	if k, _ := c.Next(); len(k) == 8 {
		return binary.BigEndian.Uint64(k) - 1
	}
	return last
}

// recount counts what is left after a damaged block, whose sum and entries are not known.
func recount(l *record.LogState, b *bbolt.Bucket) error {
	l.Blocks, l.Entries, l.Bytes, l.Thinned = record.Tally{}, 0, 0, 0
	return b.ForEach(func(k, v []byte) error {
		l.Blocks.Add(record.Sum(v))
		l.Bytes += int64(len(v))
		if len(k) != 8 {
			return nil
		}
		number := binary.BigEndian.Uint64(k)
		if number <= l.Full {
			l.Thinned += int64(len(v))
		}
		if block, err := record.DecodeBlock(number, v); err == nil {
			l.Entries += uint64(len(block.Entries))
		}
		return nil
	})
}
