package codec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// unstructuredCodec encodes the content of *unstructured.Unstructured. It can also decode
// what the msgpack codec of a struct type has encoded.
type unstructuredCodec struct{}

func (unstructuredCodec) ID() byte            { return IDMsgpack }
func (unstructuredCodec) Name() string        { return "msgpack" }
func (unstructuredCodec) Fingerprint() string { return "unstructured" }

func (unstructuredCodec) Encode(obj runtime.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return nil, fmt.Errorf("codec: encode %T with the codec of *unstructured.Unstructured", obj)
	}
	data, err := write(func(w *writer) error {
		if u.Object == nil {
			return w.EncodeNil()
		}
		return w.value(u.Object)
	})
	if err != nil {
		return nil, fmt.Errorf("codec: encode unstructured: %w", err)
	}
	return data, nil
}

func (unstructuredCodec) Decode(data []byte) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	err := read(data, func(r *reader) error {
		x, err := r.value()
		if err != nil || x == nil {
			return err
		}
		m, ok := x.(map[string]any)
		if !ok {
			return errors.New("not an object")
		}
		u.Object = m
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("codec: decode unstructured: %w", err)
	}
	return u, nil
}

// value writes a value of an unstructured object.
func (w *writer) value(x any) error {
	switch x := x.(type) {
	case nil:
		return w.EncodeNil()
	case bool:
		return w.EncodeBool(x)
	case int64:
		return w.EncodeInt(x)
	case float64:
		return w.EncodeFloat64(x)
	case string:
		return w.EncodeString(x)
	case []any:
		return w.list(x)
	case map[string]any:
		return w.object(x)
	}
	return fmt.Errorf("value of Go type %T", x)
}

func (w *writer) list(x []any) error {
	if x == nil {
		return w.ext(extNil, nilSlice)
	}
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	if err := w.EncodeArrayLen(len(x)); err != nil {
		return err
	}
	for _, e := range x {
		if err := w.value(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) object(x map[string]any) error {
	if x == nil {
		return w.ext(extNil, nilMap)
	}
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	if err := w.EncodeMapLen(len(x)); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(x)) {
		if err := w.EncodeString(k); err != nil {
			return err
		}
		if err := w.value(x[k]); err != nil {
			return err
		}
	}
	return nil
}

// value reads any value in the form of unstructured objects, even if a struct was
// written.
func (r *reader) value() (any, error) {
	c, err := r.PeekCode()
	if err != nil {
		return nil, errMalformed
	}
	switch {
	case c == msgpcode.Nil:
		return nil, r.DecodeNil()
	case c == msgpcode.True || c == msgpcode.False:
		return r.DecodeBool()
	case c == msgpcode.Float || c == msgpcode.Double:
		return r.DecodeFloat64()
	case c == msgpcode.Uint64:
		u, err := r.DecodeUint64()
		if u > math.MaxInt64 { // as decoding the number from JSON does
			return float64(u), err
		}
		return int64(u), err
	case msgpcode.IsString(c):
		return r.string()
	case msgpcode.IsBin(c):
		b, err := r.bytes()
		return base64.StdEncoding.EncodeToString(b), err
	case msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32:
		return r.list()
	case msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32:
		return r.object()
	case msgpcode.IsExt(c):
		if r.marker(extFields, "") {
			return r.value()
		}
		return r.extValue()
	}
	return r.int()
}

func (r *reader) list() ([]any, error) {
	n, err := r.arrayLen()
	if err != nil {
		return nil, err
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	list := make([]any, 0, min(n, maxPrealloc))
	for range n {
		x, err := r.value()
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, nil
}

func (r *reader) object() (map[string]any, error) {
	n, err := r.mapLen()
	if err != nil {
		return nil, err
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	object := make(map[string]any, min(n, maxPrealloc))
	for range n {
		k, err := r.string()
		if err != nil {
			return nil, err
		}
		if r.marker(extEmpty, "") {
			continue
		}
		if object[k], err = r.value(); err != nil {
			return nil, err
		}
	}
	return object, nil
}

func (r *reader) extValue() (any, error) {
	id, content, err := r.ext()
	if err != nil {
		return nil, err
	}
	switch {
	case id == extJSON && len(content) == 0:
		return nil, nil
	case id == extJSON:
		var x any
		if err := json.Unmarshal(content, &x); err != nil {
			return nil, errors.New("malformed JSON text")
		}
		return x, nil
	case id == extNil && string(content) == string(nilMap):
		return map[string]any(nil), nil
	case id == extNil && string(content) == string(nilSlice):
		return []any(nil), nil
	case id == extNil && string(content) == string(nilPointee):
		return nil, nil
	}
	return nil, errMalformed
}
