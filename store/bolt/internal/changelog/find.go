package changelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// MarkAt returns the mark that a place means, and whether the place is inside the commit
// after it. readable asks for a mark whose content is a state of the server. Errors:
// store.ErrLineage, store.ErrTrimmed, store.ErrAhead.
func (r *Reader) MarkAt(p store.Place, readable bool) (m store.Mark, inside bool, err error) {
	l := &r.Log
	switch {
	case l.Lineage == "" || l.Mark.Number == 0:
		if p.Exact() {
			return m, false, store.ErrLineage
		}
		return m, false, store.ErrTrimmed
	case !p.Exact():
		return r.lookUp(p, readable)
	case p.Lineage != l.Lineage || p.Mark > l.Last || p.Mark < l.Begin:
		return m, false, store.ErrLineage
	case p.Mark < l.Full:
		return m, false, store.ErrTrimmed
	}
	marks, err := r.marks(p.Mark, p.Mark)
	full := l.Full
	if err == nil && len(marks) == 0 {
		full, err = r.Full() // the file may be ahead of what is acknowledged
	}
	switch {
	case err != nil:
		return m, false, Cut(err)
	case len(marks) == 0 && p.Mark <= max(l.Full, full): // its lineage is not known
		return m, false, store.ErrTrimmed
	case len(marks) == 0 || marks[0].Random != p.Random:
		return m, false, store.ErrLineage
	case readable && (marks[0].Frozen || marks[0].Listing):
		return m, false, store.ErrTrimmed
	}
	return marks[0], false, nil
}

// Cut turns damage in the log into store.ErrTrimmed: the log ends there for a caller
// that comes from before, and no relist can mend it. A file without a handle says nothing
// of the log.
func Cut(err error) error {
	if boltfile.IsDamage(err) && !errors.Is(err, store.ErrTrimmed) {
		return fmt.Errorf("%w: %w", store.ErrTrimmed, err)
	}
	return err
}

// lookUp finds a place by resource version or time. It reads few blocks of a log whose
// marks are in the order of both, and else all of them.
func (r *Reader) lookUp(p store.Place, readable bool) (m store.Mark, inside bool, err error) {
	l := &r.Log
	if p.RV != "" && l.Above != "" && store.Higher(p.RV, l.Above) == l.Above {
		return m, false, store.ErrTrimmed
	}
	marks, err := r.around(p)
	if err != nil {
		return m, false, Cut(err)
	}
	i, inside, err := store.FindMark(marks, r.StoredRV, p, readable)
	if err != nil {
		return m, false, err
	}
	return marks[i], inside, nil
}

// around returns the marks that decide about a place.
func (r *Reader) around(p store.Place) (marks []store.Mark, err error) {
	l := &r.Log
	first, last := max(l.Full, l.Begin), l.Last
	if !r.inOrder(p) {
		return r.marks(first, last)
	}
	isBehind := func(m *store.Mark) bool { return m.Time.After(p.Time) }
	if p.RV != "" {
		isBehind = func(m *store.Mark) bool { return m.IsReadable() && m.RV != p.RV && store.Higher(m.RV, p.RV) == m.RV }
	}
	// The search ends with before, the number of the last mark that may be the one, and
	// behind, that of the first one that is behind the place.
	before, behind := first, last+1
	for low, high := first, last+1; low < high; {
		middle := low + (high-low)/2
		m, err := r.next(middle, high, func(m *store.Mark) bool { return p.RV == "" || m.IsReadable() })
		switch {
		case err != nil:
			return nil, err
		case m == nil:
			high = middle
		case isBehind(m):
			high, behind = middle, m.Mark
		default:
			low, before = m.Mark+1, m.Mark
		}
	}
	return r.marks(before, min(behind, last))
}

// inOrder reports whether what a place is looked up by does not decrease from one mark of
// the log to the next.
func (r *Reader) inOrder(p store.Place) bool {
	l := &r.Log
	isOrdered := l.Ordered != 0 && l.Ordered <= max(l.Full, l.Begin)
	return isOrdered && (p.RV != "" || l.Mark.Time <= time.Now().UnixNano())
}

// next returns the first mark from a number on, and before another one, that is asked
// for, nil if there is none.
func (r *Reader) next(from, before uint64, asked func(*store.Mark) bool) (found *store.Mark, err error) {
	err = r.EachHead(from, func(b *record.Block) bool {
		if b.Mark == nil || b.Mark.Number < from {
			return b.Last() < before
		}
		if m := r.Mark(b.Mark); m.Mark < before && asked(m) {
			found = m
		}
		return found == nil && b.Last() < before
	})
	return found, err
}

// marks returns the marks from one number up to another one.
func (r *Reader) marks(from, to uint64) (marks []store.Mark, err error) {
	err = r.EachHead(from, func(b *record.Block) bool {
		if m := b.Mark; m != nil && m.Number <= to && m.Number >= from {
			marks = append(marks, *r.Mark(m))
		}
		return b.Last() < to
	})
	return marks, err
}

// Readable returns the newest place that can be read by resource version; zero if there
// is none. It walks back from the end of the log.
func (r *Reader) Readable() (p store.Place) {
	b, l := r.bucket(), &r.Log
	if b == nil {
		return p
	}
	c := b.Cursor()
	for k, v := c.Last(); len(k) == 8; k, v = c.Prev() {
		block, err := record.DecodeHead(binary.BigEndian.Uint64(k), v)
		if err != nil || block.Last() < max(l.Full, l.Begin) {
			break // nothing before it can be read
		}
		if m := block.Mark; m != nil && m.Number <= l.Last && m.Number >= max(l.Full, l.Begin) {
			if mark := r.Mark(m); mark.IsReadable() {
				return mark.Place
			}
		}
	}
	return p
}
