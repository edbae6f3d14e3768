package record

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// aBlock is a block with all kinds of entries. It is stored under 7, and the first of its
// entries was trimmed.
func aBlock() *Block {
	return &Block{
		Time: 1_000_000,
		Entries: []LogEntry{
			{Number: 8, Key: "ns/a", RV: "12", Header: []byte("header"), Record: []byte("record")},
			{Number: 9, Kind: KindDeleted, Key: "0123", Name: "ns/b", Departs: 3, Since: -5, Final: []byte("final"), Header: []byte("h")},
			{Number: 10, Key: "ns/new", RV: "14"},
			{Number: 11, Kind: KindUnknown, Key: "ns/c", Departs: 4, Final: []byte("last")},
		},
		Mark: &Mark{Number: 12, Random: 99, From: "11", To: "14", Time: 1_000_000, Frozen: true},
	}
}

// TestBlock checks that a block is decoded as it was, whole and by entry.
func TestBlock(t *testing.T) {
	want := aBlock()
	marks := &Block{Time: 5, Mark: &Mark{Number: 7, Begins: true, Listing: true}}
	thinned := &Block{Time: 5, Thinned: true, Entries: want.Entries[1:2]}
	for name, want := range map[string]*Block{"all": want, "only a mark": marks, "thinned": thinned} {
		v := want.Encode(7)
		got, err := DecodeBlock(7, v)
		if err != nil {
			t.Fatal(name, err)
		}
		want.Key = 7
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Block{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if at := BlockTime(v); !at.Equal(time.Unix(0, want.Time)) {
			t.Errorf("%s: time %v", name, at)
		}
		for _, e := range want.Entries {
			got, err := DecodeEntry(7, v, e.Number)
			if err != nil {
				t.Fatal(name, err)
			}
			if diff := cmp.Diff(&e, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: entry %d (-want +got):\n%s", name, e.Number, diff)
			}
		}
		if _, err := DecodeEntry(7, v, 99); err == nil {
			t.Errorf("%s: an entry that is not there was found", name)
		}
	}
}

// TestDamagedBlock checks that each damaged bit of a block is noticed: one of the head by
// whoever decodes the head, and one of the states before they are used.
func TestDamagedBlock(t *testing.T) {
	whole := aBlock().Encode(7)
	head := int(binary.LittleEndian.Uint32(whole[9:]))
	for bit := range 8 * len(whole) {
		v := bytes.Clone(whole)
		v[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeBlock(7, v); err == nil {
			t.Fatalf("byte %d bit %d: no damage", bit/8, bit%8)
		}
		b, err := DecodeHead(7, v)
		if isHead := bit/8 < head; (err != nil) != isHead {
			t.Fatalf("byte %d bit %d of a head of %d bytes: %v", bit/8, bit%8, head, err)
		}
		for range 2 {
			if err == nil && b.Check() == nil {
				t.Fatalf("byte %d bit %d: the states are not damaged", bit/8, bit%8)
			}
		}
	}
	for n := range whole {
		if _, err := DecodeBlock(7, whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes are a block", n, len(whole))
		}
	}
	if _, err := DecodeBlock(8, whole); err == nil {
		t.Error("a block was decoded under another key")
	}
}

// FuzzBlock checks that no bytes make the decoder panic, and that an accepted block is
// the same after it is encoded again.
func FuzzBlock(f *testing.F) {
	f.Add(aBlock().Encode(7), false)
	f.Add(aBlock().Encode(7), true)
	f.Fuzz(func(t *testing.T, v []byte, seal bool) {
		if v = bytes.Clone(v); seal && len(v) >= fixedHead && v[4]&blockSplit != 0 {
			if head := binary.LittleEndian.Uint32(v[9:]); head >= fixedHead && uint64(head) <= uint64(len(v)) {
				binary.LittleEndian.PutUint32(v[5:], Checksum(v[head:]))
				binary.LittleEndian.PutUint32(v, blockSum(7, v[:head]))
			}
		}
		_, _ = DecodeEntry(7, v, 9)
		BlockTime(v)
		b, err := DecodeBlock(7, v)
		if err != nil || b.First() < 7 {
			return
		}
		again, err := DecodeBlock(7, b.Encode(7))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, again, cmpopts.IgnoreUnexported(Block{}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
