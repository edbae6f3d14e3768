package informer

import (
	"time"

	"github.com/informctl/informctl/store"
)

// departures are the objects that a warm start found deleted while it caught up.
//
// controller-runtime adds its handlers after HasSynced, when the store has
// forgotten these objects: without the departures no controller would hear of what
// was deleted while its process was down (promise 4). So a handler that comes
// while the informer catches up, or soon after, is told of each one first: an
// initial add with the last known object, then the deletion.
type departures struct {
	told  []notification // add and deletion in turn
	bytes int64          // of the objects
	full  bool
}

const (
	// departuresFor is how long after catching up they are kept:
	// controller-runtime's default CacheSyncTimeout.
	departuresFor = 2 * time.Minute
	// departuresBytes bounds what is kept, encoded. What would exceed it is left
	// out, and logged.
	departuresBytes = 16 << 20
	// decodedSize stands for the size of an object that is at hand decoded.
	decodedSize = 16 << 10
)

// addLocked notes a deletion. last is what was stored before it.
func (d *departures) addLocked(n notification, last store.Entry) {
	if !isReadable(last) {
		return
	}
	size := int64(len(last.Raw))
	if last.Object != nil {
		size = decodedSize
	}
	if d.bytes += size; d.bytes > departuresBytes {
		d.full = true
		return
	}
	d.told = append(d.told, notification{kind: added, key: n.key, new: last, initial: true}, n)
}

// departLocked notes a deletion that handlers which come later would miss.
func (inf *Informer) departLocked(n notification, last store.Entry) {
	if inf.warm && !inf.caughtUp {
		inf.departed.addLocked(n, last)
	}
}

// keepDeparturesLocked begins the time after which they are forgotten.
func (inf *Informer) keepDeparturesLocked() {
	if len(inf.departed.told) == 0 {
		return
	}
	inf.forgetting = time.AfterFunc(departuresFor, func() {
		inf.mu.Lock()
		defer inf.mu.Unlock()
		inf.departed = departures{}
	})
}
