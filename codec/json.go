package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/informctl/informctl/internal/jsonscan"
)

// FromJSON is implemented by the codec of unstructured objects, which can encode an
// object from the JSON that an API server sends for it, without decoding it.
type FromJSON interface {
	Codec

	// AppendJSON appends to b what Encode returns for the object that client-go decodes
	// from the text at the beginning of text. ok is false if the text is not exactly such
	// an object, with a kind and with metadata that MetadataOf reads; b is then returned
	// unchanged. The Metadata is that of what was appended. AppendJSON keeps no reference
	// to text.
	AppendJSON(b, text []byte, o JSONObject) (_ []byte, m Metadata, at JSONOffsets, ok bool)
}

// JSONObject says how AppendJSON reads an object.
type JSONObject struct {
	// APIVersion and Kind are added to an object that has neither: a server leaves them
	// out of the elements of a list of its own types, and client-go adds those that are
	// expected in the list. "" adds nothing.
	APIVersion, Kind string
	// WithoutManagedFields leaves out metadata.managedFields.
	WithoutManagedFields bool
}

// JSONOffsets are places in the text of an object.
type JSONOffsets struct {
	Metadata int // of the closing brace of the metadata
	End      int // behind the object
}

// AppendJSON implements FromJSON.
func (unstructuredCodec) AppendJSON(b, text []byte, o JSONObject) (_ []byte, m Metadata, at JSONOffsets, ok bool) {
	t := transcoder{Scanner: jsonscan.New(text), object: o, out: b}
	if t.Next() != '{' {
		return b, m, at, false
	}
	t.value(atObject)
	if m, ok = readPacked(t.out[len(b):]); !ok || !t.OK() || t.metadata == 0 {
		return b, Metadata{}, at, false
	}
	return t.out, m, JSONOffsets{t.metadata, t.Offset()}, true
}

// place is where a value of an object is, as far as that matters.
type place int

const (
	atObject place = iota
	atMetadata
	elsewhere
)

// transcoder writes msgpack for a JSON text.
type transcoder struct {
	*jsonscan.Scanner
	object   JSONObject
	out      []byte
	members  []member // of the objects that are open
	scratch  []byte
	metadata int // see JSONOffsets
}

// member is where the output has a member of an object.
type member struct {
	begin, value, end int
	nameSize          int // the name ends where the value begins
}

func (t *transcoder) value(at place) {
	switch t.Next() {
	case '{':
		t.mapping(at)
	case '[':
		t.array()
	case '"':
		t.string(t.String())
	case 't':
		t.Literal("true")
		t.out = append(t.out, msgpcode.True)
	case 'f':
		t.Literal("false")
		t.out = append(t.out, msgpcode.False)
	case 'n':
		t.Literal("null")
		t.out = append(t.out, msgpcode.Nil)
	default:
		t.number()
	}
}

// number writes what sigs.k8s.io/json decodes: an int64 if the text is one.
func (t *transcoder) number() {
	text := string(t.Number())
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		t.out = appendInt(t.out, i)
		return
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fail()
		return
	}
	t.out = binary.BigEndian.AppendUint64(append(t.out, msgpcode.Double), math.Float64bits(f))
}

func (t *transcoder) string(s []byte) {
	switch n := len(s); {
	case n < 32:
		t.out = append(t.out, msgpcode.FixedStrLow|byte(n))
	case n <= math.MaxUint8:
		t.out = append(t.out, msgpcode.Str8, byte(n))
	case n <= math.MaxUint16:
		t.out = binary.BigEndian.AppendUint16(append(t.out, msgpcode.Str16), uint16(n))
	default:
		t.out = binary.BigEndian.AppendUint32(append(t.out, msgpcode.Str32), uint32(n))
	}
	t.out = append(t.out, s...)
}

func (t *transcoder) array() {
	begin, n := len(t.out), 0
	t.out = append(t.out, 0)
	for t.Open('['); t.More(']'); n++ {
		t.value(elsewhere)
	}
	t.length(begin, n, msgpcode.FixedArrayLow, msgpcode.Array16, msgpcode.Array32)
}

// length writes the length of an array or map over the one byte that was left for it.
func (t *transcoder) length(begin, n int, fixed, of16, of32 byte) {
	var head []byte
	switch {
	case n < 16:
		head = []byte{fixed | byte(n)}
	case n <= math.MaxUint16:
		head = binary.BigEndian.AppendUint16([]byte{of16}, uint16(n))
	default:
		head = binary.BigEndian.AppendUint32([]byte{of32}, uint32(n))
	}
	t.out[begin] = head[0]
	t.out = slices.Insert(t.out, begin+1, head[1:]...)
}

// mapping writes an object with its members in the order of their names.
func (t *transcoder) mapping(at place) {
	begin, first := len(t.out), len(t.members)
	t.out = append(t.out, 0)
	for t.Open('{'); t.More('}'); {
		name := t.Key()
		switch {
		case at == atMetadata && t.object.WithoutManagedFields && string(name) == "managedFields":
			t.Skip()
			continue
		case at == atObject && string(name) == "metadata":
			t.member(name, func() { t.value(atMetadata) })
		default:
			t.member(name, func() { t.value(elsewhere) })
		}
	}
	switch {
	case !t.OK():
		return
	case at == atMetadata:
		t.metadata = t.Offset() - 1
	case at == atObject:
		t.identify(first)
	}
	t.sort(t.members[first:])
	n := len(t.members) - first
	t.members = t.members[:first]
	t.length(begin, n, msgpcode.FixedMapLow, msgpcode.Map16, msgpcode.Map32)
}

func (t *transcoder) member(name []byte, value func()) {
	m := member{begin: len(t.out), nameSize: len(name)}
	t.string(name)
	m.value = len(t.out)
	value()
	m.end = len(t.out)
	t.members = append(t.members, m)
}

// identify checks that an object has a kind, and adds it where client-go does.
func (t *transcoder) identify(first int) {
	found := 0
	for _, m := range t.members[first:] {
		if name := string(t.name(m)); name == "apiVersion" || name == "kind" {
			value := packed(t.out[m.value:m.end])
			if len(value.string()) == 0 {
				t.Fail()
			}
			found++
		}
	}
	if found == 0 && t.object.APIVersion != "" && t.object.Kind != "" {
		t.member([]byte("apiVersion"), func() { t.string([]byte(t.object.APIVersion)) })
		t.member([]byte("kind"), func() { t.string([]byte(t.object.Kind)) })
		found = 2
	}
	if found != 2 {
		t.Fail()
	}
}

func (t *transcoder) name(m member) []byte { return t.out[m.value-m.nameSize : m.value] }

// sort puts members, which are the end of the output, into the order of their names. A
// name that comes twice is an error: Go's decoders disagree about it.
func (t *transcoder) sort(members []member) {
	compare := func(a, b member) int { return bytes.Compare(t.name(a), t.name(b)) }
	isSorted := slices.IsSortedFunc(members, compare)
	if !isSorted {
		slices.SortFunc(members, compare)
	}
	for i := 1; i < len(members); i++ {
		if compare(members[i-1], members[i]) == 0 {
			t.Fail()
		}
	}
	if isSorted {
		return
	}
	begin := len(t.out)
	t.scratch = t.scratch[:0]
	for _, m := range members {
		t.scratch = append(t.scratch, t.out[m.begin:m.end]...)
		begin = min(begin, m.begin)
	}
	copy(t.out[begin:], t.scratch)
}

// appendInt appends an integer as the encoder of msgpack does: as short as possible.
func appendInt(b []byte, i int64) []byte {
	switch {
	case i >= 0 && i <= math.MaxInt8:
		return append(b, byte(i))
	case i >= 0 && i <= math.MaxUint8:
		return append(b, msgpcode.Uint8, byte(i))
	case i >= 0 && i <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, msgpcode.Uint16), uint16(i))
	case i >= 0 && i <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, msgpcode.Uint32), uint32(i))
	case i >= 0:
		return binary.BigEndian.AppendUint64(append(b, msgpcode.Uint64), uint64(i))
	case i >= -32:
		return append(b, byte(i))
	case i >= math.MinInt8:
		return append(b, msgpcode.Int8, byte(i))
	case i >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, msgpcode.Int16), uint16(i))
	case i >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, msgpcode.Int32), uint32(i))
	}
	return binary.BigEndian.AppendUint64(append(b, msgpcode.Int64), uint64(i))
}
