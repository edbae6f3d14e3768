package pagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/informctl/informctl/store"
)

// This is the layout of bbolt's pages, as far as it is needed before bbolt may map the
// file (go.etcd.io/bbolt/internal/common/page.go and meta.go).
const (
	boltMagic      = 0xED0CDAED
	pageHeaderSize = 16
	metaSize       = 64
	flagLeaf       = 0x02
	flagBranch     = 0x01
	flagFreelist   = 0x10
	noFreelist     = ^uint64(0)
)

// Check specifies what Preflight checks.
type Check struct {
	// Marker is a text that every file of this project contains. A file without meta
	// pages is damaged if it contains Marker, else it belongs to another program.
	Marker string
	// Passes reports whether the pages of a bucket are skipped; depth is the number of
	// buckets that contain it. If Passes is nil, every page is checked, and the freelist
	// against them.
	Passes func(depth int, name []byte) bool
}

// Preflight checks whether bbolt can map the file and use its pages without harm: it
// finds a torn write of a page. bbolt may write only to a file whose pages are valid.
// Errors: store.ErrNotOurs for a file that is not of this project, and a
// *store.CorruptionError for a damaged one.
func Preflight(path string, f io.ReaderAt, size int64, check Check) error {
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
	m, pageSize := NewestMeta(f)
	switch {
	case m != nil:
	case n < pageHeaderSize+4 && bytes.HasPrefix(beginning(), head[:n]):
		return damaged("file", "cut short to %d bytes", size)
	case pageSize > 0:
		return damaged("meta pages", "neither is valid")
	case size <= int64(4*os.Getpagesize()) && bytes.Equal(head[:n], make([]byte, n)):
		// A power cut right after the creation leaves such a file.
		return damaged("file", "nothing but its length was written")
	default:
		ours, err := HasMarker(f, check.Marker)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if ours {
			return damaged("meta pages", "both are gone")
		}
		return fmt.Errorf("%s: %w", path, store.ErrNotOurs)
	}
	// Files of this project always have a freelist; bbolt would write one at once.
	if m.Freelist == noFreelist {
		return fmt.Errorf("%s: %w", path, store.ErrNotOurs)
	}
	if m.Pages > uint64(size)/uint64(pageSize) {
		return damaged("file", "%d bytes long, which is not %d pages", size, m.Pages)
	}
	if err := checkPage(f, pageSize, m.Root, flagLeaf|flagBranch); err != nil {
		return damaged("root page", "%w", err)
	}
	if err := checkPage(f, pageSize, m.Freelist, flagFreelist); err != nil {
		return damaged("freelist page", "%w", err)
	}
	if err := checkPages(f, pageSize, m, check.Passes); err != nil {
		return damaged("pages", "%w", err)
	}
	return nil
}

// beginning returns the first bytes of every bbolt file: page 0, a meta page, and the
// magic number.
func beginning() []byte {
	b := make([]byte, pageHeaderSize+4)
	b[8] = 0x04
	binary.LittleEndian.PutUint32(b[pageHeaderSize:], boltMagic)
	return b
}

// Meta is the content of a meta page.
type Meta struct {
	Root, Freelist, Pages, TxID uint64 // Root and Freelist are page numbers
}

// NewestMeta returns the valid meta page with the highest transaction number, or nil.
// pageSize is not 0 if any meta page has the magic number.
func NewestMeta(f io.ReaderAt) (newest *Meta, pageSize int) {
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
			m := &Meta{
				Root:     binary.LittleEndian.Uint64(b[16:]),
				Freelist: binary.LittleEndian.Uint64(b[32:]),
				Pages:    binary.LittleEndian.Uint64(b[40:]),
				TxID:     binary.LittleEndian.Uint64(b[48:]),
			}
			if newest == nil || m.TxID > newest.TxID {
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

// HasMarker searches the file for a marker.
func HasMarker(f io.ReaderAt, marker string) (bool, error) {
	want := []byte(marker)
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
