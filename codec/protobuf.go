package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec/internal/protoplan"
)

// message is the interface of types with generated protobuf code.
type message interface {
	runtime.ProtobufReverseMarshaller
	Unmarshal(data []byte) error
}

var (
	messageType  = reflect.TypeFor[message]()
	typeMetaType = reflect.TypeFor[metav1.TypeMeta]()
)

// protobufCodec writes apiVersion and kind, each prefixed with its length as a uvarint,
// and then the message, because generated code omits TypeMeta.
type protobufCodec struct {
	typ         reflect.Type
	typeMeta    int // index of the embedded metav1.TypeMeta, -1 if there is none
	fingerprint string
	only        *onlyFields     // nil means all fields
	plan        *protoplan.Plan // nil means that only generated code decodes
}

// SafeDecoding makes codecs decode, while it is true, with generated code alone, without
// package unsafe: objects are then equal, and share no memory with what they were decoded
// from, but take two to three times as many allocations. It is read at each Decode.
var SafeDecoding atomic.Bool

func newProtobuf(t reflect.Type) Codec {
	return protobufCodec{typ: t, typeMeta: typeMetaField(t), fingerprint: fingerprint(t), plan: protoplan.For(t)}
}

func (c protobufCodec) ID() byte            { return IDProtobuf }
func (c protobufCodec) Name() string        { return "protobuf" }
func (c protobufCodec) Fingerprint() string { return c.fingerprint }

func (c protobufCodec) Encode(obj runtime.Object) (data []byte, err error) {
	v, err := checkObject(obj, c.typ)
	if err == nil && c.only != nil {
		err = fmt.Errorf("codec: encode %s: by a codec of some fields", c.typ)
	}
	if err != nil {
		return nil, err
	}
	defer recoverTo(&err, "encode", c.typ)
	var tm metav1.TypeMeta
	if c.typeMeta >= 0 {
		tm = *v.Field(c.typeMeta).Addr().Interface().(*metav1.TypeMeta)
	}
	m := obj.(message)
	size := m.Size()
	data = make([]byte, 0, len(tm.APIVersion)+len(tm.Kind)+2*binary.MaxVarintLen16+size)
	data = appendString(data, tm.APIVersion)
	data = appendString(data, tm.Kind)
	head := len(data)
	data = append(data, make([]byte, size)...)
	if n, err := m.MarshalToSizedBuffer(data[head:]); err != nil || n != size {
		return nil, fmt.Errorf("codec: encode %s: marshalling protobuf", c.typ)
	}
	return data, nil
}

func (c protobufCodec) Decode(data []byte) (runtime.Object, error) {
	return c.decodeAliased(bytes.Clone(data), true)
}

func (c protobufCodec) decodeAliased(data []byte, owned bool) (runtime.Object, error) {
	tm, data, err := c.cutTypeMeta(data)
	if err != nil {
		return nil, err
	}
	if c.only != nil {
		data = c.only.of(data)
	}
	return c.decodeObject(tm, data, owned)
}

// cutTypeMeta returns the TypeMeta of an encoded object and the message behind it.
func (c protobufCodec) cutTypeMeta(data []byte) (tm metav1.TypeMeta, message []byte, err error) {
	if tm.APIVersion, data, err = cutString(data); err == nil {
		tm.Kind, data, err = cutString(data)
	}
	if err != nil {
		return tm, nil, fmt.Errorf("codec: decode %s: %w", c.typ, err)
	}
	return tm, data, nil
}

// decodeObject decodes the object of a TypeMeta and a message.
func (c protobufCodec) decodeObject(tm metav1.TypeMeta, message []byte, owned bool) (obj runtime.Object, err error) {
	defer recoverTo(&err, "decode", c.typ)
	m, err := c.decodeMessage(message, owned)
	switch {
	case err != nil:
		return nil, err
	case tm == metav1.TypeMeta{}:
	case c.typeMeta < 0:
		return nil, fmt.Errorf("codec: decode %s: type meta in a type that has none", c.typ)
	default:
		reflect.ValueOf(m).Elem().Field(c.typeMeta).Set(reflect.ValueOf(tm))
	}
	return m.(runtime.Object), nil
}

func (c protobufCodec) decodeMessage(data []byte, owned bool) (any, error) {
	if c.plan != nil && !SafeDecoding.Load() {
		if m, ok := c.plan.Decode(data, owned); ok {
			return m, nil
		}
	}
	m := reflect.New(c.typ).Interface().(message)
	if err := m.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("codec: decode %s: malformed protobuf", c.typ)
	}
	return m, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutString(b []byte) (string, []byte, error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return "", nil, errors.New("malformed type meta")
	}
	b = b[used:]
	return string(b[:n]), b[n:], nil
}

func typeMetaField(t reflect.Type) int {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type == typeMetaType {
			return i
		}
	}
	return -1
}

// protobufTypes caches the results of hasProtobuf: reflect.Type to bool.
var protobufTypes sync.Map

// hasProtobuf reports whether objects of t are encoded as protobuf.
func hasProtobuf(t reflect.Type) bool {
	if has, ok := protobufTypes.Load(t); ok {
		return has.(bool)
	}
	has := generated(t) && !recursive(t) && !nestsTypeMeta(t, true)
	protobufTypes.Store(t, has)
	return has
}

// generated reports whether protobuf code was generated for t itself. The methods alone
// do not prove that: a struct that embeds metav1.TypeMeta but not metav1.ObjectMeta has
// the methods of TypeMeta. Therefore all fields must have protobuf tags, and all structs
// in them the methods.
func generated(t reflect.Type) bool {
	if !reflect.PointerTo(t).Implements(messageType) {
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type == typeMetaType {
			continue
		}
		if tag := f.Tag.Get("protobuf"); tag == "" || tag == "-" {
			return false
		}
		e := f.Type
		for e.Kind() == reflect.Pointer || e.Kind() == reflect.Slice || e.Kind() == reflect.Map {
			e = e.Elem()
		}
		if e.Kind() == reflect.Struct && !reflect.PointerTo(e).Implements(messageType) {
			return false
		}
	}
	return true
}

// nestsTypeMeta reports whether a value of t, which must not be recursive, can contain a
// nested TypeMeta, for example in the volumeClaimTemplates of a StatefulSet. Generated
// code omits nested TypeMetas, but an API server sets them in JSON.
func nestsTypeMeta(t reflect.Type, outermost bool) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
		return nestsTypeMeta(t.Elem(), false)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Type == typeMetaType && !outermost || f.Type != typeMetaType && f.IsExported() && nestsTypeMeta(f.Type, false) {
				return true
			}
		}
	}
	return false
}

// recursive reports whether a value of t can contain another t at any depth.
func recursive(t reflect.Type) bool {
	const active, done = 1, 2
	state := map[reflect.Type]int{}
	var visit func(t reflect.Type) bool
	visit = func(t reflect.Type) bool {
		if state[t] != 0 {
			return state[t] == active
		}
		state[t] = active
		defer func() { state[t] = done }()
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			return visit(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() && visit(f.Type) {
					return true
				}
			}
		}
		return false
	}
	return visit(t)
}
