package informer

import "github.com/informctl/informctl/store"

// depart marks the changes of a batch that delete an object that was stored at the start.
// stored contains the UIDs of the deleted objects. Only the goroutine that applies
// batches calls it.
func (inf *Informer) depart(batch *store.Batch, changes []change, stored map[string]string) {
	gone := map[string]change{}
	inf.mu.Lock()
	for _, c := range changes {
		if _, twice := gone[c.Key]; c.fate == toTell && c.Is.Key == "" && !twice && inf.atStart.Contains(c.Key) {
			gone[c.Key] = c
		}
	}
	inf.mu.Unlock()
	for i := range batch.Changes {
		c := &batch.Changes[i]
		if first, ok := gone[c.Key]; ok {
			c.Departs = true
			if first.Last != nil && !isOther(first.Last, stored[c.Key]) {
				c.Last = first.Last
			}
		}
	}
}
