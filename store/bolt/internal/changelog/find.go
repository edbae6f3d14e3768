package changelog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Find returns the number of the first item after a place, and whether the place is
// inside a commit. readable asks for a place whose content is a state of the server.
// Errors: store.ErrLineage, store.ErrTrimmed, store.ErrAhead.
func (r *Reader) Find(p store.Place, readable bool) (from uint64, inside bool, err error) {
	l := &r.Log
	switch {
	case l.Lineage == "" || l.Mark.Number == 0:
		if p.Exact() {
			return 0, false, store.ErrLineage
		}
		return 0, false, store.ErrTrimmed
	case !p.Exact():
		return r.lookUp(p, readable)
	case p.Lineage != l.Lineage || p.Mark > l.Last || p.Mark < l.Begin:
		return 0, false, store.ErrLineage
	case p.Mark < l.Full:
		return 0, false, store.ErrTrimmed
	}
	var mark *record.Mark
	if err := r.EachBlock(p.Mark, func(b *record.Block) bool {
		if b.Mark != nil && b.Mark.Number == p.Mark {
			mark = b.Mark
		}
		return b.Last() < p.Mark
	}); err != nil {
		return 0, false, Cut(err)
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

// Cut turns damage in the log into store.ErrTrimmed: the log ends there for a caller
// that comes from before, and no relist can mend it.
func Cut(err error) error {
	if errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrTrimmed) {
		return fmt.Errorf("%w: %w", store.ErrTrimmed, err)
	}
	return err
}

// lookUp finds a place by resource version or time.
func (r *Reader) lookUp(p store.Place, readable bool) (from uint64, inside bool, err error) {
	l := &r.Log
	if p.RV != "" && l.Above != "" && store.Higher(p.RV, l.Above) == l.Above {
		return 0, false, store.ErrTrimmed
	}
	var marks []store.Mark
	err = r.EachBlock(max(l.Full, l.Begin), func(b *record.Block) bool {
		if m := b.Mark; m != nil && m.Number <= l.Last && m.Number >= max(l.Full, l.Begin) {
			marks = append(marks, *r.Mark(m))
		}
		return b.Last() < l.Last
	})
	if err != nil {
		return 0, false, Cut(err)
	}
	i, inside, err := store.FindMark(marks, r.StoredRV, p, readable)
	if err != nil {
		return 0, false, err
	}
	return marks[i].Mark + 1, inside, nil
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
		block, err := record.DecodeBlock(binary.BigEndian.Uint64(k), v)
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
