package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// object is one stored object, which is decoded when somebody needs more than its bytes.
// The serializer of this package encodes it.
type object struct {
	metav1.TypeMeta
	of    *served
	entry store.Entry
	rv    string // the resource version of a deletion; "" for that of the object

	once   sync.Once
	result runtime.Object
	err    error
}

// errPanic is the error of what is done once for all watches, and has panicked for one.
var errPanic = errors.New("it has caused a panic for another request")

// DeepCopyObject implements runtime.Object. An object does not change.
func (o *object) DeepCopyObject() runtime.Object { return o }

// decoded returns the object with its apiVersion and kind. It must not be changed.
func (o *object) decoded() (runtime.Object, error) {
	o.once.Do(func() {
		// unless the calls return
		o.err = fmt.Errorf("object %q: %w", o.entry.Key, errPanic)
		decoded, err := o.of.Reader.Decode(o.entry)
		if err != nil {
			o.err = fmt.Errorf("object %q: %w", o.entry.Key, err)
			return
		}
		decoded = own(decoded, o.rv != "")
		if o.rv != "" {
			m, err := meta.Accessor(decoded)
			if err != nil {
				o.err = fmt.Errorf("object %q: %w", o.entry.Key, err)
				return
			}
			m.SetResourceVersion(o.rv)
		}
		if o.of.Scope.Form != store.Metadata {
			decoded.GetObjectKind().SetGroupVersionKind(o.of.Scope.Kind)
		}
		o.result, o.err = wire.WithKinds(decoded), nil
	})
	return o.result, o.err
}

// own returns a copy whose type and, with deep, metadata may be changed: what a store
// decodes may be shared.
func own(obj runtime.Object, deep bool) runtime.Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if deep {
			return u.DeepCopy()
		}
		return &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	}
	c := reflect.New(reflect.TypeOf(obj).Elem())
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	return c.Interface().(runtime.Object)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, which the handlers need for
// PartialObjectMetadata. Who returns an object for one has decoded it before.
func (o *object) GetObjectMeta() metav1.Object {
	decoded, err := o.decoded()
	if err == nil {
		if m, err := meta.Accessor(decoded); err == nil {
			return m
		}
	}
	return &metav1.ObjectMeta{}
}

// message returns the protobuf message of the object. It may be part of *buf, which it
// grows.
func (o *object) message(buf *[]byte) ([]byte, error) {
	if o.rv == "" {
		if m, _, err := o.of.message(buf, o.entry); err == nil || !errors.Is(err, errNoMessage) {
			return m, err
		}
	}
	decoded, err := o.decoded()
	if err != nil {
		return nil, err
	}
	// To encode an object may change it (see store.Store.Encode), and others have it,
	// too.
	return marshal(decoded.DeepCopyObject())
}

func marshal(obj runtime.Object) ([]byte, error) {
	m, ok := obj.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("a %T has no protobuf", obj)
	}
	return m.Marshal()
}

// errNoMessage says that an entry is not stored as protobuf.
var errNoMessage = errors.New("not stored as protobuf")

// message returns the protobuf message of an entry as it is stored, and how many bytes
// come before it in what is stored. It is part of *buf, which it grows.
func (s *served) message(buf *[]byte, e store.Entry) (message []byte, head int, err error) {
	if e.Raw == nil || s.payloads == nil {
		return nil, 0, errNoMessage
	}
	out, id, err := s.payloads.AppendPayload((*buf)[:0], e)
	if err != nil {
		return nil, 0, err
	}
	if *buf = out[:0]; id != codec.IDProtobuf {
		return nil, 0, errNoMessage
	}
	if head, err = typeMetaBytes(out); err != nil {
		return nil, 0, fmt.Errorf("object %q: %w", e.Key, err)
	}
	return out[head:], head, nil
}

// noTypeMeta is how many bytes the codec has before the message of an object that a
// server has sent.
const noTypeMeta = 2

// typeMetaBytes returns how many bytes the apiVersion and the kind take that the codec
// has before a message.
func typeMetaBytes(b []byte) (int, error) {
	at := 0
	for range 2 {
		n, used := binary.Uvarint(b[at:])
		if used <= 0 || n > uint64(len(b)-at-used) {
			return 0, errors.New("malformed type meta")
		}
		at += used + int(n)
	}
	return at, nil
}

// shared is an object for many watches: it is encoded once in each form.
type shared struct {
	*object
	mu      sync.Mutex // protects encoded
	encoded map[runtime.Identifier]*encoding
}

type encoding struct {
	sync.Once
	bytes []byte
	err   error
}

// GetObject implements runtime.CacheableObject.
func (o *shared) GetObject() runtime.Object { return o.object }

// CacheEncode implements runtime.CacheableObject.
func (o *shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	o.mu.Lock()
	e := o.encoded[id]
	if e == nil {
		if o.encoded == nil {
			o.encoded = map[runtime.Identifier]*encoding{}
		}
		e = &encoding{}
		o.encoded[id] = e
	}
	o.mu.Unlock()
	e.Do(func() {
		e.err = errPanic // unless the next call returns
		var b bytes.Buffer
		e.err = encode(o.object, &b)
		e.bytes = b.Bytes()
	})
	if e.err != nil {
		return e.err
	}
	_, err := w.Write(e.bytes)
	return err
}

// protobufPrefix is how protobuf of Kubernetes begins, and unknownTail how it ends: with
// an empty contentEncoding and contentType of a runtime.Unknown.
var (
	protobufPrefix = []byte("k8s\x00")
	unknownTail    = []byte{0x1a, 0x00, 0x22, 0x00}
)

// unknownHead returns a runtime.Unknown up to its raw message, which has n bytes.
func unknownHead(kind schema.GroupVersionKind, n int) []byte {
	apiVersion, name := kind.ToAPIVersionAndKind()
	var typeMeta []byte
	typeMeta = protowire.AppendTag(typeMeta, 1, protowire.BytesType)
	typeMeta = protowire.AppendString(typeMeta, apiVersion)
	typeMeta = protowire.AppendTag(typeMeta, 2, protowire.BytesType)
	typeMeta = protowire.AppendString(typeMeta, name)
	var b []byte
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendBytes(b, typeMeta)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(n))
}

// buffers are for one message each.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}

// maxPooled is the largest buffer that is used again, in bytes.
const maxPooled = 1 << 20

func release(buf *[]byte) {
	if cap(*buf) <= maxPooled {
		buffers.Put(buf)
	}
}
