package informer

import "github.com/informctl/informctl/store"

// depart marks the changes of a batch that delete an object that was stored at the start.
// A list has marked all objects that it replaces by others. stored contains the UIDs of
// the deleted objects. Only the goroutine that applies batches calls it.
func (inf *Informer) depart(batch *store.Batch, changes []change, stored map[string]string) {
	gone := map[string]change{}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for _, c := range changes {
		if _, twice := gone[c.Key]; c.fate == toTell && c.Is.Key == "" && !twice && inf.atStart.Contains(c.Key) {
			gone[c.Key] = c
		}
	}
	for i := range batch.Changes {
		c := &batch.Changes[i]
		first, ok := gone[c.Key]
		c.Departs = ok || c.Departs && inf.atStart.Contains(c.Key)
		if first.Last != nil && !isOther(first.Last, stored[c.Key]) {
			c.Last = first.Last
		}
	}
}

// departed notes the objects that have departed with a batch that the store has taken.
func (inf *Informer) departed(batch store.Batch) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for _, c := range batch.Changes {
		if c.Departs {
			inf.atStart.Delete(c.Key)
		}
	}
}
