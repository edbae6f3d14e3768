package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// The fuzz target tests unexported functions, so it is inside the package.

// FuzzPreflight checks that the preflight does not panic on an edited file and returns
// one of its documented results. An edit is an offset in two bytes, followed by eight
// bytes to write there.
func FuzzPreflight(f *testing.F) {
	path := filepath.Join(f.TempDir(), "informers.db")
	db, err := Open(path, Options{})
	if err != nil {
		f.Fatal(err)
	}
	scope := store.Scope{Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	if _, err := db.Open(scope, store.Options{}); err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(db.SetLedger(f.Context(), "clusters", map[string][]byte{"host": []byte("cluster")}), db.Close()); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	m, pageSize := pagefile.NewestMeta(bytes.NewReader(good))
	good = good[:int(m.Pages)*pageSize]
	f.Add([]byte{}, 0, false)
	for at := 0; at < len(good); at += 8 {
		if in := at % pageSize; in >= 96 {
			continue // only page headers and the first elements are edited
		}
		for _, number := range []uint64{0, 1 << 40, 1<<64 - 1} {
			edit := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(nil, uint16(at)), number)
			f.Add(edit, 0, true)
		}
		f.Add([]byte{}, at, false)
	}
	f.Fuzz(func(t *testing.T, edits []byte, cut int, seal bool) {
		b := bytes.Clone(good)
		for ; len(edits) >= 10; edits = edits[10:] {
			copy(b[int(binary.LittleEndian.Uint16(edits))%len(b):], edits[2:10])
		}
		if seal {
			sealMetas(b)
		}
		if cut > 0 && cut < len(b) {
			b = b[:cut]
		}
		if m, pageSize := pagefile.NewestMeta(bytes.NewReader(b)); m != nil && (pageSize < 1<<10 || m.Pages > 1<<40) {
			t.Skip("SKIPPED: see TestPreflightCountsPages")
		}
		for _, how := range []boltfile.Thoroughness{boltfile.Everything, boltfile.Leading} {
			err := boltfile.Preflight("file", bytes.NewReader(b), int64(len(b)), &boltfile.Options{Marker: layout.FormatPrefix, HoldsEntries: holdsEntries}, how)
			if err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotOurs) {
				t.Fatalf("error is %v", err)
			}
		}
	})
}

// TestPreflightCountsPages checks meta pages with a correct checksum and impossible
// values.
func TestPreflightCountsPages(t *testing.T) {
	page := os.Getpagesize()
	for name, edit := range map[string]func(meta []byte){
		"more pages than fit into a number": func(meta []byte) { binary.LittleEndian.PutUint64(meta[40:], 1<<64-1) },
		"pages of no size":                  func(meta []byte) { binary.LittleEndian.PutUint32(meta[8:], 0) },
		"pages of a byte":                   func(meta []byte) { binary.LittleEndian.PutUint32(meta[8:], 1) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, err := Open(path, Options{})
			if err == nil {
				err = db.Close()
			}
			b, readErr := os.ReadFile(path)
			if err := errors.Join(err, readErr); err != nil {
				t.Fatal(err)
			}
			edit(b[pageHeaderSize:])
			edit(b[page+pageHeaderSize:])
			sealMetas(b)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if db, err = Open(path, Options{}); err != nil {
				t.Fatal(err)
			}
			if db.SetAside() == "" {
				t.Error("it is not set aside")
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

const pageHeaderSize, metaSize = 16, 64

// sealMetas sets the correct checksums in the meta pages.
func sealMetas(b []byte) {
	for _, at := range []int{pageHeaderSize, os.Getpagesize() + pageHeaderSize} {
		if at+metaSize <= len(b) {
			sum := fnv.New64a()
			sum.Write(b[at : at+56])
			binary.LittleEndian.PutUint64(b[at+56:], sum.Sum64())
		}
	}
}
