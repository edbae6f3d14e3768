package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// The fields of a header are written and read here field by field, as msgpack writes and
// reads the struct by reflection: that took a tenth of the time of a list of small
// objects, and half of the time to read a long log. TestHeaderFields compares the two.

// AppendFields appends the header in msgpack, without a checksum.
func (h *Header) AppendFields(b []byte) []byte {
	fields := 6
	for _, set := range []bool{h.Created != 0, h.Name != "", h.DataKey != 0, len(h.Sealed) > 0} {
		if set {
			fields++
		}
	}
	b = headsOfMap.append(b, fields)
	b = appendString(appendString(b, "u"), h.UID)
	b = appendString(appendString(b, "r"), h.RV)
	b = appendMap(appendString(b, "l"), h.Labels, appendString)
	b = appendBinary(appendString(b, "h"), h.Hash)
	b = appendInt(appendString(b, "s"), h.Size)
	b = appendMap(appendString(b, "i"), h.Index, appendStrings)
	if h.Created != 0 {
		b = appendInt(appendString(b, "c"), h.Created)
	}
	if h.Name != "" {
		b = appendString(appendString(b, "n"), h.Name)
	}
	if h.DataKey != 0 {
		b = appendUint(appendString(b, "k"), h.DataKey)
	}
	if len(h.Sealed) > 0 {
		b = appendBinary(appendString(b, "x"), h.Sealed)
	}
	return b
}

// DecodeFields decodes what AppendFields has appended. The header does not refer to b.
func DecodeFields(b []byte) (*Header, error) {
	// One string holds what all fields refer to.
	r := headerReader{text: string(b), rest: b}
	h := &Header{}
	for fields := r.head() / 2; fields > 0 && r.err == nil; fields-- {
		switch r.string() {
		case "u":
			h.UID = r.string()
		case "r":
			h.RV = r.string()
		case "l":
			h.Labels = readMap(&r, (*headerReader).string)
		case "h":
			h.Hash = bytes.Clone(r.bytes())
		case "s":
			h.Size = r.int()
		case "i":
			h.Index = readMap(&r, (*headerReader).strings)
		case "c":
			h.Created = r.int()
		case "n":
			h.Name = r.string()
		case "k":
			h.DataKey = uint64(r.int())
		case "x":
			h.Sealed = bytes.Clone(r.bytes())
		default: // of a later version
			if r.err == nil {
				r.rest, r.err = Skip(r.rest)
			}
		}
	}
	return h, r.err
}

// heads are the codes that begin a value with a length: one that contains a length of up
// to most, and those that are followed by a length of 1, 2 or 4 bytes. 0 means that there
// is no such code.
type heads struct{ fixed, most, code8, code16, code32 byte }

var (
	headsOfString = heads{msgpcode.FixedStrLow, msgpcode.FixedStrMask, msgpcode.Str8, msgpcode.Str16, msgpcode.Str32}
	headsOfBinary = heads{code8: msgpcode.Bin8, code16: msgpcode.Bin16, code32: msgpcode.Bin32}
	headsOfArray  = heads{msgpcode.FixedArrayLow, msgpcode.FixedArrayMask, 0, msgpcode.Array16, msgpcode.Array32}
	headsOfMap    = heads{msgpcode.FixedMapLow, msgpcode.FixedMapMask, 0, msgpcode.Map16, msgpcode.Map32}
)

// append appends the first head that a length fits.
func (h heads) append(b []byte, n int) []byte {
	switch {
	case h.fixed != 0 && n <= int(h.most):
		return append(b, h.fixed|byte(n))
	case h.code8 != 0 && n < 1<<8:
		return append(b, h.code8, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, h.code16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, h.code32), uint32(n))
	}
}

func appendString(b []byte, s string) []byte {
	return append(headsOfString.append(b, len(s)), s...)
}

func appendBinary(b, data []byte) []byte {
	if data == nil {
		return append(b, msgpcode.Nil)
	}
	return append(headsOfBinary.append(b, len(data)), data...)
}

func appendStrings(b []byte, values []string) []byte {
	if values == nil {
		return append(b, msgpcode.Nil)
	}
	b = headsOfArray.append(b, len(values))
	for _, value := range values {
		b = appendString(b, value)
	}
	return b
}

// appendMap appends a map in the order of its keys.
func appendMap[V any](b []byte, m map[string]V, appendValue func([]byte, V) []byte) []byte {
	if m == nil {
		return append(b, msgpcode.Nil)
	}
	b = headsOfMap.append(b, len(m))
	var few [16]string
	keys := slices.AppendSeq(few[:0], maps.Keys(m))
	slices.Sort(keys)
	for _, key := range keys {
		b = appendValue(appendString(b, key), m[key])
	}
	return b
}

func appendInt(b []byte, n int64) []byte {
	if n >= 0 {
		return appendUint(b, uint64(n))
	}
	return binary.BigEndian.AppendUint64(append(b, msgpcode.Int64), uint64(n))
}

func appendUint(b []byte, n uint64) []byte {
	switch {
	case n <= uint64(msgpcode.PosFixedNumHigh):
		return append(b, byte(n))
	case n < 1<<8:
		return append(b, msgpcode.Uint8, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, msgpcode.Uint16), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, msgpcode.Uint32), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, msgpcode.Uint64), n)
	}
}

// headerReader takes values from the front of rest, which is the end of text. After an
// error its results are zero.
type headerReader struct {
	text string
	rest []byte
	err  error
}

// head takes the head of a map or an array and returns how many values follow.
func (r *headerReader) head() (values int) {
	if r.err != nil {
		return 0
	}
	if values, _, r.rest, r.err = msgpackHead(r.rest); values > len(r.rest) {
		values, r.err = 0, ErrShort
	}
	return values
}

func (r *headerReader) bytes() (s []byte) {
	if r.err == nil {
		s, r.rest, r.err = msgpackBytes(r.rest)
	}
	return s
}

func (r *headerReader) string() string {
	s := r.bytes()
	end := len(r.text) - len(r.rest)
	return r.text[end-len(s) : end]
}

func (r *headerReader) strings() []string {
	n := r.head()
	if n == 0 {
		return nil
	}
	values := make([]string, n)
	for i := range values {
		values[i] = r.string()
	}
	return values
}

func readMap[V any](r *headerReader, read func(*headerReader) V) map[string]V {
	n := r.head() / 2
	if n == 0 {
		return nil
	}
	m := make(map[string]V, n)
	for range n {
		key := r.string()
		m[key] = read(r)
	}
	return m
}

// int takes a number of any width.
func (r *headerReader) int() int64 {
	b := r.rest
	if r.head(); r.err != nil {
		return 0
	}
	c, digits := b[0], b[1:len(b)-len(r.rest)]
	var n uint64
	for _, d := range digits {
		n = n<<8 | uint64(d)
	}
	switch {
	case msgpcode.IsFixedNum(c):
		return int64(int8(c))
	case c == msgpcode.Int8 || c == msgpcode.Int16 || c == msgpcode.Int32 || c == msgpcode.Int64:
		unused := 64 - 8*len(digits)
		return int64(n) << unused >> unused
	case c == msgpcode.Uint8 || c == msgpcode.Uint16 || c == msgpcode.Uint32 || c == msgpcode.Uint64:
		return int64(n)
	}
	r.err = fmt.Errorf("byte %#02x is not a number", c)
	return 0
}
