// Package pagefile opens, locks and checks a bbolt file whose bytes may be wrong. It
// reads and checks what bbolt trusts without a check and would otherwise panic on,
// overwrite or wait for. It knows bbolt's pages but not the contents of the buckets.
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

// initialMmap lets the file grow without being mapped again. To map the file again,
// bbolt's writer waits for every reader, and every new reader waits for the writer.
const initialMmap = 1 << 30

// allocSize is how much longer than necessary bbolt makes a file that it extends, in
// bytes. bbolt's default, 16 MiB, is more than most files need.
const allocSize = 2 << 20

// Handle opens f, whose path is only for messages. maxBytes bounds the file; 0 means no
// bound. The caller must call it in Guard.
func Handle(path string, f *os.File, readOnly bool, maxBytes int) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, options(f, readOnly, maxBytes))
	if err != nil {
		return nil, err
	}
	db.AllocSize = allocSize
	return db, nil
}

// options returns bbolt's options for a handle on f. NoSync is never set, because a power
// cut corrupted 12 of 12 files with it. NoFreelistSync is never set, because bbolt then
// walks a damaged file in a goroutine whose panic cannot be recovered.
func options(f *os.File, readOnly bool, maxBytes int) *bbolt.Options {
	mmap := initialMmap
	if maxBytes > 0 {
		mmap = min(mmap, maxBytes) // bbolt checks the bound when the mapping is full
		if mmap < 2*allocSize {
			// bbolt extends a file this small to the size of its mapping, a power of two.
			mmap = 1 << (bits.Len(uint(mmap)) - 1)
		}
	}
	if readOnly {
		mmap = 0 // the file does not grow
	}
	return &bbolt.Options{
		Timeout:         time.Second, // the lock is already held
		ReadOnly:        readOnly,
		InitialMmapSize: mmap,
		MaxSize:         maxBytes,
		FreelistType:    bbolt.FreelistMapType,
		NoStatistics:    readOnly, // a writer asks for the free pages
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	}
}

// ErrPanicked is wrapped by the error of a guarded call that panicked or faulted.
var ErrPanicked = errors.New("bbolt")

// Guard runs fn. bbolt may panic or fault on damaged pages in it; Guard returns both as a
// *store.CorruptionError. fn must not call user code.
func Guard(path, where string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &store.CorruptionError{Path: path, Where: where, Err: fmt.Errorf("%w: %v", ErrPanicked, r)}
		}
	}()
	return fn()
}
