// Package codec turns Kubernetes objects into bytes and back, exactly.
//
// Types with generated protobuf are written as protobuf, which is what the API server itself stores. All other types
// (structs of custom resources, [unstructured.Unstructured]) and the few with a TypeMeta below the outermost, which
// protobuf leaves out (a StatefulSet's volumeClaimTemplates), are written as msgpack with the field names of their
// JSON form, so that [DecodeAny] reads a record without its Go type.
//
// # Usage
//
// [For] picks the codec of a type once; the codec then encodes and decodes any number of objects of that type. A tool
// that has no Go types uses [ForKind] or [DecodeAny].
//
// # Exactness
//
// TypeMeta comes back as it was: empty stays empty, set stays set. Beyond that:
//
//   - msgpack keeps the difference between nil and empty slices and maps, between a nil pointer and a pointer to a
//     zero value, and between int64 and float64.
//   - protobuf keeps what the API server's own encoding keeps: an empty slice or map comes back nil.
//   - A type with its own JSON or text form (a quantity, a time, a raw extension, anything that implements
//     [encoding/json.Marshaler] or [encoding.TextMarshaler]) is as exact as that form. Thus a metav1.Time has
//     seconds, a time comes back in the location that its UnmarshalJSON chooses, and the Object of a
//     runtime.RawExtension comes back as Raw (msgpack) or not at all (protobuf). No API server delivers it.
//   - A field that has no JSON form (unexported, or tagged "-") must be zero, else Encode returns an error in
//     msgpack. Interface fields are limited to the values of unstructured objects.
//
// # Concurrency
//
// A [Codec] is safe for concurrent use and never blocks. While Encode runs nobody else may use the object: the
// generated protobuf of resource.Quantity fills a cache inside the quantity it writes.
//
// # Corruption
//
// Decoding checks every length, limits the nesting and turns panics of third-party code into errors. Errors name Go
// types and never hold the content of an object.
package codec

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// The codec ids that [Codec.ID] returns. They are part of the file format.
const (
	IDProtobuf byte = 1
	IDMsgpack  byte = 2
)

// Codec encodes and decodes the objects of one Go type. It is safe for concurrent use and never blocks.
type Codec interface {
	// ID is the number by which a record names its codec: IDProtobuf or IDMsgpack.
	ID() byte

	// Name is the codec's name for people: "protobuf" or "msgpack".
	Name() string

	// Encode returns the bytes of obj. Identical objects give identical bytes. The caller owns the result. It is an
	// error if obj is nil, has another type than the codec's, or holds something that has no form in this codec.
	// Nobody else may use obj meanwhile.
	Encode(obj runtime.Object) ([]byte, error)

	// Decode returns a new object of the codec's type, which shares no memory with data. It never panics: every
	// error means that data was not written by Encode of this codec and type. Fields that the type does not have are
	// skipped.
	Decode(data []byte) (runtime.Object, error)

	// Fingerprint is a hash of the codec's Go type: the names, types and tags of all fields that can be stored,
	// recursively. If it differs from that of a stored record then the type may now have fields that were dropped
	// when the record was written.
	Fingerprint() string
}

// For returns the codec for objects of the type of example, whose content does not matter and which is not kept:
// protobuf if the type has generated protobuf, else msgpack. Two sorts of types are written as msgpack even if they
// have protobuf: one that reaches itself, because generated code has no limit to its nesting, and one that nests a
// TypeMeta, which generated code leaves out. The error names what cannot be encoded.
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
	return newMsgpack(t)
}

// ForKind returns the codec for a kind of which only the name is known: that of the type which client-go's scheme has
// for it, else that of unstructured objects.
func ForKind(gvk schema.GroupVersionKind) Codec {
	if obj, err := scheme.Scheme.New(gvk); err == nil {
		if c, err := For(obj); err == nil {
			return c
		}
	}
	return unstructuredCodec{}
}

// DecodeAny returns the object of a record of which only the codec id and the kind are known. A msgpack record comes
// back as *unstructured.Unstructured with the TypeMeta that was stored, which may be none: gvk does not matter. A
// protobuf record needs a type in client-go's scheme for gvk. Like Decode it never panics.
func DecodeAny(id byte, gvk schema.GroupVersionKind, data []byte) (runtime.Object, error) {
	switch id {
	case IDMsgpack:
		return unstructuredCodec{}.Decode(data)
	case IDProtobuf:
		obj, err := scheme.Scheme.New(gvk)
		if err != nil {
			return nil, fmt.Errorf("codec: protobuf record of %s: no type in client-go's scheme", gvk)
		}
		t, err := structType(obj)
		if err != nil {
			return nil, err
		}
		if !hasProtobuf(t) {
			return nil, fmt.Errorf("codec: protobuf record of %s: %s is not written as protobuf", gvk, t)
		}
		return protobufCodec{typ: t, typeMeta: typeMetaField(t)}.Decode(data)
	}
	return nil, fmt.Errorf("codec: unknown codec id %d", id)
}

// structType returns the struct that example points to.
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

// recoverTo turns a panic into an error. The panic's value is left out since it may hold content.
func recoverTo(err *error, doing string, t reflect.Type) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("codec: %s %s: panic of type %T", doing, t, p)
	}
}
