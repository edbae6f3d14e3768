package bolt

import (
	"reflect"
	"unsafe"

	"github.com/informctl/informctl/store"
)

// SetRelistLimit sets how many bytes a relist keeps in memory.
func SetRelistLimit(r store.Relist, limit int) { r.(*relist).limit = limit }

// WriteAt is how bbolt writes to its file.
type WriteAt = func(b []byte, off int64) (n int, err error)

// HookWrites puts a function before every write to the file, until the file is
// opened again. bbolt has its function in a field, for its own tests.
func HookWrites(d *DB, hook func(next WriteAt) WriteAt) {
	d.writeMu.Lock()
	defer d.writeMu.Unlock()
	field := reflect.ValueOf(d.handle).Elem().FieldByName("ops").FieldByName("writeAt")
	writeAt := (*WriteAt)(unsafe.Pointer(field.UnsafeAddr()))
	*writeAt = hook(*writeAt)
}

// Quiet runs fn while nothing is written to the file.
func Quiet(d *DB, fn func()) {
	d.writeMu.Lock()
	defer d.writeMu.Unlock()
	fn()
}

// SetNoSync makes bbolt sync nothing, until the file is opened again: what a
// control of the tests does, which they must catch.
func SetNoSync(d *DB) { Quiet(d, func() { d.handle.NoSync, d.handle.NoGrowSync = true, true }) }

// SetMaxRebuilds sets how often a damaged file is begun again within ten minutes.
func SetMaxRebuilds(n int) { maxRebuilds = n }

// SetTrials sets after how many bytes a scope tries another dictionary.
func SetTrials(s store.Store, bytes int) {
	t := &s.(*Store).trials
	t.mu.Lock()
	defer t.mu.Unlock()
	t.every = bytes
}
