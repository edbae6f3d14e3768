package codec

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
)

// maxPrealloc limits the elements that are allocated for a declared length before they
// are read.
const maxPrealloc = 256

type (
	pointerPlan struct{ elem plan }
	slicePlan   struct{ elem plan }
	arrayPlan   struct{ elem plan }
	mapPlan     struct{ key, elem plan }
)

func (p *pointerPlan) encode(w *writer, v reflect.Value) error {
	if v.IsNil() {
		return w.EncodeNil()
	}
	if e := v.Elem(); nilable(e) && e.IsNil() {
		return w.ext(extNil, nilPointee)
	}
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	return p.elem.encode(w, v.Elem())
}

func (p *pointerPlan) decode(r *reader, v reflect.Value) error {
	if r.null() {
		return nil
	}
	v.Set(reflect.New(v.Type().Elem()))
	if nilable(v.Elem()) && r.marker(extNil, string(nilPointee)) {
		return nil
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	return p.elem.decode(r, v.Elem())
}

func (p *slicePlan) encode(w *writer, v reflect.Value) error {
	if v.IsNil() {
		return w.EncodeNil()
	}
	return encodeElems(w, v, p.elem)
}

func (p *slicePlan) decode(r *reader, v reflect.Value) error {
	if r.null() {
		return nil
	}
	n, err := r.arrayLen()
	if err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, min(n, maxPrealloc)))
	return decodeElems(r, v, p.elem, n)
}

func (p *arrayPlan) encode(w *writer, v reflect.Value) error { return encodeElems(w, v, p.elem) }

func (p *arrayPlan) decode(r *reader, v reflect.Value) error {
	n, err := r.arrayLen()
	if err != nil || n != v.Len() {
		return errMalformed
	}
	return decodeElems(r, v, p.elem, n)
}

func encodeElems(w *writer, v reflect.Value, elem plan) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	if err := w.EncodeArrayLen(v.Len()); err != nil {
		return err
	}
	for i := range v.Len() {
		if err := elem.encode(w, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func decodeElems(r *reader, v reflect.Value, elem plan, n int) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	for i := range n {
		if v.Kind() == reflect.Slice {
			if i == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(i + 1)
		}
		if err := elem.decode(r, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// mapKey is a map key with its JSON form.
type mapKey struct {
	name string
	key  reflect.Value
}

func (p *mapPlan) encode(w *writer, v reflect.Value) error {
	if v.IsNil() {
		return w.EncodeNil()
	}
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	keys := make([]mapKey, 0, v.Len())
	for _, k := range v.MapKeys() {
		name := k.String()
		if k.Kind() != reflect.String {
			text, err := json.Marshal(k.Interface())
			if err != nil {
				return err
			}
			name = string(text)
		}
		keys = append(keys, mapKey{name, k})
	}
	slices.SortFunc(keys, func(a, b mapKey) int { return cmp.Compare(a.name, b.name) })
	if err := w.EncodeMapLen(len(keys)); err != nil {
		return err
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	for _, k := range keys {
		if err := w.EncodeString(k.name); err != nil {
			return err
		}
		elem.Set(v.MapIndex(k.key))
		if err := p.elem.encode(w, elem); err != nil {
			return err
		}
	}
	return nil
}

func (p *mapPlan) decode(r *reader, v reflect.Value) error {
	if r.null() {
		return nil
	}
	n, err := r.mapLen()
	if err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	v.Set(reflect.MakeMapWithSize(v.Type(), min(n, maxPrealloc)))
	key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	for range n {
		name, err := r.bytes()
		if err != nil {
			return err
		}
		if key.Kind() == reflect.String {
			key.SetString(string(name))
		} else if err := json.Unmarshal(name, key.Addr().Interface()); err != nil {
			return errMalformed
		}
		elem.SetZero()
		if err := p.elem.decode(r, elem); err != nil {
			return err
		}
		v.SetMapIndex(key, elem)
	}
	return nil
}
