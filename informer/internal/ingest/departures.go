package ingest

import (
	"github.com/tidwall/btree"

	"github.com/informctl/informctl/store"
)

// departures tells which deletions are of objects that were stored when the process
// began. Only the goroutine that applies uses it.
type departures struct {
	atStart btree.Set[string] // keys stored at the start, minus departed ones
}

// begin notes the keys of the objects that were stored at the start, unless they could
// not be read.
func (d *departures) begin(known *btree.Set[string], err error) {
	if err == nil && known != nil {
		d.atStart = *known
	}
}

// mark marks the changes of a batch that delete an object that was stored at the start.
// A list has marked all objects that it replaces by others.
func (d *departures) mark(batch *store.Batch, changes []change, held map[string]store.Held) {
	gone := map[string]change{}
	for _, c := range changes {
		if _, twice := gone[c.Key]; c.fate == toTell && c.Is.Key == "" && !twice && d.atStart.Contains(c.Key) {
			gone[c.Key] = c
		}
	}
	for i := range batch.Changes {
		c := &batch.Changes[i]
		first, ok := gone[c.Key]
		c.Departs = ok || c.Departs && d.atStart.Contains(c.Key)
		if first.Last != nil && !isOther(first.Last, held[c.Key].UID) {
			c.Last = first.Last
		}
	}
}

// note notes the objects that have departed with a batch that the store has taken.
func (d *departures) note(batch store.Batch) {
	for _, c := range batch.Changes {
		if c.Departs {
			d.atStart.Delete(c.Key)
		}
	}
}
