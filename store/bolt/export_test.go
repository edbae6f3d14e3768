package bolt

import (
	"errors"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// SetRelistLimit sets the number of bytes that a relist keeps in memory.
func SetRelistLimit(r store.Relist, limit int) { r.(*relist).SetLimit(limit) }

// WriteAt is the type of bbolt's write function.
type WriteAt = func(b []byte, off int64) (n int, err error)

// HookWrites calls hook before every write to the file until the file is opened again.
// bbolt has its write function in a field for its own tests.
func HookWrites(d *DB, hook func(next WriteAt) WriteAt) {
	d.file.Lock()
	defer d.file.Unlock()
	field := reflect.ValueOf(d.file.Handle()).Elem().FieldByName("ops").FieldByName("writeAt")
	writeAt := (*WriteAt)(unsafe.Pointer(field.UnsafeAddr()))
	*writeAt = hook(*writeAt)
}

// Commit commits once, while the committer pauses.
func Commit(d *DB) error { return d.committer.commit() }

// Quiet runs fn while no other goroutine writes to the file.
func Quiet(d *DB, fn func()) {
	d.file.Lock()
	defer d.file.Unlock()
	fn()
}

// SetNoSync disables bbolt's syncs until the file is opened again. A control uses it: the
// tests must detect the missing syncs.
func SetNoSync(d *DB) {
	Quiet(d, func() { d.file.Handle().NoSync, d.file.Handle().NoGrowSync = true, true })
}

// SetTrials sets the number of bytes after which a scope tries another dictionary.
func SetTrials(s store.Store, bytes int) {
	s.(*scopeStore).packer.Load().SetTrials(bytes)
}

// SetSealBudget sets how often a data key may seal.
func SetSealBudget(d *DB, n uint64) { d.keys.Budget = n }

// Seals returns the number of seals with the current data key: since it was begun as far
// as is known, otherwise since the file was opened.
func Seals(d *DB) map[int]uint64 {
	key, n := d.keys.Loaded().Seals()
	return map[int]uint64{key: n}
}

// DataKeys returns the IDs of the data keys that seal the records of a scope.
func DataKeys(d *DB, scope store.Scope) (ids []uint64) {
	err := d.view("data keys", func(tx *bbolt.Tx) error {
		return tx.Bucket(layout.Scopes).Bucket([]byte(scope.ID())).Bucket(layout.Objects).ForEach(func(k, v []byte) error {
			r, err := record.Decode(string(k), v)
			ids = append(ids, r.DataKey)
			return err
		})
	})
	if err != nil {
		panic(err)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// DropReached removes what a scope that is not in the file had reached.
func DropReached(d *DB, scope store.Scope) {
	err := d.update("test", func(tx *bbolt.Tx) error {
		rv, err := layout.TakeReached(tx, scope.ID())
		if err == nil && rv == "" {
			err = errors.New("nothing is noted")
		}
		return err
	})
	if err != nil {
		panic(err)
	}
}

// Epoch returns the epoch of a file.
func Epoch(d *DB) (epoch string, err error) {
	err = d.view("epoch", func(tx *bbolt.Tx) error {
		epoch = string(tx.Bucket(layout.Meta).Get(layout.KeyEpoch))
		return nil
	})
	return epoch, err
}

// DamageLog changes a byte in the block of the log at a position, counted from 0.
func DamageLog(d *DB, scope store.Scope, position int) {
	err := d.update("damage", func(tx *bbolt.Tx) error {
		b := tx.Bucket(layout.Scopes).Bucket([]byte(scope.ID())).Bucket(layout.Log)
		c := b.Cursor()
		k, v := c.First()
		for range position {
			k, v = c.Next()
		}
		k, v = slices.Clone(k), slices.Clone(v)
		v[len(v)/2] ^= 1
		return b.Put(k, v)
	})
	if err != nil {
		panic(err)
	}
}

// DropLastBlock removes the last block of the log.
func DropLastBlock(d *DB, scope store.Scope) {
	err := d.update("damage", func(tx *bbolt.Tx) error {
		b := tx.Bucket(layout.Scopes).Bucket([]byte(scope.ID())).Bucket(layout.Log)
		k, _ := b.Cursor().Last()
		return b.Delete(k)
	})
	if err != nil {
		panic(err)
	}
}

// PutIntoLog puts a value under a key that is no number behind the blocks of the log.
func PutIntoLog(d *DB, scope store.Scope) {
	err := d.update("damage", func(tx *bbolt.Tx) error {
		return tx.Bucket(layout.Scopes).Bucket([]byte(scope.ID())).Bucket(layout.Log).Put([]byte{0xff}, []byte("x"))
	})
	if err != nil {
		panic(err)
	}
}

// MaxKey is the length of the longest key that is stored unchanged.
const MaxKey = record.MaxKey

// WithoutLock runs fn while the file is not locked, as if locks had no effect.
func WithoutLock(d *DB, fn func()) {
	Quiet(d, func() {
		for _, how := range []int{unix.LOCK_UN, unix.LOCK_EX} {
			if err := unix.Flock(int(d.file.Locked().Fd()), how); err != nil {
				panic(err)
			}
			if how == unix.LOCK_UN {
				fn()
			}
		}
	})
}

// DropIndexBucket drops the bucket of an index. The manifest still contains the index.
func DropIndexBucket(d *DB, scope store.Scope, name string) {
	err := d.update("damage", func(tx *bbolt.Tx) error {
		return tx.Bucket(layout.Scopes).Bucket([]byte(scope.ID())).Bucket(layout.Indexes).DeleteBucket([]byte(name))
	})
	if err != nil {
		panic(err)
	}
}

// Wake requests a commit and returns when the committer has received the request.
func Wake(d *DB) { d.urgent <- struct{}{} }

// ViewBucket runs fn in a read transaction and then looks up the scope's bucket in it.
func ViewBucket(d *DB, s store.Store, fn func()) {
	_ = d.view("test", func(tx *bbolt.Tx) error {
		fn()
		s.(*scopeStore).bucket(tx)
		return nil
	})
}

// AwaitRemap waits until bbolt's writer waits for the readers. From then on no reader can
// begin.
func AwaitRemap(d *DB) {
	lock := (*sync.RWMutex)(unsafe.Pointer(reflect.ValueOf(d.file.Handle()).Elem().FieldByName("mmaplock").UnsafeAddr()))
	for lock.TryRLock() {
		lock.RUnlock()
		runtime.Gosched()
	}
}

// AwaitReader waits until a reader holds the store's lock.
func AwaitReader(s store.Store) {
	for s.(*scopeStore).mu.TryLock() {
		s.(*scopeStore).mu.Unlock()
		runtime.Gosched()
	}
}

// FileLogBytes returns the number of bytes of the logs of all open scopes.
func FileLogBytes(d *DB) int64 { return d.logs.Bytes.Load() }

// CommitCount returns the number of transactions of the store's database.
func CommitCount(s store.Store) int { return s.(*scopeStore).Commits().Count }

// LentStates returns for how many objects a scope has weak pointers.
func LentStates(s store.Store) int { return s.(*scopeStore).objects.Lent() }
