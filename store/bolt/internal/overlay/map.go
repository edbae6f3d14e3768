package overlay

import "sync/atomic"

// Map is what was applied and is not in the file. Its owner does the locking.
type Map struct {
	now   View
	bytes int
	sum   *atomic.Int64 // the bytes of all overlays
}

// NewMap returns an empty overlay that adds its bytes to sum.
func NewMap(sum *atomic.Int64) Map { return Map{now: NewView(), sum: sum} }

// View returns what is in the overlay now. Later changes do not change the view.
func (o *Map) View() View { return View{o.now.entries.Copy(), o.now.indexed.Copy()} }

// Get returns the newest state of a key.
func (o *Map) Get(key string) (*Entry, bool) { return o.now.Get(key) }

// Len returns the number of entries.
func (o *Map) Len() int { return o.now.Len() }

// Bytes estimates the memory of the entries, in bytes.
func (o *Map) Bytes() int { return o.bytes }

// Set makes an entry the newest state of its key. The entry must not be changed from
// then on.
func (o *Map) Set(e *Entry) {
	if old := o.now.Put(e); old != nil {
		o.add(-old.Size())
	}
	o.add(e.Size())
}

// Committed removes the written entries that have not changed since. The others follow
// what is in the file now.
func (o *Map) Committed(written View) {
	written.Scan(func(e *Entry) bool {
		switch now, ok := o.Get(e.Key); {
		case ok && now == e:
			o.drop(e)
		case ok:
			changed := *now
			changed.follows(e)
			o.Set(&changed)
		}
		return true
	})
}

// LeaveWritten removes the entries that the file has already, and reports whether there
// were any.
func (o *Map) LeaveWritten() (were bool) {
	o.View().Scan(func(e *Entry) bool {
		if e.InFile {
			o.drop(e)
			were = true
		}
		return true
	})
	return were
}

// drop removes an entry that is its key's newest state.
func (o *Map) drop(e *Entry) {
	o.now.entries.Delete(e.Key)
	o.now.index(e, false)
	o.add(-e.Size())
}

// Forget removes all entries.
func (o *Map) Forget() {
	o.add(-o.bytes)
	o.now = NewView()
}

// Lost forgets what waits.
func (o *Map) Lost(error) { o.Forget() }

// add adds n bytes, which may be negative.
func (o *Map) add(n int) {
	o.bytes += n
	o.sum.Add(int64(n))
}
