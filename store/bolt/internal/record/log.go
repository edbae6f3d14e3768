package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/informctl/informctl/store"
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

// Reached returns the highest resource version that a scope is known to have reached, ""
// if there is none. Its checkpoint has the resource version rv.
func (l *LogState) Reached(rv string) string {
	reached := l.Mark.To
	for _, other := range []string{l.Readable, rv, l.Above} {
		reached = store.Higher(other, reached)
	}
	return reached
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
	// Header and Record are the state before as stored. They are part of the block's
	// bytes.
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

	// body has the states of the entries; bodySum is what its checksum has to be. body is
	// nil if it is checked.
	body    []byte
	bodySum uint32
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
	// blockSplit says that the block has a head and a body. In older ones the states are
	// beside what is said of them.
	blockSplit
)

// fixedHead is the size of what a block has in front: both checksums, the flags and the
// length of the head.
const fixedHead = 4 + 1 + 4 + 4

// Encode returns the block: a head, which says what has changed, and a body, of the
// states. Most readers ask for few objects, and the body is as long as ten pages of the
// file; each of the two has a checksum of its own, so that such a reader takes the heads
// only:
//
//	CRC-32C of the rest of the head and of the key, 4 bytes little endian
//	flags, 1 byte
//	CRC-32C of the body, 4 bytes little endian
//	length of the head, 4 bytes little endian
//	time, varint
//	number of entries, uvarint
//	the entries without their states, but with the lengths of these
//	the mark, if flags say so
//	the body: of each entry Final, Header and Record
func (b *Block) Encode(key uint64) []byte {
	out := make([]byte, fixedHead, fixedHead+64+b.size())
	flags := byte(blockSplit)
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
	out[4] = flags
	out = binary.AppendVarint(out, b.Time)
	out = binary.AppendUvarint(out, uint64(len(b.Entries)))
	for i := range b.Entries {
		out = b.Entries[i].appendHead(out, key)
	}
	if m := b.Mark; m != nil {
		out = binary.AppendUvarint(out, m.Number-key)
		out = binary.LittleEndian.AppendUint64(out, m.Random)
		out = appendBytes(out, m.From)
		out = appendBytes(out, m.To)
		out = binary.AppendVarint(out, m.Time)
	}
	head := len(out)
	for i := range b.Entries {
		e := &b.Entries[i]
		out = append(append(append(out, e.Final...), e.Header...), e.Record...)
	}
	binary.LittleEndian.PutUint32(out[5:], Checksum(out[head:]))
	binary.LittleEndian.PutUint32(out[9:], uint32(head))
	binary.LittleEndian.PutUint32(out, blockSum(key, out[:head]))
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

func (e *LogEntry) appendHead(b []byte, first uint64) []byte {
	b = append(b, byte(e.Kind))
	b = binary.AppendUvarint(b, e.Number-first)
	b = appendBytes(b, e.Key)
	b = appendBytes(b, e.Name)
	b = appendBytes(b, e.RV)
	b = binary.AppendUvarint(b, e.Departs)
	b = binary.AppendVarint(b, e.Since)
	for _, state := range [][]byte{e.Final, e.Header, e.Record} {
		b = binary.AppendUvarint(b, uint64(len(state)))
	}
	return b
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func blockSum(key uint64, b []byte) uint32 {
	return Checksum(b[4:]) ^ Checksum(binary.BigEndian.AppendUint64(nil, key))
}

// DecodeBlock checks and decodes the block that is stored under key. Its entries' states
// are parts of v.
func DecodeBlock(key uint64, v []byte) (*Block, error) {
	b, err := DecodeHead(key, v)
	if err == nil {
		err = b.Check()
	}
	return b, err
}

// DecodeHead is DecodeBlock without a look at the states of the entries: Check checks
// these.
func DecodeHead(key uint64, v []byte) (*Block, error) {
	r, head, err := parseHead(v)
	if err != nil {
		return nil, err
	}
	if got, want := blockSum(key, head), Sum(v); got != want {
		return nil, fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	flags := v[4]
	b := &Block{Key: key, Thinned: flags&blockThinned != 0, Time: r.varint(), body: r.body}
	if b.body != nil {
		b.bodySum = binary.LittleEndian.Uint32(v[5:])
	}
	n := r.uvarint()
	if n > uint64(len(v)) {
		return nil, ErrShort
	}
	b.Entries = make([]LogEntry, 0, n)
	last := key
	for range n {
		entry := r.entry(key)
		if r.err != nil {
			return nil, r.err
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

// Check checks the states of the entries of a block from DecodeHead. They are not used
// before. A second call does nothing, unless the first one has failed.
func (b *Block) Check() error {
	if b.body == nil {
		return nil
	}
	if got := Checksum(b.body); got != b.bodySum {
		return fmt.Errorf("checksum of the states is %08x, not %08x", got, b.bodySum)
	}
	b.body = nil
	return nil
}

// headParser takes the fields of a block's head. What it returns of an entry's states is
// taken from the body.
type headParser struct {
	parser
	body   []byte // nil: the states are in the head, as before
	states parser // what is left of the body
}

// parseHead returns the head of a block, which it does not check, and the parser behind
// what each block has in front.
func parseHead(v []byte) (r *headParser, head []byte, err error) {
	if len(v) < 5 {
		return nil, nil, ErrShort
	}
	r = &headParser{parser: parser{rest: v[5:]}}
	if v[4]&blockSplit == 0 {
		return r, v, nil
	}
	if len(v) < fixedHead {
		return nil, nil, ErrShort
	}
	n := binary.LittleEndian.Uint32(v[9:])
	if n < fixedHead || uint64(n) > uint64(len(v)) {
		return nil, nil, ErrShort
	}
	head, r.body = v[:n], v[n:len(v):len(v)]
	r.rest, r.states.rest = head[fixedHead:], r.body
	return r, head, nil
}

// entry takes an entry of the block that is stored under key.
func (r *headParser) entry(key uint64) (e LogEntry) {
	p := &r.parser
	if r.body == nil {
		p = &parser{rest: r.bytes(), err: r.err}
	}
	e = LogEntry{Kind: Kind(p.byte()), Number: key + p.uvarint()}
	e.Key, e.Name, e.RV = string(p.bytes()), string(p.bytes()), string(p.bytes())
	e.Departs, e.Since = p.uvarint(), p.varint()
	var final, header, rec []byte
	if r.body == nil {
		final, header = p.bytes(), p.bytes()
		rec = p.rest
	} else {
		final, header, rec = r.state(), r.state(), r.state()
	}
	if len(final) > 0 {
		e.Final = final
	}
	if len(header) > 0 {
		e.Header, e.Record = header, rec
	}
	r.err = cmp.Or(r.err, p.err, r.states.err)
	return e
}

// state takes a state of an entry, whose length is the next field.
func (r *headParser) state() []byte { return r.states.take(asInt(r.uvarint())) }

// DecodeEntry returns the entry with a number of the block that is stored under key,
// which has been checked.
func DecodeEntry(key uint64, v []byte, number uint64) (*LogEntry, error) {
	r, _, err := parseHead(v)
	if err != nil {
		return nil, err
	}
	r.varint()
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		if e := r.entry(key); e.Number == number && r.err == nil {
			return &e, nil
		}
	}
	return nil, fmt.Errorf("there is no entry %d", number)
}

// BlockTime returns the time of a block without a check.
func BlockTime(v []byte) time.Time {
	r, _, err := parseHead(v)
	if err != nil {
		return time.Time{}
	}
	t := r.varint()
	if r.err != nil {
		return time.Time{}
	}
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

func (p *parser) bytes() []byte { return p.take(asInt(p.uvarint())) }

// asInt returns a length that take refuses if n is too large for one.
func asInt(n uint64) int { return int(min(n, math.MaxInt32)) }
