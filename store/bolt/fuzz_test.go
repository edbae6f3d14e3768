package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// The fuzz targets test unexported functions, so they are inside the package. Run one
// with go test -fuzz FuzzRecord ./store/bolt. Most targets have a last argument that sets
// the correct checksum, so that the code after the check is reached.

// FuzzRecord checks that decodeRecord does not panic, that encode returns the accepted
// bytes again, and that any changed bit of them is detected.
func FuzzRecord(f *testing.F) {
	for _, r := range []record{{}, {codec: 1, payload: []byte("payload")}, {codec: 2, dictionary: 300, payload: bytes.Repeat([]byte{0}, 200)}} {
		f.Add("ns/name", r.encode("ns/name"), false)
		f.Add("", r.encode(""), true)
	}
	f.Add("ns/name", []byte{0, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, true)
	f.Add("ns/name", []byte{0, 0, 0, 0, 1, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F}, true)
	f.Fuzz(func(t *testing.T, key string, b []byte, seal bool) {
		if b = bytes.Clone(b); seal && len(b) >= 4 {
			binary.LittleEndian.PutUint32(b, checksum(b[4:]))
		}
		r, err := decodeRecord(key, b)
		if err != nil {
			return
		}
		again := r.encode(key)
		if got, err := decodeRecord(key, again); err != nil || !reflect.DeepEqual(normal(got), normal(r)) {
			t.Fatalf("%+v is %+v when read again (%v)", r, got, err)
		}
		again[int(recordSum(again))%len(again)] ^= 0x10
		if _, err := decodeRecord(key, again); err == nil {
			t.Fatal("a changed bit is not noticed")
		}
		if _, err := decodeRecord(key+"x", b); err == nil {
			t.Fatal("another key's record is accepted")
		}
	})
}

func normal(r record) record {
	r.payload = append([]byte{}, r.payload...)
	return r
}

// FuzzHeader checks that decodeHeader and the view do not panic and agree about headers
// that encode made.
func FuzzHeader(f *testing.F) {
	full := &header{
		UID: "uid", RV: "17", Labels: map[string]string{"app": "web", "": "", "long": strings.Repeat("x", 300)},
		Hash: payloadHash(nil), Size: 1 << 40, Index: map[string][]string{"namespace": {"ns"}, "none": nil},
	}
	for _, h := range []*header{{}, full} {
		b, err := h.encode("ns/name")
		if err != nil {
			f.Fatal(err)
		}
		f.Add("ns/name", b, false)
		f.Add("ns/name", b, true)
		f.Add("ns/name", b[:len(b)-1], true)
	}
	f.Add("k", []byte("\x00\x00\x00\x00\x82\xa1l\xdf\xff\xff\xff\xff"), true)
	f.Add("k", []byte("\x00\x00\x00\x00\xdf\xff\xff\xff\xff\xa1h\xc6\xff\xff\xff\xff"), true)
	f.Fuzz(func(t *testing.T, key string, b []byte, seal bool) {
		if b = bytes.Clone(b); seal && len(b) >= 4 {
			binary.LittleEndian.PutUint32(b, headerSum(key, b))
		}
		var view headerView
		if view.set(key, b) == nil {
			_ = view.Has("app")
		}
		if len(b) < 4 {
			return
		}
		if _, err := msgpackSkip(b[4:]); err != nil {
			return // see TestHeaderOfLengths
		}
		h, err := decodeHeader(key, b)
		if err != nil {
			return
		}
		again, err := h.encode(key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeHeader(key, again)
		if err != nil || !got.sameContent(h) || got.UID != h.UID || got.RV != h.RV || got.Size != h.Size || len(got.Labels) != len(h.Labels) {
			t.Fatalf("%+v is %+v when read again (%v)", h, got, err)
		}
		if err := view.set(key, again); err != nil || !bytes.Equal(view.hash, h.Hash) || view.count != len(h.Labels) {
			t.Fatalf("the view of %+v has hash %x and %d labels (%v)", h, view.hash, view.count, err)
		}
		for label, want := range h.Labels {
			if got, ok := view.Lookup(label); !ok || got != want {
				t.Fatalf("the view's %q is %q (%t), want %q", label, got, ok, want)
			}
		}
		again[int(recordSum(again))%len(again)] ^= 0x10
		if checkHeader(key, again) == nil {
			t.Fatal("a changed bit is not noticed")
		}
	})
}

// TestHeaderOfLengths checks a header with a correct checksum that declares lengths
// beyond its end: decoding must not allocate memory for them.
func TestHeaderOfLengths(t *testing.T) {
	for _, claim := range []string{"\xdf\xff\xff\xff\xff\xa1h\xc6\xff\xff\xff\xff", "\x82\xa1h\xc6\xff\xff\xff\xff", "\x82\xa1l\xdf\xff\xff\xff\xff"} {
		b := append(make([]byte, 4), claim...)
		binary.LittleEndian.PutUint32(b, headerSum("k", b))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeHeader("k", b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err == nil || used > 1<<20 {
			t.Errorf("%q: %d bytes of memory, error %v", claim, used, err)
		}
	}
}

// FuzzIndexKey checks that entries are parsed to what they were made from, that they are
// ordered as their values, and that no value's prefix is a prefix of another value's.
// parseIndexEntry must not panic.
func FuzzIndexKey(f *testing.F) {
	for _, value := range []string{"", "a", "a\x00", "a\x00\x01", "\x00\xff", "\xff", strings.Repeat("a", maxIndexValue), strings.Repeat("a", maxIndexValue+1), strings.Repeat("\x00", maxIndexValue+1)} {
		f.Add(value, "ns/name", "a\x00b", []byte(value))
	}
	f.Fuzz(func(t *testing.T, value, key, other string, raw []byte) {
		k, v := indexEntry(value, key)
		if gotValue, gotKey, ok := parseIndexEntry(k, v); !ok || string(gotValue) != value || string(gotKey) != key {
			t.Fatalf("entry of %q, %q is parsed to %q, %q, %t", value, key, gotValue, gotKey, ok)
		}
		if v == nil || len(k) > 32768-len("ns/name") && len(key) < 253*2 {
			t.Fatalf("bbolt does not take an entry of %d bytes", len(k))
		}
		a, b := indexPrefix(value), indexPrefix(other)
		if value != other && (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) {
			t.Fatalf("prefixes of %q and %q", value, other)
		}
		if len(value) <= maxIndexValue && len(other) <= maxIndexValue && bytes.Compare(a, b) != strings.Compare(value, other) {
			t.Fatalf("%q and %q sort otherwise than their entries", value, other)
		}
		_, _, _ = parseIndexEntry(raw, []byte(value))
		_, _, _ = parseIndexEntry(raw, nil)
	})
}

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
	if err := errors.Join(db.SetIdentity("host", "cluster"), db.Close()); err != nil {
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
		for _, how := range []thoroughness{everything, butRecords, leading} {
			err := preflight("file", bytes.NewReader(b), int64(len(b)), how)
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
