package protoplan

import (
	"reflect"
	"slices"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decode returns a new object, a pointer to the plan's type. Its strings refer to data,
// which must not be changed afterwards. With owned, each []byte does, too, so that who
// changes the object changes data. ok is false if data is not in the canonical form;
// it may be a valid message all the same. Decode accepts a few messages that are not
// canonical, for example with fields that are missing, and decodes them as generated code
// does.
func (p *Plan) Decode(data []byte, owned bool) (obj any, ok bool) {
	v := reflect.New(p.typ)
	d := decoder{owned: owned}
	if !d.message(p.root, data, v.UnsafePointer()) {
		return nil, false
	}
	return v.Interface(), true
}

// decoder decodes one object.
type decoder struct {
	owned  bool   // a []byte refers to the message
	copies []byte // the rest of a chunk for the strings that are copied
}

const copyChunk = 256

// apart returns a copy of b. The copies share memory with each other, but not with the
// message.
func (d *decoder) apart(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > copyChunk/2 {
		return string(b)
	}
	if len(b) > cap(d.copies)-len(d.copies) {
		d.copies = make([]byte, 0, copyChunk)
	}
	n := len(d.copies)
	d.copies = append(d.copies, b...)
	return unsafe.String(&d.copies[n], len(b))
}

func text(f *field, b []byte) string {
	if f.apart {
		return string(b)
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// inMap is like text, for the keys and values of a map.
func (d *decoder) inMap(f *field, b []byte) string {
	if f.apart {
		return d.apart(b)
	}
	return text(f, b)
}

// octets returns a []byte that is not nil.
func (d *decoder) octets(b []byte) []byte {
	if d.owned && len(b) > 0 {
		return slices.Clip(b)
	}
	return append([]byte{}, b...)
}

// varint reads a varint at b[i] and returns where it ends, -1 if it is malformed.
func varint(b []byte, i int) (v uint64, end int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return longVarint(b, i)
}

// longVarint reads a varint of more than one byte, the shortest for its value.
func longVarint(b []byte, i int) (v uint64, end int) {
	for shift := uint(0); shift < 64; shift += 7 {
		if i >= len(b) {
			return 0, -1
		}
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if c == 0 || shift == 63 && c > 1 {
				return 0, -1
			}
			return v, i
		}
	}
	return 0, -1
}

// head reads a tag and the number behind it, which is a value or a length.
func head(b []byte, i int) (tag, v uint64, end int) {
	if tag, i = varint(b, i); i < 0 {
		return 0, 0, -1
	}
	v, i = varint(b, i)
	return tag, v, i
}

// message decodes b into the struct at base.
func (d *decoder) message(m *message, b []byte, base unsafe.Pointer) bool {
	last := uint64(0)
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
		if number >= uint64(len(m.fields)) || number <= last {
			return false
		}
		last = number
		f := m.fields[number]
		if f == nil || uint8(tag&7) != f.wire {
			return false
		}
		at := unsafe.Add(base, f.offset)
		switch {
		case f.kind == int32List || f.kind == int64List:
			i = f.integers(b, i, v, tag, at)
		case f.wire == varintWire:
			f.integer(v, at)
		case v > uint64(len(b)-i):
			return false
		default:
			end := i + int(v)
			if f.kind.isList() {
				i = d.list(f, tag, b, i, end, at)
			} else if !d.value(f, b[i:end], at) {
				return false
			} else {
				i = end
			}
		}
		if i < 0 {
			return false
		}
	}
	return true
}

// integer stores a number, or a pointer to it.
func (f *field) integer(v uint64, at unsafe.Pointer) {
	switch f.kind {
	case boolean:
		store(f, at, v != 0)
	case int8s:
		store(f, at, int8(v))
	case int16s:
		store(f, at, int16(v))
	case int32s:
		store(f, at, int32(v))
	default:
		store(f, at, int64(v))
	}
}

func store[T any](f *field, at unsafe.Pointer, v T) {
	if f.pointer {
		p := new(T) // not &v, which would always be on the heap
		*p = v
		*(**T)(at) = p
	} else {
		*(*T)(at) = v
	}
}

// value decodes one value that is not a number, of a field that is no list.
func (d *decoder) value(f *field, b []byte, at unsafe.Pointer) bool {
	switch f.kind {
	case textual:
		store(f, at, text(f, b))
		return true
	case octets:
		*(*[]byte)(at) = d.octets(b)
		return true
	}
	if f.pointer {
		p := reflect.New(f.typ).UnsafePointer()
		*(*unsafe.Pointer)(at) = p
		at = p
	}
	switch f.kind {
	case nested:
		return d.message(f.message, b, at)
	case clock:
		return decodeTime(b, (*metav1.Time)(at))
	case quantity:
		q, _, ok := parseQuantity(b)
		*(*resource.Quantity)(at) = q
		return ok
	}
	v := reflect.NewAt(f.typ, at)
	if f.typ.Kind() == reflect.Slice {
		v.Elem().Set(reflect.MakeSlice(f.typ, 0, 0)) // not nil, also of an empty message
	}
	return v.Interface().(Message).Unmarshal(b) == nil
}

// decodeTime decodes the message of a metav1.Time, which has no fractions of seconds.
func decodeTime(b []byte, t *metav1.Time) bool {
	if len(b) == 0 {
		return true
	}
	seconds, ok := cutSeconds(b)
	if ok {
		t.Time = time.Unix(seconds, 0).Local()
	}
	return ok
}

// cutSeconds returns the seconds of a time that is not zero.
func cutSeconds(b []byte) (seconds int64, ok bool) {
	if b[0] != 1<<3|varintWire {
		return 0, false
	}
	v, i := varint(b, 1)
	return int64(v), i > 0 && len(b) == i+2 && b[i] == 2<<3|varintWire && b[i+1] == 0
}

// runLength returns how many fields with the same tag are in b, of which the first ends
// at i. ok is false if b is malformed.
func runLength(b []byte, i int, tag uint64) (n int, ok bool) {
	for n = 1; i < len(b); n++ {
		t, size, start := head(b, i)
		if t != tag && start >= 0 {
			break
		}
		if start < 0 || size > uint64(len(b)-start) {
			return 0, false
		}
		i = start + int(size)
	}
	return n, true
}

// run is the values of consecutive fields with one tag. The present one is b[start:end].
type run struct {
	b          []byte
	start, end int
}

func (r *run) value() []byte { return r.b[r.start:r.end] }

// next goes to the next value, which runLength has read before.
func (r *run) next() {
	_, size, start := head(r.b, r.end)
	r.start, r.end = start, start+int(size)
}

// list decodes a run of fields with the same tag, whose first value is b[i:end]. It
// returns where the run ends, -1 if b is malformed.
func (d *decoder) list(f *field, tag uint64, b []byte, i, end int, at unsafe.Pointer) int {
	n, ok := runLength(b, end, tag)
	if !ok {
		return -1
	}
	r := &run{b, i, end}
	switch f.kind {
	case textList:
		list := make([]string, n)
		for k := range list {
			if k > 0 {
				r.next()
			}
			list[k] = text(f, r.value())
		}
		*(*[]string)(at) = list
	case nestedList:
		ok = d.structs(f, r, n, at)
	case textMap:
		*(*map[string]string)(at), ok = decodeMap(d, f, r, n, func(v []byte) (string, bool) { return d.inMap(f, v), true })
	case octetsMap:
		*(*map[string][]byte)(at), ok = decodeMap(d, f, r, n, func(v []byte) ([]byte, bool) { return d.octets(v), true })
	case quantityMap:
		// The keys have another name, but the layout and the hash of strings.
		*(*map[string]resource.Quantity)(at), ok = decodeMap(d, f, r, n, func(v []byte) (q resource.Quantity, ok bool) {
			q, _, ok = parseQuantity(v)
			return q, ok
		})
	}
	if !ok {
		return -1
	}
	return r.end
}

func (d *decoder) structs(f *field, r *run, n int, at unsafe.Pointer) bool {
	list := reflect.NewAt(f.typ, at).Elem()
	list.Grow(n)
	list.SetLen(n)
	first := list.UnsafePointer()
	for k := range n {
		if k > 0 {
			r.next()
		}
		switch {
		case f.message == nil:
			if list.Index(k).Addr().Interface().(Message).Unmarshal(r.value()) != nil {
				return false
			}
		case !d.message(f.message, r.value(), unsafe.Add(first, uintptr(k)*f.size)):
			return false
		}
	}
	return true
}

func decodeMap[T any](d *decoder, f *field, r *run, n int, decode func([]byte) (T, bool)) (map[string]T, bool) {
	m := make(map[string]T, n)
	for k := range n {
		if k > 0 {
			r.next()
		}
		key, value, ok := cutEntry(r.value())
		if !ok {
			return nil, false
		}
		v, ok := decode(value)
		if !ok {
			return nil, false
		}
		m[d.inMap(f, key)] = v
	}
	return m, true
}

// cutEntry cuts the entry of a map, which is a key and a value. A value that is nil is
// left out.
func cutEntry(b []byte) (key, value []byte, ok bool) {
	key, b, ok = cutValue(1, b)
	if !ok || len(b) == 0 {
		return key, nil, ok
	}
	value, b, ok = cutValue(2, b)
	return key, value, ok && len(b) == 0
}

// cutValue cuts a field with a number below 16 and bytes.
func cutValue(number byte, b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != number<<3|bytesWire {
		return nil, nil, false
	}
	n, i := varint(b, 1)
	if i < 0 || n > uint64(len(b)-i) {
		return nil, nil, false
	}
	return b[i : i+int(n)], b[i+int(n):], true
}

// integers decodes a run of numbers, of which the first is v and ends at i.
func (f *field) integers(b []byte, i int, v, tag uint64, at unsafe.Pointer) int {
	list := []int64{int64(v)}
	for i < len(b) {
		t, next := varint(b, i)
		if next < 0 {
			return -1
		}
		if t != tag {
			break
		}
		if v, i = varint(b, next); i < 0 {
			return -1
		}
		list = append(list, int64(v))
	}
	if f.kind == int64List {
		*(*[]int64)(at) = list
		return i
	}
	small := make([]int32, len(list))
	for k, v := range list {
		small[k] = int32(v)
	}
	*(*[]int32)(at) = small
	return i
}
