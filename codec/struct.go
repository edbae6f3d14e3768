package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// structPlan encodes a struct as a map with the keys of encoding/json.
type structPlan struct {
	fields  []*field
	byName  map[string]*field
	dropped []*field // fields without a JSON form
}

// field is a field of a struct, or of a struct embedded in it.
type field struct {
	name      string
	index     []int
	typ       reflect.Type
	quoted    bool // has the option string
	tagged    bool // name is from the tag
	viaPtr    bool // inside an embedded pointer
	omitEmpty bool // has the option omitempty
	omitZero  bool // has the option omitzero
	plan      plan
}

func (p *structPlan) encode(w *writer, v reflect.Value) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	for _, f := range p.dropped {
		if fv, ok := f.in(v); ok && !fv.IsZero() {
			return fmt.Errorf("%s: field %s is set but has no JSON form", v.Type(), f.name)
		}
	}
	// The header has the width for all fields, because the number of fields that are
	// present is known only at the end.
	head := w.buf.Len()
	small := len(p.fields) <= int(msgpcode.FixedMapMask)
	if small {
		w.buf.WriteByte(msgpcode.FixedMapLow)
	} else {
		w.buf.Write([]byte{msgpcode.Map16, 0, 0})
	}
	present := 0
	for _, f := range p.fields {
		fv, ok := f.in(v)
		if !ok || f.omits(fv) {
			continue
		}
		present++
		if err := w.EncodeString(f.name); err != nil {
			return err
		}
		if err := f.encode(w, fv); err != nil {
			return err
		}
	}
	if b := w.buf.Bytes()[head:]; small {
		b[0] |= byte(present)
	} else {
		b[1], b[2] = byte(present>>8), byte(present)
	}
	return nil
}

func (p *structPlan) decode(r *reader, v reflect.Value) error {
	n, err := r.mapLen()
	if err != nil || n < 0 {
		return errMalformed
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	for range n {
		name, err := r.bytes()
		if err != nil {
			return err
		}
		if f := p.byName[string(name)]; f != nil {
			err = f.decode(r, f.make(v))
		} else if !r.marker(extEmpty, "") {
			// An unknown field of another version of the type is skipped, as in protobuf.
			_, err = r.value()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// in returns the field of v; false if it is inside an embedded nil pointer.
func (f *field) in(v reflect.Value) (reflect.Value, bool) {
	for _, i := range f.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v, true
}

// make is like in but allocates embedded nil pointers.
func (f *field) make(v reflect.Value) reflect.Value {
	for _, i := range f.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// omits reports whether v is left out. Only a zero value is left out, because that is the
// value after decoding. Values that JSON would also omit (because of an IsZero method, or
// an empty slice) are written. JSON never treats a struct as empty. Inside an embedded
// pointer no field is left out, so that decoding allocates the pointer.
func (f *field) omits(v reflect.Value) bool {
	if f.viaPtr || !v.IsZero() {
		return false
	}
	return f.omitZero || (f.omitEmpty && v.Kind() != reflect.Struct && v.Kind() != reflect.Array)
}

func (f *field) encode(w *writer, v reflect.Value) error {
	if f.omitEmpty && hasLen(v) && !v.IsNil() && v.Len() == 0 {
		return w.ext(extEmpty)
	}
	return f.plan.encode(w, v)
}

func (f *field) decode(r *reader, v reflect.Value) error {
	if !f.omitEmpty || !hasLen(v) || !r.marker(extEmpty, "") {
		return f.plan.decode(r, v)
	}
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMap(v.Type()))
	} else {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	return nil
}

func hasLen(v reflect.Value) bool { return v.Kind() == reflect.Slice || v.Kind() == reflect.Map }

// fields adds the fields of t to p. If several fields have the same name, the rules of
// encoding/json decide.
func (b planner) fields(p *structPlan, t reflect.Type) {
	var all []*field
	p.collect(&all, t, nil, false, []reflect.Type{t})
	p.byName = make(map[string]*field, len(all))
	for _, f := range all {
		if !dominant(f, all) {
			p.dropped = append(p.dropped, f)
			continue
		}
		if f.plan = b.plan(f.typ); f.quoted {
			f.plan = quote(f.plan)
		}
		p.fields = append(p.fields, f)
		p.byName[f.name] = f
	}
}

// collect appends the fields of t, which is embedded at index, and the fields that t
// embeds. An embedded field with a form of its own is one field.
func (p *structPlan) collect(all *[]*field, t reflect.Type, index []int, viaPtr bool, path []reflect.Type) {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		f := &field{name: name, index: append(slices.Clip(index), i), typ: sf.Type, tagged: name != "", viaPtr: viaPtr}
		embedded, isPtr := sf.Type, false
		if sf.Anonymous && embedded.Kind() == reflect.Pointer {
			embedded, isPtr = embedded.Elem(), true
		}
		inline := sf.Anonymous && name == "" && embedded.Kind() == reflect.Struct && ownForm(embedded) == nil
		if tag == "-" || (!sf.IsExported() && (!inline || isPtr)) || inline && slices.Contains(path, embedded) {
			f.name = sf.Name
			p.dropped = append(p.dropped, f)
			continue
		}
		if inline {
			p.collect(all, embedded, f.index, viaPtr || isPtr, append(path, embedded))
			continue
		}
		if name == "" {
			f.name = sf.Name
		}
		for o := range strings.SplitSeq(options, ",") {
			f.omitEmpty = f.omitEmpty || o == "omitempty"
			f.omitZero = f.omitZero || o == "omitzero"
			f.quoted = f.quoted || o == "string"
		}
		*all = append(*all, f)
	}
}

// dominant reports whether f is the field that its name refers to: the least nested
// field, and among several of these the one with a tag. If several fields remain, none of
// them is dominant.
func dominant(f *field, all []*field) bool {
	for _, o := range all {
		if o == f || o.name != f.name || len(o.index) > len(f.index) {
			continue
		}
		if len(o.index) < len(f.index) || o.tagged || !f.tagged {
			return false
		}
	}
	return true
}

// quote returns the plan of a field with `json:",string"`, which applies to scalars and
// pointers to them.
func quote(p plan) plan {
	switch p := p.(type) {
	case boolPlan, intPlan, uintPlan, floatPlan, stringPlan:
		return quotedPlan{}
	case *pointerPlan:
		return &pointerPlan{elem: quote(p.elem)}
	}
	return p
}
