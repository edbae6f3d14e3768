package record

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// Run a fuzz target with
//
//	go test -fuzz FuzzRecord ./store/bolt/internal/record
//
// Most targets have a last argument that sets the correct checksum, so that the code
// after the check is reached.

// FuzzRecord checks that Decode does not panic, that Encode returns the accepted
// bytes again, and that any changed bit of them is detected.
func FuzzRecord(f *testing.F) {
	for _, r := range []Record{{}, {Codec: 1, Payload: []byte("payload")}, {Codec: 2, Dictionary: 300, Payload: bytes.Repeat([]byte{0}, 200)}} {
		f.Add("ns/name", r.Encode("ns/name"), false)
		f.Add("", r.Encode(""), true)
	}
	f.Add("ns/name", []byte{0, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, true)
	f.Add("ns/name", []byte{0, 0, 0, 0, 1, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F}, true)
	f.Fuzz(func(t *testing.T, key string, b []byte, seal bool) {
		if b = bytes.Clone(b); seal && len(b) >= 4 {
			binary.LittleEndian.PutUint32(b, Checksum(b[4:]))
		}
		r, err := Decode(key, b)
		if err != nil {
			return
		}
		again := r.Encode(key)
		if got, err := Decode(key, again); err != nil || !reflect.DeepEqual(normal(got), normal(r)) {
			t.Fatalf("%+v is %+v when read again (%v)", r, got, err)
		}
		again[int(Sum(again))%len(again)] ^= 0x10
		if _, err := Decode(key, again); err == nil {
			t.Fatal("a changed bit is not noticed")
		}
		if _, err := Decode(key+"x", b); err == nil {
			t.Fatal("another key's record is accepted")
		}
	})
}

func normal(r Record) Record {
	r.Payload = append([]byte{}, r.Payload...)
	return r
}

// FuzzHeader checks that DecodeHeader and the view do not panic and agree about headers
// that Encode made.
func FuzzHeader(f *testing.F) {
	full := &Header{
		UID: "uid", RV: "17", Labels: map[string]string{"app": "web", "": "", "long": strings.Repeat("x", 300)},
		Hash: PayloadHash(nil), Size: 1 << 40, Index: map[string][]string{"namespace": {"ns"}, "none": nil},
	}
	for _, h := range []*Header{{}, full} {
		b := h.Encode("ns/name")
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
		var view HeaderView
		if view.Set(key, b) == nil {
			_ = view.Has("app")
		}
		if len(b) < 4 {
			return
		}
		if _, err := Skip(b[4:]); err != nil {
			return // see TestHeaderOfLengths
		}
		h, err := DecodeHeader(key, b)
		if err != nil {
			return
		}
		again := h.Encode(key)
		got, err := DecodeHeader(key, again)
		if err != nil || !got.SameContent(h) || got.UID != h.UID || got.RV != h.RV || got.Size != h.Size || len(got.Labels) != len(h.Labels) {
			t.Fatalf("%+v is %+v when read again (%v)", h, got, err)
		}
		if err := view.Set(key, again); err != nil || !bytes.Equal(view.Hash, h.Hash) || view.count != len(h.Labels) {
			t.Fatalf("the view of %+v has hash %x and %d labels (%v)", h, view.Hash, view.count, err)
		}
		for label, want := range h.Labels {
			if got, ok := view.Lookup(label); !ok || got != want {
				t.Fatalf("the view's %q is %q (%t), want %q", label, got, ok, want)
			}
		}
		again[int(Sum(again))%len(again)] ^= 0x10
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
		_, err := DecodeHeader("k", b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err == nil || used > 1<<20 {
			t.Errorf("%q: %d bytes of memory, error %v", claim, used, err)
		}
	}
}

// FuzzIndexKey checks that entries are parsed to what they were made from, that they are
// ordered as their values, and that no value's prefix is a prefix of another value's.
// ParseIndexEntry must not panic.
func FuzzIndexKey(f *testing.F) {
	for _, value := range []string{"", "a", "a\x00", "a\x00\x01", "\x00\xff", "\xff", strings.Repeat("a", MaxIndexValue), strings.Repeat("a", MaxIndexValue+1), strings.Repeat("\x00", MaxIndexValue+1)} {
		f.Add(value, "ns/name", "a\x00b", []byte(value))
	}
	f.Fuzz(func(t *testing.T, value, key, other string, raw []byte) {
		k, v := IndexEntry(value, key)
		if gotValue, gotKey, ok := ParseIndexEntry(k, v); !ok || string(gotValue) != value || string(gotKey) != key {
			t.Fatalf("entry of %q, %q is parsed to %q, %q, %t", value, key, gotValue, gotKey, ok)
		}
		if v == nil || len(k) > 32768-len("ns/name") && len(key) < 253*2 {
			t.Fatalf("bbolt does not take an entry of %d bytes", len(k))
		}
		a, b := IndexPrefix(value), IndexPrefix(other)
		if value != other && (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) {
			t.Fatalf("prefixes of %q and %q", value, other)
		}
		if len(value) <= MaxIndexValue && len(other) <= MaxIndexValue && bytes.Compare(a, b) != strings.Compare(value, other) {
			t.Fatalf("%q and %q sort otherwise than their entries", value, other)
		}
		_, _, _ = ParseIndexEntry(raw, []byte(value))
		_, _, _ = ParseIndexEntry(raw, nil)
	})
}
