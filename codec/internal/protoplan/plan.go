// Package protoplan decodes the protobuf of Kubernetes' generated types faster than their
// generated code, and tells whether a message is exactly what that code would write.
//
// A [Plan] is made once for each Go type, from its fields and their protobuf tags. It
// accepts only the canonical form, which is what MarshalToSizedBuffer of the generated
// code writes: known fields in ascending order, each field that is always written, map
// keys in order, the shortest varints. For any other message Decode and IsCanonical
// return false, and the caller asks the generated code. So a message that the plan
// misjudges costs time, and nothing else.
//
// # What is unsafe
//
// Decode writes fields through [unsafe.Pointer], at the offset and with the type that
// package reflect gives for them. It makes strings that refer to the message, which the
// caller must not change afterwards. A string that is kept keeps the whole message, so
// those that are often kept are copied: name, namespace, UID, resource version and labels
// of an object, name and UID of an owner. Pointers point only to memory that package
// reflect or a composite literal has allocated with its type, which is what the garbage
// collector and -d=checkptr demand.
//
// # Who judges
//
// Before a plan is used, [For] compares it with the generated code, for an object with
// all fields set and for one with none. A type whose plan decodes anything else has no
// plan.
//
// # Concurrency
//
// A Plan is immutable, and safe for concurrent use.
package protoplan

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Message is implemented by pointers to types with generated protobuf code.
type Message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// Plan decodes messages of one Go type.
type Plan struct {
	typ  reflect.Type
	root *message
}

// message is the plan of one struct type.
type message struct {
	fields []*field // by number; nil: there is none
	// lastAlways is the number of the last field that is always written, 0 if there is
	// none.
	lastAlways uint64
}

// field is the plan of one field.
type field struct {
	kind    kind
	number  uint64
	wire    uint8
	pointer bool // the Go field is a pointer to what kind says
	apart   bool // strings are copied
	whole   bool // a nested message that Differing does not look into
	// always means that generated code writes the field even if it is zero, and
	// afterAlways is the number of the last such field before it.
	always      bool
	afterAlways uint64

	offset  uintptr
	typ     reflect.Type // of the Go field without its pointer
	size    uintptr      // of an element of a list
	message *message     // of kinds nested and nestedList; nil: generated code decodes it
}

type kind uint8

const (
	boolean kind = iota // wire type 0
	int8s
	int16s
	int32s
	int64s
	int32List
	int64List
	textual // wire type 2
	textList
	octets
	nested
	nestedList
	clock
	quantity
	generated
	textMap
	octetsMap
	quantityMap
)

const (
	varintWire = 0
	bytesWire  = 2
)

func (k kind) isList() bool {
	return k == textList || k == nestedList || k == int32List || k == int64List || k.isMap()
}

func (k kind) isMap() bool { return k >= textMap }

var (
	messageType  = reflect.TypeFor[Message]()
	quantityType = reflect.TypeFor[resource.Quantity]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// leaves are the struct types that are not decoded field by field.
var leaves = map[reflect.Type]kind{
	reflect.TypeFor[metav1.Time]():      clock,
	reflect.TypeFor[metav1.MicroTime](): generated,
	quantityType:                        quantity,
}

// apart says which strings are copied.
var apart = map[reflect.Type][]string{
	reflect.TypeFor[metav1.ObjectMeta]():     {"Name", "Namespace", "UID", "ResourceVersion", "Labels"},
	reflect.TypeFor[metav1.OwnerReference](): {"Name", "UID"},
}

// plans has the plan of each type that For was called with; a nil *Plan if it has none.
var plans sync.Map

// For returns the plan of a struct type, nil if there is none: generated code then
// decodes its messages.
func For(t reflect.Type) *Plan {
	if p, ok := plans.Load(t); ok {
		return p.(*Plan)
	}
	p, err := compile(t)
	if err == nil {
		err = p.verify()
	}
	if err != nil {
		p = nil
	}
	stored, _ := plans.LoadOrStore(t, p)
	return stored.(*Plan)
}

var errRecursive = errors.New("the type is recursive")

func compile(t reflect.Type) (*Plan, error) {
	c := compiler{}
	root, err := c.message(t)
	if err != nil {
		return nil, err
	}
	return &Plan{t, root}, nil
}

// compiler has the plans of the struct types that were met, nil while they
// are compiled.
type compiler map[reflect.Type]*message

func (c compiler) message(t reflect.Type) (*message, error) {
	if m, ok := c[t]; ok {
		if m == nil {
			return nil, errRecursive
		}
		return m, nil
	}
	c[t] = nil
	m := &message{}
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("protobuf")
		if tag == "" || tag == "-" {
			continue // for example the TypeMeta of an object
		}
		f, err := c.field(sf, tag)
		if err != nil {
			delete(c, t)
			return nil, fmt.Errorf("%s.%s: %w", t, sf.Name, err)
		}
		f.apart = slices.Contains(apart[t], sf.Name)
		// Whether an omitzero field is there in JSON depends on all that is inside.
		f.whole = hasOwnJSON(f.typ) || strings.Contains(sf.Tag.Get("json"), "omitzero")
		if n := int(f.number) + 1; n > len(m.fields) {
			m.fields = append(m.fields, make([]*field, n-len(m.fields))...)
		}
		m.fields[f.number] = f
	}
	for _, f := range m.fields {
		if f == nil {
			continue
		}
		if f.afterAlways = m.lastAlways; f.always {
			m.lastAlways = f.number
		}
	}
	c[t] = m
	return m, nil
}

// maxNumber bounds the table of fields of a message.
const maxNumber = 4096

func (c compiler) field(sf reflect.StructField, tag string) (*field, error) {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return nil, fmt.Errorf("tag %q", tag)
	}
	number, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil || number == 0 || number > maxNumber {
		return nil, fmt.Errorf("tag %q", tag)
	}
	f := &field{number: number, offset: sf.Offset, typ: sf.Type, wire: bytesWire}
	if f.typ.Kind() == reflect.Pointer {
		f.pointer, f.typ = true, f.typ.Elem()
	}
	// The tags of some fields are wrong (AddressType of an EndpointSlice says "rep",
	// EndPort of a NetworkPolicyPort "bytes"): generated code goes by the Go type.
	if err := c.setKind(f); err != nil {
		return nil, err
	}
	if f.kind <= int64List {
		f.wire = varintWire
	}
	f.always = !f.pointer && !f.kind.isList() && f.kind != octets && f.typ.Kind() != reflect.Slice
	return f, nil
}

func (c compiler) setKind(f *field) error {
	t := f.typ
	isGenerated := reflect.PointerTo(t).Implements(messageType)
	switch t.Kind() {
	case reflect.Bool:
		f.kind = boolean
	case reflect.Int8:
		f.kind = int8s
	case reflect.Int16:
		f.kind = int16s
	case reflect.Int32:
		f.kind = int32s
	case reflect.Int64:
		f.kind = int64s
	case reflect.Int:
		if strconv.IntSize != 64 {
			return fmt.Errorf("type %s", t)
		}
		f.kind = int64s
	case reflect.String:
		f.kind = textual
	case reflect.Struct:
		return c.setStruct(f, t, nested)
	case reflect.Slice:
		switch e := t.Elem(); {
		case isGenerated:
			f.kind = generated
		case t == bytesType:
			f.kind = octets
		case e.Kind() == reflect.String:
			f.kind = textList
		case e.Kind() == reflect.Int32:
			f.kind = int32List
		case e.Kind() == reflect.Int64:
			f.kind = int64List
		case e.Kind() == reflect.Struct:
			f.size = e.Size()
			return c.setStruct(f, e, nestedList)
		default:
			return fmt.Errorf("type %s", t)
		}
	case reflect.Map:
		return setMap(f, t)
	default:
		return fmt.Errorf("type %s", t)
	}
	if f.pointer && (f.kind.isList() || f.kind == octets) {
		return fmt.Errorf("type *%s", t)
	}
	return nil
}

// setStruct sets the kind of a field of a struct type, or of a list of such.
func (c compiler) setStruct(f *field, t reflect.Type, k kind) error {
	f.kind = k
	leaf, isLeaf := leaves[t]
	if isLeaf && k == nested {
		f.kind = leaf
	}
	if isLeaf {
		return nil
	}
	m, err := c.message(t)
	switch {
	case err == nil:
		f.message = m
	case errors.Is(err, errRecursive), !reflect.PointerTo(t).Implements(messageType):
		return err
	case k == nested:
		f.kind = generated
	}
	return nil
}

func setMap(f *field, t reflect.Type) error {
	isText := t.Key() == reflect.TypeFor[string]()
	switch e := t.Elem(); {
	case f.pointer:
		return fmt.Errorf("type *%s", t)
	case isText && e == reflect.TypeFor[string]():
		f.kind = textMap
	case isText && e == bytesType:
		f.kind = octetsMap
	case t.Key().Kind() == reflect.String && e == quantityType:
		f.kind = quantityMap
	default:
		return fmt.Errorf("type %s", t)
	}
	return nil
}
