package codec

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// plan encodes and decodes the values of one Go type. Values are addressable; decode gets
// a zero value. A plan is immutable after it was built. It refers to the plans of the
// nested types and is cyclic if the type is recursive.
type plan interface {
	encode(w *writer, v reflect.Value) error
	decode(r *reader, v reflect.Value) error
}

var (
	anyType           = reflect.TypeFor[any]()
	marshalerType     = reflect.TypeFor[json.Marshaler]()
	unmarshalerType   = reflect.TypeFor[json.Unmarshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshalType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// planner builds the plans of a type and all nested types. It registers each plan before
// it builds the plans of its elements, so that a type may be recursive.
type planner map[reflect.Type]plan

func (b planner) plan(t reflect.Type) (plan, error) {
	if p := b[t]; p != nil {
		return p, nil
	}
	switch own, err := ownForm(t); {
	case err != nil:
		return nil, err
	case own != nil:
		b[t] = own
		return own, nil
	}
	if p := scalar(t); p != nil {
		return p, nil
	}
	switch t.Kind() {
	case reflect.Interface:
		if t == anyType {
			return anyPlan{}, nil
		}
	case reflect.Pointer:
		p := &pointerPlan{}
		b[t] = p
		return p, b.elem(&p.elem, t)
	case reflect.Slice:
		p := &slicePlan{}
		b[t] = p
		return p, b.elem(&p.elem, t)
	case reflect.Array:
		p := &arrayPlan{}
		b[t] = p
		return p, b.elem(&p.elem, t)
	case reflect.Map:
		p := &mapPlan{key: scalar(t.Key())}
		b[t] = p
		switch p.key.(type) {
		case stringPlan, intPlan, uintPlan:
			return p, b.elem(&p.elem, t)
		}
	case reflect.Struct:
		p := &structPlan{}
		b[t] = p
		return p, b.fields(p, t)
	}
	return nil, fmt.Errorf("type %s cannot be encoded", t)
}

func (b planner) elem(p *plan, t reflect.Type) (err error) {
	*p, err = b.plan(t.Elem())
	return err
}

// scalar returns the plan of a type without elements; nil for other types.
func scalar(t reflect.Type) plan {
	switch t.Kind() {
	case reflect.Bool:
		return boolPlan{}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intPlan{}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return uintPlan{}
	case reflect.Float32, reflect.Float64:
		return floatPlan{}
	case reflect.String:
		return stringPlan{}
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Uint8 && !implements(e, marshalerType) && !implements(e, textMarshalerType) {
			return bytesPlan{}
		}
	}
	return nil
}

// ownForm returns the plan of a type that marshals itself; nil for other types.
func ownForm(t reflect.Type) (plan, error) {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return nil, nil
	}
	for _, form := range []struct {
		marshal, unmarshal reflect.Type
		plan               plan
	}{
		{marshalerType, unmarshalerType, jsonPlan{}},
		{textMarshalerType, textUnmarshalType, textPlan{}},
	} {
		if !implements(t, form.marshal) {
			continue
		}
		if !implements(t, form.unmarshal) {
			return nil, fmt.Errorf("type %s is a %s but not a %s", t, form.marshal, form.unmarshal)
		}
		if promotes(t, form.marshal) {
			return nil, fmt.Errorf("type %s embeds a %s, whose form would leave out the other fields", t, form.marshal)
		}
		return form.plan, nil
	}
	return nil, nil
}

func implements(t, iface reflect.Type) bool {
	return t.Implements(iface) || reflect.PointerTo(t).Implements(iface)
}

// promotes reports whether t may have its methods of iface only from an embedded field,
// beside other fields. It cannot tell whether a type that embeds such a field also has
// methods of its own.
func promotes(t, iface reflect.Type) bool {
	if t.Kind() != reflect.Struct || t.NumField() < 2 {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && implements(f.Type, iface) {
			return true
		}
	}
	return false
}
