package protoplan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"reflect"
)

// Differing returns two messages without the fields that are the same in both, also
// inside the messages that they nest. It leaves lists, maps and types with a JSON form of
// their own as they are. So the decoded results differ in the same fields as the decoded
// messages. ok is false if a message is not in the canonical form.
func (p *Plan) Differing(a, b []byte) (x, y []byte, ok bool) {
	return p.root.differing(nil, nil, a, b)
}

// differing appends what differs to x and y.
func (m *message) differing(x, y, a, b []byte) ([]byte, []byte, bool) {
	last := uint64(0)
	for len(a) > 0 || len(b) > 0 {
		f, fieldOK := cutField(a)
		g, otherOK := cutField(b)
		number := f.number
		if number == 0 || g.number != 0 && g.number < number {
			number = g.number
		}
		if !fieldOK || !otherOK || number <= last {
			return nil, nil, false
		}
		last = number
		inA, inB := f.number == number, g.number == number
		if inA {
			a = a[len(f.all):]
		}
		if inB {
			b = b[len(g.all):]
		}
		switch {
		case !inB:
			x = append(x, f.all...)
		case !inA:
			y = append(y, g.all...)
		case bytes.Equal(f.all, g.all):
		case m.isNested(number) && f.value != nil && g.value != nil:
			v, w, ok := m.fields[number].message.differing(nil, nil, f.value, g.value)
			if !ok {
				return nil, nil, false
			}
			x, y = appendNested(x, number, v), appendNested(y, number, w)
		default:
			x, y = append(x, f.all...), append(y, g.all...)
		}
	}
	return x, y, true
}

// isNested reports whether a field is a message whose fields are compared one by one.
func (m *message) isNested(number uint64) bool {
	if number >= uint64(len(m.fields)) || m.fields[number] == nil {
		return false
	}
	f := m.fields[number]
	return f.kind == nested && f.message != nil && !f.whole
}

func appendNested(b []byte, number uint64, value []byte) []byte {
	b = binary.AppendUvarint(b, number<<3|bytesWire)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// encodedField is all of a field in a message: of a list or a map each of its entries.
type encodedField struct {
	number     uint64 // 0 at the end of the message
	all, value []byte // value is nil of a number, and of several entries
}

// cutField returns the first field of b. ok is false if b is malformed.
func cutField(b []byte) (f encodedField, ok bool) {
	for i := 0; i < len(b); {
		tag, v, end := head(b, i)
		if end < 0 || f.number != 0 && tag>>3 != f.number {
			return f, end >= 0
		}
		var value []byte
		switch wire := tag & 7; {
		case wire == bytesWire && v <= uint64(len(b)-end):
			value = b[end : end+int(v)]
			end += int(v)
		case wire != varintWire:
			return f, false
		}
		if f.number != 0 {
			value = nil
		}
		i = end
		f = encodedField{tag >> 3, b[:i], value}
	}
	return f, true
}

// hasOwnJSON reports whether a type says itself how it is written as JSON.
func hasOwnJSON(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
}
