// Package codec encodes Kubernetes objects to bytes and decodes them exactly.
//
// Types with generated protobuf are encoded as protobuf, which is also what the API
// server stores. All other types (structs of custom resources,
// [unstructured.Unstructured]) are encoded as msgpack with the field names of their JSON
// form, so that [DecodeAny] can decode a record without its Go type. The few types with a
// nested TypeMeta (for example a StatefulSet's volumeClaimTemplates) are also encoded as
// msgpack, because protobuf omits a nested TypeMeta.
//
// # Usage
//
// [For] selects the codec of a type once; the codec then encodes and decodes any number
// of objects of that type. A tool without Go types uses [ForKind] or [DecodeAny].
//
// # Exactness
//
// TypeMeta is preserved: empty stays empty, set stays set. In addition:
//
//   - msgpack preserves the difference between nil and empty slices and maps, between a
//     nil pointer and a pointer to a zero value, and between int64 and float64.
//   - protobuf preserves what the API server's own encoding preserves: an empty slice or
//     map becomes nil.
//   - A type of Go's or Kubernetes' with its own JSON or text form (a quantity, a time, a
//     raw extension) is as exact as that form. For example, a metav1.Time has a precision
//     of seconds, a time is decoded in the location that its UnmarshalJSON chooses, and
//     the Object of a runtime.RawExtension becomes Raw (msgpack) or is lost (protobuf).
//     No API server returns such an Object.
//   - Another type that marshals and unmarshals itself is encoded in its own form where
//     that gives the same value again, else by its fields. So is a type that does only
//     one of them, as one that hides a password when it is printed, and a type that has
//     its methods from an embedded field.
//   - A field without a JSON form (unexported, tagged "-", a channel, a function, or an
//     interface with methods) must be zero, else Encode returns an error in msgpack.
//     Other interface fields may only contain values of unstructured objects.
//
// # Concurrency
//
// A [Codec] is safe for concurrent use and never blocks. Nothing else may use an object
// while it is encoded: the generated protobuf code of resource.Quantity writes to a cache
// inside the quantity.
//
// # What is unsafe
//
// Most protobuf is decoded by a plan that is compiled once for each Go type
// (codec/internal/protoplan), through [unsafe.Pointer]: it takes half the time and a
// third of the allocations of the generated code. The plan refuses whatever generated
// code would not write, and is compared with that code when it is made. [SafeDecoding]
// turns the plans off.
//
// The strings of an object refer to a copy of the bytes that it was decoded from, or to
// these bytes themselves with [DecodeAliased]. So a string that is kept keeps all of
// them: 10 KB for a pod. Names, namespaces, UIDs, resource versions and labels of objects
// and the names and UIDs of owners have memory of their own. Clone any other string that
// outlives its object.
//
// # Corruption
//
// Decoding checks every length, limits the nesting depth and turns panics of third-party
// code into errors. Errors name Go types and never contain the content of an object.
package codec

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/codec/internal/protoplan"
)

// The codec ids that [Codec.ID] returns. They are part of the file format.
const (
	IDProtobuf byte = 1
	IDMsgpack  byte = 2
)

// Codec encodes and decodes objects of one Go type. It is safe for concurrent use and
// never blocks.
type Codec interface {
	// ID returns the number that identifies the codec in a record: IDProtobuf or
	// IDMsgpack.
	ID() byte

	// Name returns the codec's name for people: "protobuf" or "msgpack".
	Name() string

	// Encode returns the encoded obj. Identical objects give identical bytes. The caller
	// owns the result. Encode returns an error if obj is nil, has another type than the
	// codec, or contains a value that this codec cannot encode. Nothing else may use obj
	// during the call.
	Encode(obj runtime.Object) ([]byte, error)

	// Decode returns a new object of the codec's type that shares no memory with data. It
	// never panics: an error means that data was not encoded by this codec for this type.
	// Fields that the type does not have are skipped.
	Decode(data []byte) (runtime.Object, error)

	// Fingerprint returns a hash of the codec's Go type: the names, types and tags of all
	// fields that can be stored, recursively. If it differs from the fingerprint of a
	// stored record, the type may now have fields that were dropped when the record was
	// written. It does not show what the methods of a type with its own form do: if they
	// read more than before into the same fields, give the type another name.
	Fingerprint() string
}

// DecodeAliased is like c.Decode, but the strings of the object may refer to data, which
// must not be changed afterwards. With owned, which is for data that nobody else reads, a
// []byte of the object may do so, too.
func DecodeAliased(c Codec, data []byte, owned bool) (runtime.Object, error) {
	switch c := c.(type) {
	case protobufCodec:
		return c.decodeAliased(data, owned)
	case encodedCodec:
		if owned {
			return &runtime.Unknown{Raw: data}, nil
		}
	}
	return c.Decode(data)
}

// For returns the codec for objects of the type of example: protobuf if the type has
// generated protobuf, else msgpack. Two kinds of types use msgpack even if they have
// generated protobuf: recursive types, because generated code does not limit the nesting
// depth, and types with a nested TypeMeta, because generated code omits it. For uses only
// the type of example and does not keep the object. It returns an error if example is
// not a pointer to a struct.
func For(example runtime.Object) (Codec, error) {
	t, err := structType(example)
	if err != nil {
		return nil, err
	}
	if hasProtobuf(t) {
		return newProtobuf(t), nil
	}
	return Msgpack(example)
}

// Msgpack is like For but always returns a msgpack codec.
func Msgpack(example runtime.Object) (Codec, error) {
	if _, ok := example.(*unstructured.Unstructured); ok {
		return unstructuredCodec{}, nil
	}
	t, err := structType(example)
	if err != nil {
		return nil, err
	}
	return newMsgpack(t), nil
}

// ForKind returns the codec for a kind whose Go type is not known: the codec of the type
// in client-go's scheme, or the codec of unstructured objects if the scheme has none.
func ForKind(gvk schema.GroupVersionKind) Codec {
	if obj, err := scheme.Scheme.New(gvk); err == nil {
		if c, err := For(obj); err == nil {
			return c
		}
	}
	return unstructuredCodec{}
}

// ErrNoType indicates a protobuf record of a kind for which client-go's scheme has no
// type: only a program that has the type decodes it.
var ErrNoType = errors.New("no type in client-go's scheme")

// DecodeAny decodes a record of which only the codec ID and the kind are known. It
// decodes a msgpack record to an *unstructured.Unstructured with the stored TypeMeta,
// which may be empty, and ignores gvk. For a protobuf record, client-go's scheme must
// have a type for gvk, else the error wraps [ErrNoType]. Like Decode, DecodeAny never
// panics.
func DecodeAny(id byte, gvk schema.GroupVersionKind, data []byte) (runtime.Object, error) {
	switch id {
	case IDMsgpack:
		return unstructuredCodec{}.Decode(data)
	case IDProtobuf:
		obj, err := scheme.Scheme.New(gvk)
		if err != nil {
			return nil, fmt.Errorf("codec: protobuf record of %s: %w", gvk, ErrNoType)
		}
		t, err := structType(obj)
		if err != nil {
			return nil, err
		}
		if !hasProtobuf(t) {
			return nil, fmt.Errorf("codec: protobuf record of %s: %s is not written as protobuf", gvk, t)
		}
		return protobufCodec{typ: t, typeMeta: typeMetaField(t), plan: protoplan.For(t)}.Decode(data)
	}
	return nil, fmt.Errorf("codec: unknown codec id %d", id)
}

// structType returns the struct type that example points to.
func structType(example runtime.Object) (reflect.Type, error) {
	t := reflect.TypeOf(example)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("codec: type %v is not a pointer to a struct", t)
	}
	return t.Elem(), nil
}

// checkObject returns the value of obj, which must be a pointer to t.
func checkObject(obj runtime.Object, t reflect.Type) (reflect.Value, error) {
	v := reflect.ValueOf(obj)
	if !v.IsValid() || v.Type() != reflect.PointerTo(t) {
		return v, fmt.Errorf("codec: encode %T with the codec of *%s", obj, t)
	}
	if v.IsNil() {
		return v, fmt.Errorf("codec: encode nil *%s", t)
	}
	return v.Elem(), nil
}

// recoverTo turns a panic into an error. It omits the panic value, which may contain
// content.
func recoverTo(err *error, doing string, t reflect.Type) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("codec: %s %s: panic of type %T", doing, t, p)
	}
}
