package record

import (
	"encoding/binary"
	"fmt"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"k8s.io/apimachinery/pkg/labels"
)

// HeaderView reads the parts of a header that a Query or a check needs, without copying
// the header out of the file: decoding a header takes 2 us, viewing it 0.2 us. It is
// valid until the transaction ends. It implements labels.Labels for the object's labels.
type HeaderView struct {
	Hash    []byte
	pairs   []byte // msgpack of the labels, alternating keys and values
	count   int    // of labels
	indexes []byte // msgpack of the index values: each name and its array of values
	names   int    // of indexes
}

var _ labels.Labels = (*HeaderView)(nil)

// Set makes v the view of the header that is stored under key.
func (v *HeaderView) Set(key string, b []byte) error {
	*v = HeaderView{}
	if err := checkHeader(key, b); err != nil {
		return err
	}
	fields, _, b, err := msgpackHead(b[4:])
	for ; err == nil && fields > 0; fields -= 2 {
		var name []byte
		if name, b, err = msgpackBytes(b); err != nil {
			break
		}
		switch string(name) {
		case "l":
			var values int
			values, _, v.pairs, err = msgpackHead(b)
			v.count = values / 2
		case "i":
			var values int
			values, _, v.indexes, err = msgpackHead(b)
			v.names = values / 2
		case "h":
			v.Hash, _, err = msgpackBytes(b)
		}
		if err == nil {
			b, err = Skip(b)
		}
	}
	return err
}

// Lookup implements labels.Labels.
func (v *HeaderView) Lookup(label string) (value string, exists bool) {
	b := v.pairs
	for range v.count {
		name, rest, err := msgpackBytes(b)
		if err != nil {
			return "", false
		}
		value, rest, err := msgpackBytes(rest)
		if err != nil {
			return "", false
		}
		if string(name) == label {
			return string(value), true
		}
		b = rest
	}
	return "", false
}

// IndexValues calls fn with each index name and each of the object's values in that
// index.
func (v *HeaderView) IndexValues(fn func(name, value []byte)) error {
	b := v.indexes
	for range v.names {
		name, rest, err := msgpackBytes(b)
		if err != nil {
			return err
		}
		values, _, rest, err := msgpackHead(rest)
		for ; err == nil && values > 0; values-- {
			var value []byte
			if value, rest, err = msgpackBytes(rest); err == nil {
				fn(name, value)
			}
		}
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// Has implements labels.Labels.
func (v *HeaderView) Has(label string) bool {
	_, exists := v.Lookup(label)
	return exists
}

// Get implements labels.Labels.
func (v *HeaderView) Get(label string) string {
	value, _ := v.Lookup(label)
	return value
}

// msgpackHead removes the head of the first value from b. It returns how many values a
// map or an array consists of, or else how many bytes follow.
func msgpackHead(b []byte) (values, size int, rest []byte, err error) {
	if len(b) == 0 {
		return 0, 0, nil, ErrShort
	}
	c, rest := b[0], b[1:]
	switch {
	case msgpcode.IsFixedString(c): // first, because most values are strings
		return 0, int(c & msgpcode.FixedStrMask), rest, nil
	case msgpcode.IsFixedNum(c) || c == msgpcode.Nil:
		return 0, 0, rest, nil
	case msgpcode.IsFixedMap(c):
		return 2 * int(c&msgpcode.FixedMapMask), 0, rest, nil
	case msgpcode.IsFixedArray(c):
		return int(c & msgpcode.FixedArrayMask), 0, rest, nil
	}
	var width int // of the number that follows
	switch c {
	case msgpcode.Uint8, msgpcode.Int8, msgpcode.Str8, msgpcode.Bin8:
		width = 1
	case msgpcode.Uint16, msgpcode.Int16, msgpcode.Str16, msgpcode.Bin16, msgpcode.Array16, msgpcode.Map16:
		width = 2
	case msgpcode.Uint32, msgpcode.Int32, msgpcode.Str32, msgpcode.Bin32, msgpcode.Array32, msgpcode.Map32:
		width = 4
	case msgpcode.Uint64, msgpcode.Int64:
		width = 8
	default:
		return 0, 0, nil, fmt.Errorf("byte %#02x is not expected in a header", c)
	}
	if len(rest) < width {
		return 0, 0, nil, ErrShort
	}
	var number [8]byte
	copy(number[8-width:], rest)
	n := int(binary.BigEndian.Uint64(number[:]))
	rest = rest[width:]
	switch c {
	case msgpcode.Array16, msgpcode.Array32:
		return n, 0, rest, nil
	case msgpcode.Map16, msgpcode.Map32:
		return 2 * n, 0, rest, nil
	case msgpcode.Str8, msgpcode.Str16, msgpcode.Str32, msgpcode.Bin8, msgpcode.Bin16, msgpcode.Bin32:
		return 0, n, rest, nil
	}
	return 0, 0, rest, nil // a number
}

// msgpackBytes removes a string from b.
func msgpackBytes(b []byte) (s, rest []byte, err error) {
	_, size, rest, err := msgpackHead(b)
	if err == nil && size > len(rest) {
		err = ErrShort
	}
	if err != nil {
		return nil, nil, err
	}
	return rest[:size], rest[size:], nil
}

// Skip removes a value, with all that it contains, from b.
func Skip(b []byte) (rest []byte, err error) {
	for todo := 1; todo > 0; todo-- {
		values, size, rest, err := msgpackHead(b)
		if err == nil && size > len(rest) {
			err = ErrShort
		}
		if err != nil {
			return nil, err
		}
		todo += values
		b = rest[size:]
	}
	return b, nil
}
