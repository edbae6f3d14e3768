package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// LogState is the part of a scope's manifest about its log.
//
// Entries and marks are numbered together, without gaps and without a restart in the
// life of the scope's bucket. Blocks are stored under the number of their first item.
type LogState struct {
	Lineage string `msgpack:"l"` // identifies a history of the scope; random
	Begin   uint64 `msgpack:"b"` // the number of the first item of this lineage
	Last    uint64 `msgpack:"n"` // the highest number
	// Above is a resource version that an earlier lineage has reached: only higher ones
	// are looked up, because others may be that lineage's.
	Above string `msgpack:"v,omitempty"`
	// Full is the number above which every item is there. Of those up to it only
	// deletions may be left.
	Full uint64 `msgpack:"f"`
	Mark Mark   `msgpack:"m"` // the last mark; its number is 0 if there is none
	// Ordered is the number from which on neither the times of marks decrease nor their
	// resource versions, where those can be read; 0 if that is not known.
	Ordered uint64 `msgpack:"o,omitempty"`
	// Readable is the last resource version of this lineage that can be read.
	Readable string `msgpack:"r,omitempty"`

	// Cut is the number at which changes were last left out of the log.
	Cut uint64 `msgpack:"c"`

	Departed uint64 `msgpack:"d"` // the highest LogEntry.Departs
	// every handler has received departures up to this number
	Settled uint64 `msgpack:"s"`
	// when the content was last known to be current, in nanoseconds
	AsOf    int64 `msgpack:"a"`
	Listing bool  `msgpack:"i"` // a list is being applied
	Listed  int64 `msgpack:"g"` // bytes that this list has logged

	Blocks  Tally  `msgpack:"t"`
	Entries uint64 `msgpack:"e"`
	Bytes   int64  `msgpack:"y"` // of the blocks
	Thinned int64  `msgpack:"h"` // of the blocks up to Full
	Dropped uint64 `msgpack:"x"` // entries that the bounds have dropped
	// Unlogged are the changes that the log has never had.
	Unlogged uint64 `msgpack:"u,omitempty"`
}

// Mark ends the entries of one commit.
type Mark struct {
	Number uint64 `msgpack:"n"`
	Random uint64 `msgpack:"r"`
	// the stored resource version before the commit; "" if there was none
	From   string `msgpack:"f"`
	To     string `msgpack:"t"` // after it
	Time   int64  `msgpack:"w"` // in nanoseconds, as the clock says: it may decrease
	Frozen bool   `msgpack:"z"` // the content is newer than To
	// a list was being applied: the content equals no state of the server
	Listing bool `msgpack:"l"`
	Begins  bool `msgpack:"b"` // the first one of a lineage
}

// IsReadable reports whether the content at the mark was the server's at To.
func (m *Mark) IsReadable() bool { return m.To != "" && !m.Frozen && !m.Listing }

// Kind says what an entry of the log was.
type Kind uint8

// These are bits of a Kind.
const (
	KindDeleted Kind = 1 << iota // there is no object after it
	KindUnknown                  // the state before is not known
	// KindShort means that there was no object before the commit: Header and Record are
	// the last state of one that came and went inside of it.
	KindShort
)

// LogEntry is the change of one key in one commit.
type LogEntry struct {
	Number uint64
	Kind   Kind
	Key    string // the file key
	Name   string // the object's own key, if it differs
	// of the change; "" if it is not known, as of a deletion that a list found
	RV string
	// Departs numbers the deletions that handlers which come later are told; 0: not one.
	Departs uint64
	// Since is set if the change was made at some time between it and the block's time,
	// in nanoseconds.
	Since int64
	// Header and Record are the state before as stored. They are part of the block.
	Header, Record []byte
	// Final is the final state of what departs, if it is known.
	Final []byte
}

// OwnKey returns the object's own key.
func (e *LogEntry) OwnKey() string { return cmp.Or(e.Name, e.Key) }

// Block is a part of the log.
type Block struct {
	// Key is the number of its first item when it was written. Only DecodeBlock sets it.
	Key     uint64
	Time    int64 // of the mark that ends the commit
	Thinned bool  // only deletions are left
	Entries []LogEntry
	Mark    *Mark // nil if the commit goes on in the next block, or the block is thinned
}

// First returns the number of a block's first item.
func (b *Block) First() uint64 {
	if len(b.Entries) > 0 {
		return b.Entries[0].Number
	}
	return b.Mark.Number
}

// Last returns the number of a block's last item.
func (b *Block) Last() uint64 {
	if b.Mark != nil {
		return b.Mark.Number
	}
	return b.Entries[len(b.Entries)-1].Number
}

const (
	blockThinned = 1 << iota
	blockMarked
	markFrozen
	markListing
	markBegins
)

// Encode returns the block with its CRC-32C in front:
//
//	CRC-32C of the rest and of the key, 4 bytes little endian
//	flags, 1 byte
//	time, varint
//	number of entries, uvarint
//	for each entry its length, uvarint, and the entry
//	the mark, if flags say so
func (b *Block) Encode(key uint64) []byte {
	out := make([]byte, 4, 64+b.size())
	flags := byte(0)
	if b.Thinned {
		flags |= blockThinned
	}
	if m := b.Mark; m != nil {
		flags |= blockMarked
		if m.Frozen {
			flags |= markFrozen
		}
		if m.Listing {
			flags |= markListing
		}
		if m.Begins {
			flags |= markBegins
		}
	}
	out = append(out, flags)
	out = binary.AppendVarint(out, b.Time)
	out = binary.AppendUvarint(out, uint64(len(b.Entries)))
	var buf []byte
	for i := range b.Entries {
		buf = b.Entries[i].append(buf[:0], key)
		out = binary.AppendUvarint(out, uint64(len(buf)))
		out = append(out, buf...)
	}
	if m := b.Mark; m != nil {
		out = binary.AppendUvarint(out, m.Number-key)
		out = binary.LittleEndian.AppendUint64(out, m.Random)
		out = appendBytes(out, m.From)
		out = appendBytes(out, m.To)
		out = binary.AppendVarint(out, m.Time)
	}
	binary.LittleEndian.PutUint32(out, blockSum(key, out))
	return out
}

func (b *Block) size() (n int) {
	for i := range b.Entries {
		n += b.Entries[i].Size()
	}
	return n
}

// Size returns at least how many bytes an entry takes, to divide entries into blocks.
func (e *LogEntry) Size() int {
	return 40 + len(e.Key) + len(e.Name) + len(e.RV) + len(e.Header) + len(e.Record) + len(e.Final)
}

func (e *LogEntry) append(b []byte, first uint64) []byte {
	b = append(b, byte(e.Kind))
	b = binary.AppendUvarint(b, e.Number-first)
	b = appendBytes(b, e.Key)
	b = appendBytes(b, e.Name)
	b = appendBytes(b, e.RV)
	b = binary.AppendUvarint(b, e.Departs)
	b = binary.AppendVarint(b, e.Since)
	b = appendBytes(b, e.Final)
	b = appendBytes(b, e.Header)
	return append(b, e.Record...)
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func blockSum(key uint64, b []byte) uint32 {
	return Checksum(b[4:]) ^ Checksum(binary.BigEndian.AppendUint64(nil, key))
}

// DecodeBlock checks and decodes the block that is stored under key. Its entries' headers
// and records are parts of v.
func DecodeBlock(key uint64, v []byte) (*Block, error) {
	if len(v) < 5 {
		return nil, ErrShort
	}
	if got, want := blockSum(key, v), Sum(v); got != want {
		return nil, fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	r := parser{rest: v[5:]}
	flags := v[4]
	b := &Block{Key: key, Thinned: flags&blockThinned != 0, Time: r.varint()}
	n := r.uvarint()
	if n > uint64(len(v)) {
		return nil, ErrShort
	}
	b.Entries = make([]LogEntry, 0, n)
	last := key
	for range n {
		entry, err := decodeEntry(key, r.bytes())
		if err != nil {
			return nil, err
		}
		if entry.Number < last {
			return nil, errors.New("its entries are not in order")
		}
		last = entry.Number
		b.Entries = append(b.Entries, entry)
	}
	if flags&blockMarked != 0 {
		b.Mark = &Mark{
			Number: key + r.uvarint(), Random: r.uint64(), From: string(r.bytes()), To: string(r.bytes()), Time: r.varint(),
			Frozen: flags&markFrozen != 0, Listing: flags&markListing != 0, Begins: flags&markBegins != 0,
		}
	}
	if r.err == nil && b.Mark == nil && len(b.Entries) == 0 {
		r.err = errors.New("it is empty")
	}
	return b, r.err
}

// decodeEntry decodes an entry of the block that is stored under key.
func decodeEntry(key uint64, b []byte) (entry LogEntry, err error) {
	e := parser{rest: b}
	entry = LogEntry{Kind: Kind(e.byte()), Number: key + e.uvarint()}
	entry.Key, entry.Name, entry.RV = string(e.bytes()), string(e.bytes()), string(e.bytes())
	entry.Departs, entry.Since = e.uvarint(), e.varint()
	if final := e.bytes(); len(final) > 0 {
		entry.Final = final
	}
	if header := e.bytes(); len(header) > 0 {
		entry.Header, entry.Record = header, e.rest
	}
	return entry, e.err
}

// DecodeEntry returns the entry with a number of the block that is stored under key,
// which DecodeBlock has checked.
func DecodeEntry(key uint64, v []byte, number uint64) (*LogEntry, error) {
	if len(v) < 5 {
		return nil, ErrShort
	}
	r := parser{rest: v[5:]}
	r.varint()
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		b := r.bytes()
		p := parser{rest: b}
		p.byte() // the kind
		if key+p.uvarint() == number {
			e, err := decodeEntry(key, b)
			return &e, err
		}
	}
	return nil, fmt.Errorf("there is no entry %d", number)
}

// BlockTime returns the time of a block without a check.
func BlockTime(v []byte) time.Time {
	if len(v) < 6 {
		return time.Time{}
	}
	t, _ := binary.Varint(v[5:])
	return time.Unix(0, t)
}

// parser takes fields from the front of bytes. After an error its results are zero.
type parser struct {
	rest []byte
	err  error
}

func (p *parser) take(n int) []byte {
	if p.err != nil || n < 0 || n > len(p.rest) {
		p.err, p.rest = ErrShort, nil
		return nil
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n:]
	return b
}

func (p *parser) byte() byte {
	if b := p.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (p *parser) uint64() uint64 {
	if b := p.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	if n <= 0 {
		n = -1
	}
	p.take(n)
	return v
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.rest)
	if n <= 0 {
		n = -1
	}
	p.take(n)
	return v
}

func (p *parser) bytes() []byte {
	n := p.uvarint()
	if n > uint64(len(p.rest)) {
		n = uint64(len(p.rest)) + 1
	}
	return p.take(int(n))
}
