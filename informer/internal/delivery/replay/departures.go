package replay

import (
	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// Departed objects were stored when the process started, or departed in an earlier
// process whose handlers did not receive their deletion, and have been deleted since. If
// several of them had the same key, handlers receive only the last one; they receive none
// if another object had the key when the process started.
//
// controller-runtime adds its handlers after HasSynced, those of a leader when the
// process becomes the leader, and the store no longer shows these objects then. So the
// store keeps the last states of departed objects in the file, beside the other objects.
// Whenever a handler is added, it first receives each of them: an initial add with the
// last known state, then the deletion (promise 4).
//
// Departed objects are settled, so that the next process drops them, when all present
// handlers have confirmed them. A handler confirms by its return from every deletion,
// once it has synced. A resume.Handler confirms when it has written what it has received,
// so one that waits to begin confirms nothing. One that was removed keeps what it has not
// confirmed until another one is added, and so does one that its consumer will add when
// it is elected (resume.Owe).
//
// A program that ends may remove its handlers first, and drops what waits for them. So
// another handler that is removed before it has received every deletion keeps what it has
// not received, too: nothing more is settled until another one is added, which receives
// all departed objects, or until the process ends. If none is added, the next process
// reports some objects that all handlers know of, within the bound of the log, and
// settles them.

// chunk is the number of departed objects that are read at a time.
const chunk = 64

// Departures are the departed objects of a store.
type Departures struct {
	store      store.Departer  // nil: the store has none
	superseded map[uint64]bool // numbers of departed objects that no handler receives
	compared   bool            // the first list may find departed objects
	deletions  uint64          // that were appended to the queues
	settled    uint64          // up to where Settle has settled
	owed       int             // resume.Handlers that were removed, and will come again
	missed     int             // other handlers that were removed too early
}

// Receipt is what one handler has received of the departed objects.
type Receipt struct {
	After     uint64 // departed objects up to this number are appended
	Deletions int    // deletions, of any object, that are queued and not yet delivered
	Confirmed uint64 // the last departed object that is not needed any more
}

// Open says where departed objects are stored; nil means nowhere.
func (d *Departures) Open(s store.Departer) { d.store = s }

// Find finds the objects that departed before this process started and whose key another
// object has taken since, stored or departed. isStored reports whether an object has a
// key. Find reports whether anything has departed, or may be found to have by the first
// list.
func (d *Departures) Find(isStored func(key string) bool) bool {
	if d.store == nil {
		return false
	}
	d.superseded, d.compared = map[uint64]bool{}, d.store.Compares()
	numbers := map[string]uint64{}
	for after := uint64(0); ; {
		gone, err := d.store.Departed(after, chunk)
		if err != nil {
			return true // a handler gets the same error
		}
		for _, one := range gone {
			after = one.Number
			if before, again := numbers[one.Before.Key]; again {
				d.superseded[before] = true
			}
			numbers[one.Before.Key] = one.Number
			if isStored(one.Before.Key) {
				d.superseded[one.Number] = true
			}
		}
		if len(gone) < chunk {
			return len(numbers) > 0 || d.compared
		}
	}
}

// Compares reports whether the first list may find departed objects.
func (d *Departures) Compares() bool { return d.compared }

// Next returns the next departed objects after those of a Receipt, each as an add and a
// deletion, and notes them there. more is false at the last one.
func (d *Departures) Next(r *Receipt) (some []queue.Notification, more bool, err error) {
	if d.store == nil {
		return nil, false, nil
	}
	gone, err := d.store.Departed(r.After, chunk)
	if err != nil {
		return nil, false, err
	}
	for _, one := range gone {
		r.After = one.Number
		if d.superseded[one.Number] {
			continue
		}
		if !queue.IsReadable(one.Before) {
			if one.Before = one.Last; !queue.IsReadable(one.Last) {
				continue // without a readable state there is no add
			}
		}
		last := queue.Notification{Kind: queue.Vanished, Key: one.Before.Key, Old: one.Before}
		if queue.IsReadable(one.Last) {
			last.Kind, last.Old = queue.Deleted, one.Last
		}
		some = append(some, queue.Notification{Kind: queue.Added, Key: one.Before.Key, New: one.Before, Initial: true}, last)
		r.Deletions++
	}
	return some, len(gone) == chunk, nil
}

// Delete notes a deletion that is appended to all queues.
func (d *Departures) Delete() { d.deletions++ }

// Owe notes that a handler was removed that another one will follow, and Repay that one
// was added, or that the removed one has received everything after all. goesOn says that
// it is a resume.Handler.
func (d *Departures) Owe(goesOn bool) { *d.owedTo(goesOn)++ }

// Repay notes that a handler was added: see Owe.
func (d *Departures) Repay(goesOn bool) {
	n := d.owedTo(goesOn)
	*n = max(*n-1, 0)
}

func (d *Departures) owedTo(goesOn bool) *int {
	if goesOn {
		return &d.owed
	}
	return &d.missed
}

// Exist reports whether the store has departed objects.
func (d *Departures) Exist() bool { return d.store != nil }

// Last returns the number of the last object that has departed. If the store does not say
// it, each deletion has a number.
func (d *Departures) Last() uint64 {
	if s, ok := d.store.(store.PartSettler); ok {
		return s.LastDeparted()
	}
	return d.deletions + 1 // above Receipt.Confirmed at first
}

// Settle tells the store up to which departed object all handlers have confirmed. last is
// what Last has returned before. Nothing more is settled while a handler is owed, see
// Owe, or waits says that one will come.
func (d *Departures) Settle(upTo, last uint64, waits bool) {
	if waits || d.owed+d.missed > 0 {
		upTo = min(upTo, d.settled) // less, if a handler was added since
	}
	d.settled = upTo
	if s, ok := d.store.(store.PartSettler); ok {
		s.SettleUpTo(upTo)
	} else if upTo == last {
		d.store.Settle()
	} else {
		d.store.Unsettle()
	}
}
