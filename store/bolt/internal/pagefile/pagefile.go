// Package pagefile opens, locks and checks a bbolt file whose bytes may be wrong: what
// bbolt believes unseen, and would panic on, write over or wait for, is read here first.
// It knows bbolt's pages and nothing of what the buckets hold.
package pagefile

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime/debug"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
)

// initialMmap lets the file grow without a remap: bbolt's writer waits for every
// reader to remap, and every new reader for the writer.
const initialMmap = 1 << 30

// allocSize is by how much bbolt lets a file grow at a time, once it is so large.
const allocSize = 16 << 20

// Options returns those of every handle on f. maxBytes bounds the file; 0 is no bound. Never NoSync: a power cut corrupted
// 12 of 12 files. Never NoFreelistSync: bbolt then walks a damaged file in a
// goroutine whose panic nobody can recover.
func Options(f *os.File, readOnly bool, maxBytes int) *bbolt.Options {
	mmap := initialMmap
	if maxBytes > 0 {
		mmap = min(mmap, maxBytes) // bbolt looks at the bound when the mapping is full
		if mmap < allocSize {
			// A file this small is made as long as its mapping, and that a power of two.
			mmap = 1 << (bits.Len(uint(mmap)) - 1)
		}
	}
	if readOnly {
		mmap = 0 // it does not grow
	}
	return &bbolt.Options{
		Timeout:         time.Second, // the lock is held already
		ReadOnly:        readOnly,
		InitialMmapSize: mmap,
		MaxSize:         maxBytes,
		FreelistType:    bbolt.FreelistMapType,
		NoStatistics:    true,
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	}
}

// ErrPanicked is in the error of a guarded call that panicked or faulted.
var ErrPanicked = errors.New("bbolt")

// Guard runs fn, in which bbolt may panic or fault on damaged pages, and turns
// both into a *store.CorruptionError. fn must not call user code.
func Guard(path, where string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &store.CorruptionError{Path: path, Where: where, Err: fmt.Errorf("%w: %v", ErrPanicked, r)}
		}
	}()
	return fn()
}
