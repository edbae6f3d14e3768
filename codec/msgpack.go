package codec

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// msgpackCodec encodes structs of one type with a plan that is built once.
type msgpackCodec struct {
	typ         reflect.Type
	plan        plan
	fingerprint string
}

func newMsgpack(t reflect.Type) Codec {
	return msgpackCodec{typ: t, plan: planner{}.plan(t), fingerprint: fingerprint(t)}
}

func (c msgpackCodec) ID() byte            { return IDMsgpack }
func (c msgpackCodec) Name() string        { return "msgpack" }
func (c msgpackCodec) Fingerprint() string { return c.fingerprint }

func (c msgpackCodec) Encode(obj runtime.Object) (data []byte, err error) {
	v, err := checkObject(obj, c.typ)
	if err != nil {
		return nil, err
	}
	defer recoverTo(&err, "encode", c.typ)
	data, err = write(func(w *writer) error { return c.plan.encode(w, v) })
	if err != nil {
		return nil, fmt.Errorf("codec: encode %s: %w", c.typ, err)
	}
	return data, nil
}

func (c msgpackCodec) Decode(data []byte) (obj runtime.Object, err error) {
	defer recoverTo(&err, "decode", c.typ)
	v := reflect.New(c.typ)
	if err := read(data, func(r *reader) error { return c.plan.decode(r, v.Elem()) }); err != nil {
		return nil, fmt.Errorf("codec: decode %s: %w", c.typ, err)
	}
	return v.Interface().(runtime.Object), nil
}
