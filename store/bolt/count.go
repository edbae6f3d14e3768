package bolt

import (
	"github.com/informctl/informctl/store/bolt/internal/listing"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// count is how much a scope holds.
type count struct {
	length int // number of objects that readers see
	// miscounted means that length may be wrong: the file could not be read during an
	// Apply.
	miscounted  bool
	storedBytes int64 // of the records in the file
}

func (c *count) opened(m *record.Manifest) { c.length, c.storedBytes = int(m.Objects.Count), m.Bytes }

func (c *count) applied(e *overlay.Entry, existed bool) {
	switch isThere := e.Head != nil; {
	case existed && !isThere:
		c.length--
	case !existed && isThere:
		c.length++
	}
}

// listed counts the objects of a first list, and what was applied beside it. What the
// file has is not asked: it may not be readable now, and a write that has failed may be
// in it.
func (c *count) listed(list *listing.Keys, beside overlay.View) {
	c.length, c.miscounted = list.Added(), false
	beside.Scan(func(e *overlay.Entry) bool {
		switch isListed := list.IsAdded(e.Key); {
		case e.Head != nil && !isListed:
			c.length++
		case e.Head == nil && isListed:
			c.length--
		}
		return true
	})
}

// committed takes over the number of objects in the file if it has all of them.
func (c *count) committed(written capture, hasAll bool) {
	if c.storedBytes = written.Bytes; hasAll {
		c.length, c.miscounted = written.Stored, false
	}
}

func (c *count) forget() { *c = count{} }

func (c *count) Lost(error) { c.forget() }
