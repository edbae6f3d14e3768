package record

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// TestHeaderFields checks that headers are written as msgpack writes the struct, and that
// each reads what the other has written.
func TestHeaderFields(t *testing.T) {
	long := func(lengths ...int) *rapid.Generator[string] {
		return rapid.Map(rapid.SampledFrom(lengths), func(n int) string { return strings.Repeat("x", n) })
	}
	text := rapid.OneOf(rapid.String(), long(31, 32, 255, 256))
	data := rapid.Map(text, func(s string) []byte { return []byte(s) })
	number := rapid.OneOf(rapid.Int64Min(0), rapid.Int64Range(0, 300), rapid.SampledFrom([]int64{1 << 16, 1<<16 - 1, 1 << 32, 1<<32 - 1, math.MaxInt64}))
	values := rapid.SliceOfN(text, 0, 20)
	rapid.Check(t, func(t *rapid.T) {
		h := Header{
			UID: long(0, 1, 1<<16-1, 1<<16).Draw(t, "uid"), RV: text.Draw(t, "rv"), Hash: data.Draw(t, "hash"), Size: number.Draw(t, "size"),
			Created: number.Draw(t, "created"), Name: text.Draw(t, "name"), DataKey: uint64(number.Draw(t, "key")), Sealed: data.Draw(t, "sealed"),
		}
		if rapid.Bool().Draw(t, "labelled") {
			h.Labels = rapid.MapOfN(text, text, 0, 20).Draw(t, "labels")
		}
		if rapid.Bool().Draw(t, "indexed") {
			h.Index = rapid.MapOfN(text, values, 0, 20).Draw(t, "index")
		}
		theirs, err := Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		ours := h.AppendFields(nil)
		// msgpack does not sort the names of indexes.
		if len(h.Index) < 2 && !bytes.Equal(theirs[4:], ours) {
			t.Fatalf("%+v is written as %q, by msgpack as %q", h, ours, theirs[4:])
		}
		got, err := DecodeFields(theirs[4:])
		if diff := cmp.Diff(&h, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("what msgpack has written is read as (%v):\n%s", err, diff)
		}
		got = &Header{}
		err = msgpack.Unmarshal(ours, got)
		if diff := cmp.Diff(&h, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("msgpack reads what is written here as (%v):\n%s", err, diff)
		}
	})
}

// TestHeaderOfOtherNumbers reads what no header of this version has: numbers below 0, and
// a field that it does not know.
func TestHeaderOfOtherNumbers(t *testing.T) {
	for _, n := range []int64{-1, -32, -33, math.MinInt8, math.MinInt16, math.MinInt32, math.MinInt64} {
		theirs, err := msgpack.Marshal(map[string]any{"zz": map[string]any{"a": []int{1}}, "c": n})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{theirs, (&Header{Created: n}).AppendFields(nil)} {
			if h, err := DecodeFields(b); err != nil || h.Created != n {
				t.Errorf("%d is read as %+v, %v", n, h, err)
			}
		}
	}
	if _, err := DecodeFields([]byte("\x81\xa1c\xa1x")); err == nil {
		t.Error("a string is taken for a number")
	}
}

func BenchmarkHeader(b *testing.B) {
	h := &Header{
		UID: "b2a6a3c4-6b4f-4f0e-9a9e-5d4bb0a0b7c1", RV: "1000000017", Hash: PayloadHash(nil), Size: 10_030, Created: 1_700_000_000,
		Labels: map[string]string{"app": "web", "pod-template-hash": "5d4bb0a0b7", "tier": "frontend", "version": "v1"},
		Index:  map[string][]string{"namespace": {"default"}},
	}
	encoded := h.Encode("ns/name")
	b.Run("Encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Encode("ns/name")
		}
	})
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeHeader("ns/name", encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}
