package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/store"
)

// The layout of bbolt's pages, as far as it is needed before bbolt itself may
// map the file (go.etcd.io/bbolt/internal/common/page.go and meta.go).
const (
	boltMagic      = 0xED0CDAED
	pageHeaderSize = 16
	metaSize       = 64
	flagLeaf       = 0x02
	flagBranch     = 0x01
	flagFreelist   = 0x10
	noFreelist     = ^uint64(0)
)

// lockPoll is how often a locked file is asked again, as in bbolt.
const lockPoll = 50 * time.Millisecond

// initialMmap lets the file grow without a remap: bbolt's writer waits for every
// reader to remap, and every new reader for the writer.
const initialMmap = 1 << 30

// allocSize is by how much bbolt lets a file grow at a time, once it is so large.
const allocSize = 16 << 20

// bboltOptions are those of every handle. Never NoSync: a power cut corrupted
// 12 of 12 files. Never NoFreelistSync: bbolt then walks a damaged file in a
// goroutine whose panic nobody can recover.
func bboltOptions(f *os.File, readOnly bool, maxBytes int) *bbolt.Options {
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

// errPanicked is in the error of a guarded call that panicked or faulted.
var errPanicked = errors.New("bbolt")

// guard runs fn, in which bbolt may panic or fault on damaged pages, and turns
// both into a *store.CorruptionError. fn must not call user code.
func guard(path, where string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &store.CorruptionError{Path: path, Where: where, Err: fmt.Errorf("%w: %v", errPanicked, r)}
		}
	}()
	return fn()
}

// openLocked opens the file, or creates it where flag says so, and takes its lock,
// shared for a reader. The lock is taken here, before anything is read, and bbolt takes
// it again for nothing. created says that nobody had made the file before.
func openLocked(path string, flag int, timeout time.Duration) (f *os.File, created bool, err error) {
	for deadline := time.Now().Add(timeout); ; {
		f, err := openRegular(path, flag&^os.O_CREATE)
		created := false
		if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
			f, err = openRegular(path, flag|os.O_EXCL)
			if errors.Is(err, fs.ErrExist) {
				continue // another process was faster
			}
			created = true
		}
		if err != nil {
			return nil, false, err
		}
		if err := lock(f, path, flag == os.O_RDONLY, deadline); err != nil {
			_ = f.Close()
			return nil, false, err
		}
		// Who had the lock may have set the file aside meanwhile.
		mine, err := f.Stat()
		if err != nil {
			unlock(f)
			return nil, false, err
		}
		if named, err := os.Lstat(path); err == nil && os.SameFile(mine, named) {
			return f, created, nil
		}
		unlock(f)
	}
}

// unlock closes the file and releases its lock, which a mapping that bbolt left
// behind when it panicked would otherwise keep.
func unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

func openRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600) // or a named pipe is waited for
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("%s is a symbolic link; name the file itself", path)
		}
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		if err == nil {
			err = fmt.Errorf("%s: %w", path, store.ErrNotOurs)
		}
		return nil, err
	}
	return f, nil
}

func lock(f *os.File, path string, readOnly bool, deadline time.Time) error {
	how := unix.LOCK_EX
	if readOnly {
		how = unix.LOCK_SH
	}
	for ; ; time.Sleep(lockPoll) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", path, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", path, store.ErrLocked)
		}
	}
}

// preflight reads what decides whether bbolt can map the file without harm, and pages
// as thoroughly as is said: it may write to a file all of whose pages are right. Errors:
// store.ErrNotOurs for a file of somebody else's, a *store.CorruptionError for
// ours.
func preflight(path string, f io.ReaderAt, size int64, how thoroughness) error {
	damaged := func(where, format string, args ...any) error {
		return &store.CorruptionError{Path: path, Where: where, Err: fmt.Errorf(format, args...)}
	}
	head := make([]byte, pageHeaderSize+metaSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if size == 0 {
		return damaged("file", "empty")
	}
	m, pageSize := newestMeta(f)
	switch {
	case m != nil:
	case n < pageHeaderSize+4 && bytes.HasPrefix(beginning(), head[:n]):
		return damaged("file", "cut short to %d bytes", size)
	case pageSize > 0:
		return damaged("meta pages", "neither is valid")
	case size <= int64(4*os.Getpagesize()) && bytes.Equal(head[:n], make([]byte, n)):
		return damaged("file", "nothing but its length was written") // a power cut right after it was created
	default:
		ours, err := holdsFormat(f)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if ours {
			return damaged("meta pages", "both are gone")
		}
		return fmt.Errorf("%s: %w", path, store.ErrNotOurs)
	}
	if m.freelist == noFreelist { // never in ours; bbolt would write one at once
		return fmt.Errorf("%s: %w", path, store.ErrNotOurs)
	}
	if m.pages > uint64(size)/uint64(pageSize) {
		return damaged("file", "%d bytes long, which is not %d pages", size, m.pages)
	}
	if err := checkPage(f, pageSize, m.root, flagLeaf|flagBranch); err != nil {
		return damaged("root page", "%w", err)
	}
	if err := checkPage(f, pageSize, m.freelist, flagFreelist); err != nil {
		return damaged("freelist page", "%w", err)
	}
	if err := checkPages(f, pageSize, m, how); err != nil {
		return damaged("pages", "%w", err)
	}
	return nil
}

// beginning is what every bbolt file begins with: page 0, a meta page, and the
// magic number.
func beginning() []byte {
	b := make([]byte, pageHeaderSize+4)
	b[8] = 0x04
	binary.LittleEndian.PutUint32(b[pageHeaderSize:], boltMagic)
	return b
}

type boltMeta struct {
	root, freelist, pages, txid uint64
}

// newestMeta returns the valid meta page with the higher transaction, or nil; the
// page size is not 0 where any meta page carries the magic number.
func newestMeta(f io.ReaderAt) (newest *boltMeta, pageSize int) {
	for size := 1 << 10; size <= 1<<16; size <<= 1 {
		for page := range 2 {
			b := make([]byte, metaSize)
			if n, _ := f.ReadAt(b, int64(page*size+pageHeaderSize)); n < 4 {
				continue
			}
			if binary.LittleEndian.Uint32(b) != boltMagic {
				continue
			}
			if pageSize == 0 {
				pageSize = size
			}
			sum := fnv.New64a()
			sum.Write(b[:56])
			if sum.Sum64() != binary.LittleEndian.Uint64(b[56:]) {
				continue
			}
			if binary.LittleEndian.Uint32(b[8:]) != uint32(size) {
				continue
			}
			pageSize = size
			m := &boltMeta{
				root:     binary.LittleEndian.Uint64(b[16:]),
				freelist: binary.LittleEndian.Uint64(b[32:]),
				pages:    binary.LittleEndian.Uint64(b[40:]),
				txid:     binary.LittleEndian.Uint64(b[48:]),
			}
			if newest == nil || m.txid > newest.txid {
				newest = m
			}
		}
	}
	return newest, pageSize
}

func checkPage(f io.ReaderAt, pageSize int, id uint64, flags uint16) error {
	b := make([]byte, pageHeaderSize)
	if _, err := f.ReadAt(b, int64(id)*int64(pageSize)); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(b); got != id {
		return fmt.Errorf("page %d says it is page %d", id, got)
	}
	if got := binary.LittleEndian.Uint16(b[8:]); got&flags == 0 {
		return fmt.Errorf("page %d is of another kind", id)
	}
	return nil
}

// holdsFormat searches the file for our format's name.
func holdsFormat(f io.ReaderAt) (bool, error) {
	want := []byte(formatPrefix)
	buf := make([]byte, 1<<20)
	for off := int64(0); ; off += int64(len(buf) - len(want)) {
		n, err := f.ReadAt(buf, off)
		if bytes.Contains(buf[:n], want) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// corruptSuffix is between a database's name and the time at which it was set
// aside.
const corruptSuffix = ".corrupt-"

// setAside renames a damaged file, keeps only the newest such file and writes
// beside it why. The caller holds the lock.
func setAside(path string, cause error) (string, error) {
	now := time.Now()
	rebuilds := append(recentRebuilds(path, now), now)
	earlier, err := filepath.Glob(globEscape(path) + corruptSuffix + "*")
	if err != nil {
		return "", fmt.Errorf("find earlier damaged files: %w", err)
	}
	aside := path + corruptSuffix + now.UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set damaged file aside: %w", err)
	}
	for _, old := range earlier {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return aside, fmt.Errorf("remove earlier damaged file: %w", err)
		}
	}
	// The reason is a courtesy: a full disk must not keep the cache from starting.
	_ = os.WriteFile(aside+reasonSuffix, []byte(reason(cause, rebuilds)), 0o600)
	return aside, syncDir(filepath.Dir(path))
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
