package protoplan

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsCanonical reports whether data is what generated code writes for the object that it
// decodes from data. false may be wrong, true is not.
func (p *Plan) IsCanonical(data []byte) bool { return p.root.isCanonical(data) }

func (m *message) isCanonical(b []byte) bool {
	last, lastAlways := uint64(0), uint64(0)
	var lastKey []byte // of the present map
	for i := 0; i < len(b); {
		// Most tags and lengths have one byte.
		tag, v := uint64(b[i]), uint64(0)
		if i++; tag < 0x80 && i < len(b) && b[i] < 0x80 {
			v = uint64(b[i])
			i++
		} else if tag, v, i = head(b, i-1); i < 0 {
			return false
		}
		number := tag >> 3
		if number >= uint64(len(m.fields)) || number < last {
			return false
		}
		f := m.fields[number]
		if f == nil || uint8(tag&7) != f.wire {
			return false
		}
		again := number == last
		if last = number; again && !f.kind.isList() || f.afterAlways != lastAlways {
			return false
		}
		if f.always {
			lastAlways = number
		}
		if f.wire == varintWire {
			if !f.isCanonicalNumber(v) {
				return false
			}
			continue
		}
		if v > uint64(len(b)-i) {
			return false
		}
		value := b[i : i+int(v)]
		i += int(v)
		if f.kind.isMap() {
			key, rest, ok := cutValue(1, value)
			if !ok || again && bytes.Compare(lastKey, key) >= 0 {
				return false
			}
			lastKey, value = key, rest
		}
		if !f.isCanonical(value) {
			return false
		}
	}
	return lastAlways == m.lastAlways
}

func (f *field) isCanonicalNumber(v uint64) bool {
	switch f.kind {
	case boolean:
		return v <= 1
	case int8s:
		return v == uint64(int8(v))
	case int16s:
		return v == uint64(int16(v))
	case int32s, int32List:
		return v == uint64(int32(v))
	}
	return true
}

// isCanonical checks one value that is not a number. Of an entry of a map it is what
// follows the key.
func (f *field) isCanonical(b []byte) bool {
	switch f.kind {
	case textual, textList, octets:
		return true
	case textMap:
		_, rest, ok := cutValue(2, b)
		return ok && len(rest) == 0
	case octetsMap:
		if len(b) == 0 {
			return false // decoded as an empty value, which is written
		}
		_, rest, ok := cutValue(2, b)
		return ok && len(rest) == 0
	case quantityMap:
		value, rest, ok := cutValue(2, b)
		return ok && len(rest) == 0 && isCanonicalQuantity(value)
	case clock:
		if len(b) == 0 {
			return true
		}
		seconds, ok := cutSeconds(b)
		return ok && seconds != zeroTime
	case quantity:
		return isCanonicalQuantity(b)
	}
	if f.message != nil {
		return f.message.isCanonical(b)
	}
	return isGeneratedForm(f.leafType(), b)
}

// zeroTime is the Unix time of time.Time{}, which is written as an empty message.
const zeroTime = -62135596800

func (f *field) leafType() reflect.Type {
	if f.kind == nestedList {
		return f.typ.Elem()
	}
	return f.typ
}

// isGeneratedForm reports whether generated code writes b for what it reads from b.
func isGeneratedForm(t reflect.Type, b []byte) bool {
	v := reflect.New(t).Interface().(Message)
	if v.Unmarshal(b) != nil {
		return false
	}
	again, err := v.Marshal()
	return err == nil && bytes.Equal(b, again)
}

func isCanonicalQuantity(b []byte) bool {
	_, is, ok := parseQuantity(b)
	return ok && is
}

// Compile-time proof that the leaves have the methods that the plan relies on.
var (
	_ Message = (*metav1.Time)(nil)
	_ Message = (*resource.Quantity)(nil)
)
