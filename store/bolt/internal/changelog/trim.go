package changelog

import (
	"bytes"
	"encoding/binary"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// trimLog drops what exceeds the bounds: first the changes that are not deletions. It
// leaves what begins at or above newest, and frees as much as has been appended and
// trimBytes more. Deletions that a handler has not received stay up to twice the bytes;
// appender.held is the number up to which nothing else is left.
func (lw *Appender) trimLog(b *bbolt.Bucket, newest uint64, appended int64) error {
	t := lw.trimming()
	t.budget = appended + TrimBytes
	return lw.trimLogTo(b, newest, t)
}

// trimming returns the bounds of the log.
func (lw *Appender) trimming() trimming {
	l := &lw.w.Manifest.Log
	t := trimming{LogState: l, settled: lw.Settled}
	t.bound, t.age = lw.Bounds(l.Bytes)
	t.bound, t.now = BoundOfDeletions(t.bound), lw.c.Taken.Now(l.Mark.Time, t.age)
	return t
}

// trimAll trims the log up to its last block, which has the last mark.
func (lw *Appender) trimAll(t trimming) error {
	b := lw.w.Scope.Bucket(layout.Log)
	if b == nil {
		return nil
	}
	c := b.Cursor()
	k, _ := c.Last()
	for k != nil && len(k) != 8 { // it is damaged, and trimmed once others follow
		k, _ = c.Prev()
	}
	if k == nil {
		return nil
	}
	return lw.trimLogTo(b, binary.BigEndian.Uint64(k), t)
}

// TrimBy frees about n bytes of the log of the scope that w writes. It keeps all
// departures that handlers have not received, and begins no lineage.
func TrimBy(w *content.Writer, c Capture, o Options, n int64) error {
	lw := &Appender{w: w, c: c, Options: o, Held: c.Held}
	t := lw.trimming()
	t.bound, t.budget, t.holds = max(lw.w.Manifest.Log.Bytes-n, 0), n, true
	return lw.trimAll(t)
}

func (lw *Appender) trimLogTo(b *bbolt.Bucket, newest uint64, t trimming) error {
	l := t.LogState
	start := uint64(0)
	if l.Bytes <= 2*t.bound {
		start = lw.Held
	} else {
		lw.Held = 0
	}
	type change struct {
		key, value []byte // a nil value is a deletion
	}
	var changes []change
	damaged, contiguous := false, true
	c, end := b.Cursor(), Key(newest)
	for k, v := c.Seek(Key(start)); isBefore(k, end) && !t.isSpent(); k, v = c.Next() {
		isExpired := t.isExpired(b, k, v)
		if l.Bytes <= t.bound && !isExpired {
			break
		}
		// Deletions have half of the bytes: a block of them stays, and the oldest block
		// of all changes is looked at instead.
		if isBefore(k, Key(l.Full+1)) && l.Thinned <= t.bound/2 && !isExpired {
			contiguous = false
			if k, v = c.Seek(Key(l.Full + 1)); !isBefore(k, end) {
				break
			}
			isExpired = t.isExpired(b, k, v)
		}
		block, err := blockOf(lw.w.Manifest.Scope(), k, v, record.DecodeBlock, lw.Corrupt)
		if err != nil {
			// The log begins anew behind what is damaged.
			lw.Logger.Error(err, "A damaged part of the log is passed over")
			damaged = true
			changes = append(changes, change{bytes.Clone(k), nil})
			t.read += int64(len(v))
			l.Full = max(l.Full, lastBefore(b, k, l.Last))
			continue
		}
		kept, lost := t.thin(block, isExpired)
		lw.Dropped += lost
		var value []byte
		switch {
		case len(kept.Entries) == len(block.Entries) && block.Thinned:
			value = v
		case len(kept.Entries) > 0:
			value = kept.Encode(block.Key)
			fallthrough
		default:
			l.Blocks.Remove(record.Sum(v))
			if value != nil {
				l.Blocks.Add(record.Sum(value))
			}
			changes = append(changes, change{bytes.Clone(k), value})
		}
		t.replaced(block, len(v), len(value))
		if contiguous = contiguous && t.isHeld(kept); contiguous {
			lw.Held = block.Key + 1
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

// isBefore reports whether there is a key, and it is below another one. That of a damaged
// element, whose length is wrong, begins with its number.
func isBefore(k, end []byte) bool { return k != nil && bytes.Compare(k, end) < 0 }

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
// ahead has the time of the next one that is not. A damaged key has no time, and nobody
// reads across it.
func (t *trimming) isExpired(b *bbolt.Bucket, k, v []byte) bool {
	if len(k) != 8 {
		return true
	}
	if t.age <= 0 {
		return false
	}
	at := record.BlockTime(v).UnixNano()
	if at > t.now && binary.BigEndian.Uint64(k) < t.ahead {
		at = t.behind
	}
	if at > t.now && t.Ordered != 0 && t.Ordered <= binary.BigEndian.Uint64(k) {
		return false // nor is one that follows from before now
	}
	if at > t.now {
		c := b.Cursor()
		for k, v := c.Seek(k); k != nil && at > t.now; k, v = c.Next() {
			if len(k) == 8 {
				t.ahead, at = binary.BigEndian.Uint64(k), record.BlockTime(v).UnixNano()
			}
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
func (t *trimming) replaced(block *record.Block, was, is int) {
	t.read += int64(was)
	t.freed += int64(was - is)
	t.Bytes += int64(is - was)
	if t.Thinned += int64(is); block.Key <= t.Full {
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
	for k, _ := c.Next(); k != nil; k, _ = c.Next() {
		if len(k) == 8 {
			return binary.BigEndian.Uint64(k) - 1
		}
	}
	return last
}

// recount counts what is left after a damaged block, whose sum and entries are not known.
func recount(l *record.LogState, b *bbolt.Bucket) error {
	l.Blocks, l.Entries, l.Bytes, l.Thinned = record.Tally{}, 0, 0, 0
	return b.ForEach(func(k, v []byte) error {
		l.Blocks.Add(record.Sum(v))
		l.Bytes += int64(len(v))
		if isBefore(k, Key(l.Full+1)) {
			l.Thinned += int64(len(v))
		}
		if len(k) != 8 {
			return nil
		}
		if block, err := record.DecodeBlock(binary.BigEndian.Uint64(k), v); err == nil {
			l.Entries += uint64(len(block.Entries))
		}
		return nil
	})
}
