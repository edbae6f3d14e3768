package codec

import (
	"time"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// packed is the rest of the encoding of an unstructured object. Its methods read from its
// beginning. After the first error they return nothing.
type packed []byte

// readPacked reads the metadata of the encoding of an unstructured object. ok is false if
// a field of it has another type than metav1.ObjectMeta, since accessors do not agree on
// what it is then, or if the object has no metadata.
func readPacked(data []byte) (m Metadata, ok bool) {
	p := packed(data)
	for range p.length() {
		switch name := p.string(); string(name) { // in their order
		case "apiVersion":
			m.APIVersion = p.string()
		case "kind":
			m.Kind = p.string()
		case "metadata":
			ok = p.metadata(&m)
			return m, ok
		default:
			p.skip()
		}
	}
	return m, false
}

func (p *packed) metadata(m *Metadata) (ok bool) {
	for range p.length() {
		created := []byte(nil)
		switch name := p.string(); string(name) {
		case "name":
			m.Name = p.string()
		case "namespace":
			m.Namespace = p.string()
		case "selfLink":
			m.SelfLink = p.string()
		case "uid":
			m.UID = p.string()
		case "resourceVersion":
			m.RV = p.string()
		case "labels":
			m.packed = *p
			if !p.null() {
				for range p.length() {
					p.string()
					p.string()
				}
			}
		case "creationTimestamp":
			if !p.null() {
				created = p.string()
			}
		default:
			p.skip()
		}
		if len(created) > 0 {
			t, err := time.Parse(time.RFC3339, string(created))
			if err != nil || t.IsZero() {
				return false
			}
			m.Created = t.Unix()
		}
	}
	return *p != nil
}

// fail makes the encoding malformed.
func (p *packed) fail() { *p = nil }

// take reads n bytes.
func (p *packed) take(n int) []byte {
	if n < 0 || n > len(*p) {
		p.fail()
		return nil
	}
	b := (*p)[:n]
	*p = (*p)[n:]
	return b
}

// peek returns the code of the next value, 0 at the end.
func (p *packed) peek() byte {
	if len(*p) == 0 {
		return 0
	}
	return (*p)[0]
}

func (p *packed) null() bool {
	if p.peek() != msgpcode.Nil {
		return false
	}
	p.take(1)
	return true
}

// string reads a string, which refers to the encoding.
func (p *packed) string() []byte {
	if code := p.peek(); !msgpcode.IsString(code) {
		p.fail()
		return nil
	}
	size, _ := p.head()
	return p.take(size)
}

// length reads the length of a map.
func (p *packed) length() int {
	if code := p.peek(); !msgpcode.IsFixedMap(code) && code != msgpcode.Map16 && code != msgpcode.Map32 {
		p.fail()
		return 0
	}
	_, values := p.head()
	if values < 0 || values > len(*p) {
		p.fail()
		return 0
	}
	return values / 2
}

// skip reads any value.
func (p *packed) skip() {
	for left := 1; left > 0 && len(*p) > 0; left-- {
		size, values := p.head()
		p.take(size)
		if left += values; left > len(*p)+1 {
			p.fail()
		}
	}
}

// head reads what precedes the content of a value. It returns how many bytes, and how
// many values, the content has. An extension is malformed: JSON has no value that becomes
// one.
func (p *packed) head() (size, values int) {
	code := p.peek()
	p.take(1)
	number := func(bytes int) (n int) {
		for _, b := range p.take(bytes) {
			n = n<<8 | int(b)
		}
		return n
	}
	switch {
	case msgpcode.IsFixedNum(code):
		return 0, 0
	case msgpcode.IsFixedString(code):
		return int(code & msgpcode.FixedStrMask), 0
	case msgpcode.IsFixedArray(code):
		return 0, int(code & msgpcode.FixedArrayMask)
	case msgpcode.IsFixedMap(code):
		return 0, 2 * int(code&msgpcode.FixedMapMask)
	}
	switch code {
	case msgpcode.Nil, msgpcode.True, msgpcode.False:
		return 0, 0
	case msgpcode.Uint8, msgpcode.Int8:
		return 1, 0
	case msgpcode.Uint16, msgpcode.Int16:
		return 2, 0
	case msgpcode.Uint32, msgpcode.Int32:
		return 4, 0
	case msgpcode.Uint64, msgpcode.Int64, msgpcode.Double:
		return 8, 0
	case msgpcode.Str8:
		return number(1), 0
	case msgpcode.Str16:
		return number(2), 0
	case msgpcode.Str32:
		return number(4), 0
	case msgpcode.Array16:
		return 0, number(2)
	case msgpcode.Array32:
		return 0, number(4)
	case msgpcode.Map16:
		return 0, 2 * number(2)
	case msgpcode.Map32:
		return 0, 2 * number(4)
	}
	p.fail()
	return 0, 0
}
