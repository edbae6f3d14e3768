package postgres

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/postgres/internal/raw"
)

// decoder makes objects of one Go type from published bytes.
type decoder struct {
	kind  schema.GroupVersionKind
	new   func() runtime.Object
	codec codec.FromServer // of messages; nil if the kind has no protobuf
}

func newDecoder(example runtime.Object, kind schema.GroupVersionKind) (*decoder, error) {
	t := reflect.TypeOf(example)
	if t == nil || t.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("follow %s: the example is a %T, not a pointer to an object", kind.Kind, example)
	}
	d := &decoder{kind: kind, new: func() runtime.Object { return reflect.New(t.Elem()).Interface().(runtime.Object) }} //nolint:forcetypeassert // as the example
	var c codec.Codec
	var err error
	switch example.(type) {
	case *metav1.PartialObjectMetadata:
		return d, nil
	case *unstructured.Unstructured:
		c = codec.ForKind(kind)
	default:
		if c, err = codec.For(example); err != nil {
			return nil, fmt.Errorf("follow %s: %w", kind.Kind, err)
		}
	}
	d.codec, _ = c.(codec.FromServer)
	return d, nil
}

// empty returns an object without content, for a bookmark.
func (d *decoder) empty() runtime.Object {
	obj := d.new()
	d.name(obj)
	return obj
}

// name sets the kind as client-go's clients do: not of typed objects.
func (d *decoder) name(obj runtime.Object) {
	gvk := schema.GroupVersionKind{}
	switch obj.(type) {
	case *unstructured.Unstructured:
		gvk = d.kind
	case *metav1.PartialObjectMetadata:
		gvk = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
}

// decode returns the object of compressed bytes.
func (d *decoder) decode(form raw.Form, compressed []byte) (runtime.Object, error) {
	data, err := decompressor().DecodeAll(compressed, nil)
	if err != nil {
		return nil, fmt.Errorf("decompress a published %s: %w", d.kind.Kind, err)
	}
	obj, err := d.object(form, data)
	if err != nil {
		return nil, fmt.Errorf("decode a published %s: %w", d.kind.Kind, err)
	}
	d.name(obj)
	return obj, nil
}

func (d *decoder) object(form raw.Form, data []byte) (runtime.Object, error) {
	switch obj := d.new().(type) {
	case *metav1.PartialObjectMetadata:
		return obj, raw.Unmarshal(form, data, obj)
	case *unstructured.Unstructured:
		if form == raw.Protobuf {
			// As JSON it is what the server would have sent.
			typed, err := d.message(data)
			if err != nil {
				return nil, err
			}
			typed.GetObjectKind().SetGroupVersionKind(d.kind)
			if data, err = json.Marshal(typed); err != nil {
				return nil, err
			}
		}
		return obj, obj.UnmarshalJSON(data)
	default:
		if form == raw.Protobuf {
			return d.message(data)
		}
		return obj, kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
	}
}

func (d *decoder) message(data []byte) (runtime.Object, error) {
	if d.codec == nil {
		return nil, fmt.Errorf("it is published as protobuf, which this program does not know of %s", d.kind)
	}
	return d.codec.DecodeMessage(data, true)
}
