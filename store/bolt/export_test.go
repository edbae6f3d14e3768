package bolt

import (
	"reflect"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

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

// SetBackgroundBytes sets from which size on records are verified in the background.
func SetBackgroundBytes(n int64) { backgroundBytes = n }

// AwaitVerified waits until every entry has been checked.
func AwaitVerified(d *DB) { <-d.verified }

// SetMaxRebuilds sets how often a damaged file is begun again within ten minutes.
func SetMaxRebuilds(n int) { maxRebuilds = n }

// SetTrials sets after how many bytes a scope tries another dictionary.
func SetTrials(s store.Store, bytes int) {
	t := &s.(*Store).trials
	t.mu.Lock()
	defer t.mu.Unlock()
	t.every = bytes
}

// SetDepartedBytes sets how many bytes each scope keeps of departed objects.
func SetDepartedBytes(d *DB, n int64) { d.departedBytes = n }

// SetSealBudget sets how often a data key seals.
func SetSealBudget(d *DB, n uint64) { d.sealBudget = n }

// Seals returns how often each data key has sealed since the file was opened or, the
// first of those, since it was begun, as far as is known.
func Seals(d *DB) map[int]uint64 {
	d.keys.mu.Lock()
	defer d.keys.mu.Unlock()
	return map[int]uint64{len(d.keys.data): d.keys.seals}
}

// DataKeys returns the ids of the data keys that the records of a scope are under.
func DataKeys(d *DB, scope store.Scope) (ids []uint64) {
	err := d.view("data keys", func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketScope).Bucket([]byte(scope.ID())).Bucket(bucketObjects).ForEach(func(k, v []byte) error {
			r, err := decodeRecord(string(k), v)
			ids = append(ids, r.dataKey)
			return err
		})
	})
	if err != nil {
		panic(err)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Epoch returns the epoch that a file is of.
func Epoch(d *DB) (epoch string, err error) {
	err = d.view("epoch", func(tx *bbolt.Tx) error {
		epoch = string(tx.Bucket(bucketMeta).Get(keyEpoch))
		return nil
	})
	return epoch, err
}

// DamageDeparted changes a byte of what is kept of a departed object.
func DamageDeparted(d *DB, scope store.Scope, number uint64) {
	err := d.update("damage", func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketScope).Bucket([]byte(scope.ID())).Bucket(bucketDeparted)
		v := slices.Clone(b.Get(departedKey(number)))
		v[len(v)/2] ^= 1
		return b.Put(departedKey(number), v)
	})
	if err != nil {
		panic(err)
	}
}

// MaxKey is the longest key that the file has as it is.
const MaxKey = maxKey

// WithoutLock runs fn while the file is not locked, as if locks did nothing.
func WithoutLock(d *DB, fn func()) {
	Quiet(d, func() {
		for _, how := range []int{unix.LOCK_UN, unix.LOCK_EX} {
			if err := unix.Flock(int(d.lock.Fd()), how); err != nil {
				panic(err)
			}
			if how == unix.LOCK_UN {
				fn()
			}
		}
	})
}

// DropIndexBucket drops what the file has of an index, and not what the manifest says.
func DropIndexBucket(d *DB, scope store.Scope, name string) {
	err := d.update("damage", func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketScope).Bucket([]byte(scope.ID())).Bucket(bucketIndex).DeleteBucket([]byte(name))
	})
	if err != nil {
		panic(err)
	}
}

// Wake asks for a commit, and returns when the committer has taken that up.
func Wake(d *DB) { d.urgent <- struct{}{} }

// ViewBucket runs fn in a read transaction, and then looks for the scope's bucket there.
func ViewBucket(d *DB, s store.Store, fn func()) {
	_ = d.view("test", func(tx *bbolt.Tx) error {
		fn()
		s.(*Store).bucket(tx)
		return nil
	})
}

// AwaitRemap waits until bbolt's writer waits for readers: then none can begin.
func AwaitRemap(d *DB) {
	lock := (*sync.RWMutex)(unsafe.Pointer(reflect.ValueOf(d.handle).Elem().FieldByName("mmaplock").UnsafeAddr()))
	for lock.TryRLock() {
		lock.RUnlock()
		runtime.Gosched()
	}
}

// AwaitReader waits until a reader holds the store's lock.
func AwaitReader(s store.Store) {
	for s.(*Store).mu.TryLock() {
		s.(*Store).mu.Unlock()
		runtime.Gosched()
	}
}
