package codec

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"k8s.io/apimachinery/pkg/api/equality"
)

type (
	boolPlan   struct{}
	intPlan    struct{}
	uintPlan   struct{}
	floatPlan  struct{}
	stringPlan struct{}
	bytesPlan  struct{}
	// anyPlan is the plan of interface{}, with the values of unstructured objects.
	anyPlan struct{}
	// jsonPlan is the plan of types that implement json.Marshaler.
	jsonPlan struct{}
	// textPlan is the plan of types that implement encoding.TextMarshaler but not
	// json.Marshaler.
	textPlan struct{}
	// ownPlan is the plan of a type with its own form, which may not contain all of a
	// value: it may hide a part, or not be what the type unmarshals.
	ownPlan struct{ own, fields plan }
	// zeroPlan is the plan of types that only have a zero value to store, as channels.
	zeroPlan struct{}
	// quotedPlan is the plan of scalars with `json:",string"`.
	quotedPlan struct{}
)

func (boolPlan) encode(w *writer, v reflect.Value) error { return w.EncodeBool(v.Bool()) }

func (boolPlan) decode(r *reader, v reflect.Value) error {
	if c, err := r.PeekCode(); err != nil || (c != msgpcode.True && c != msgpcode.False) {
		return errMalformed
	}
	b, err := r.DecodeBool()
	v.SetBool(b)
	return err
}

func (intPlan) encode(w *writer, v reflect.Value) error { return w.EncodeInt(v.Int()) }

func (intPlan) decode(r *reader, v reflect.Value) error {
	i, err := r.int()
	if err != nil || v.OverflowInt(i) {
		return errMalformed
	}
	v.SetInt(i)
	return nil
}

func (uintPlan) encode(w *writer, v reflect.Value) error { return w.EncodeUint(v.Uint()) }

func (uintPlan) decode(r *reader, v reflect.Value) error {
	u, err := r.uint()
	if err != nil || v.OverflowUint(u) {
		return errMalformed
	}
	v.SetUint(u)
	return nil
}

func (floatPlan) encode(w *writer, v reflect.Value) error { return w.EncodeFloat64(v.Float()) }

func (floatPlan) decode(r *reader, v reflect.Value) error {
	if c, err := r.PeekCode(); err != nil || c != msgpcode.Double {
		return errMalformed
	}
	f, err := r.DecodeFloat64()
	v.SetFloat(f)
	return err
}

func (stringPlan) encode(w *writer, v reflect.Value) error { return w.EncodeString(v.String()) }

func (stringPlan) decode(r *reader, v reflect.Value) error {
	s, err := r.string()
	v.SetString(s)
	return err
}

func (bytesPlan) encode(w *writer, v reflect.Value) error { return w.EncodeBytes(v.Bytes()) }

func (bytesPlan) decode(r *reader, v reflect.Value) error {
	if r.null() {
		return nil
	}
	b, err := r.bytes()
	v.SetBytes(append([]byte{}, b...))
	return err
}

func (anyPlan) encode(w *writer, v reflect.Value) error { return w.value(v.Interface()) }

func (anyPlan) decode(r *reader, v reflect.Value) error {
	x, err := r.value()
	if x != nil {
		v.Set(reflect.ValueOf(x))
	}
	return err
}

func (jsonPlan) encode(w *writer, v reflect.Value) error {
	if nilable(v) && v.IsNil() {
		return w.EncodeNil()
	}
	text, err := v.Addr().Interface().(json.Marshaler).MarshalJSON()
	if err != nil {
		return fmt.Errorf("%s has no JSON form", v.Type())
	}
	return w.json(text)
}

func (jsonPlan) decode(r *reader, v reflect.Value) error {
	if nilable(v) && r.null() {
		return nil
	}
	text, err := r.json()
	if err != nil {
		return err
	}
	if err := v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text); err != nil {
		return fmt.Errorf("malformed JSON form of %s", v.Type())
	}
	return nil
}

func (textPlan) encode(w *writer, v reflect.Value) error {
	if nilable(v) && v.IsNil() {
		return w.EncodeNil()
	}
	text, err := v.Addr().Interface().(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return fmt.Errorf("%s has no text form", v.Type())
	}
	return w.EncodeString(string(text))
}

func (textPlan) decode(r *reader, v reflect.Value) error {
	if nilable(v) && r.null() {
		return nil
	}
	text, err := r.string()
	if err != nil {
		return err
	}
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("malformed text form of %s", v.Type())
	}
	return nil
}

func (p *ownPlan) encode(w *writer, v reflect.Value) error {
	again := reflect.New(v.Type()).Elem()
	text, err := write(func(w *writer) error { return p.own.encode(w, v) })
	if err == nil {
		err = read(text, func(r *reader) error { return p.own.decode(r, again) })
	}
	if err == nil && isSame(v, again) {
		_, err = w.buf.Write(text)
		return err
	}
	if err := w.ext(extFields); err != nil {
		return err
	}
	return p.fields.encode(w, v)
}

func (p *ownPlan) decode(r *reader, v reflect.Value) error {
	if r.marker(extFields, "") {
		return p.fields.decode(r, v)
	}
	return p.own.decode(r, v)
}

// isSame reports whether two values are equal, as times in other locations are.
func isSame(x, y reflect.Value) (same bool) {
	defer func() { _ = recover() }() // of an unexported field
	if equal := x.MethodByName("Equal"); equal.IsValid() {
		if t := equal.Type(); t.NumIn() == 1 && t.In(0) == x.Type() && t.NumOut() == 1 && t.Out(0).Kind() == reflect.Bool {
			return equal.Call([]reflect.Value{y})[0].Bool()
		}
	}
	return reflect.DeepEqual(x.Interface(), y.Interface()) || equality.Semantic.DeepEqual(x.Interface(), y.Interface())
}

func (zeroPlan) encode(w *writer, v reflect.Value) error {
	if !v.IsZero() {
		return fmt.Errorf("value of type %s", v.Type())
	}
	return w.EncodeNil()
}

func (zeroPlan) decode(r *reader, _ reflect.Value) error {
	if !r.null() {
		return errMalformed
	}
	return nil
}

func (quotedPlan) encode(w *writer, v reflect.Value) error {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Errorf("%s has no JSON form", v.Type())
	}
	return w.EncodeString(string(text))
}

func (quotedPlan) decode(r *reader, v reflect.Value) error {
	text, err := r.bytes()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v.Addr().Interface()); err != nil {
		return fmt.Errorf("malformed JSON form of %s", v.Type())
	}
	return nil
}

func nilable(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Map:
		return true
	}
	return false
}
