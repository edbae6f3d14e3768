package protoplan

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errDiffers = errors.New("protoplan: the plan and generated code differ")

// verify compares the plan with generated code, for an object without and for one with
// all fields, and for its message with something wrong.
func (p *Plan) verify() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("protoplan: %s: panic of type %T", p.typ, r)
		}
	}()
	for _, all := range []bool{false, true} {
		v := reflect.New(p.typ)
		if all {
			(&filler{}).fill(v.Elem())
		}
		data, err := v.Interface().(Message).Marshal()
		if err != nil {
			return err
		}
		want := reflect.New(p.typ).Interface().(Message)
		if err := want.Unmarshal(data); err != nil {
			return err
		}
		got, ok := p.Decode(bytes.Clone(data), all)
		if !ok || !reflect.DeepEqual(got, want) || !p.IsCanonical(data) {
			return errDiffers
		}
		if p.IsCanonical(append(bytes.Clone(data), 0xfa, 0xff, 0x03, 0)) { // field 8191
			return errDiffers
		}
	}
	return nil
}

// filler sets fields to values that differ from each other.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		at.Time = time.Unix(int64(f.n), 0)
		return
	case *metav1.MicroTime:
		at.Time = time.UnixMicro(int64(f.n))
		return
	case *resource.Quantity:
		*at = *resource.NewQuantity(int64(f.n), resource.DecimalSI)
		return
	case *metav1.FieldsV1:
		at.SetRawString(fmt.Sprint("{}", f.n))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if sf := v.Type().Field(i); sf.IsExported() && sf.Tag.Get("protobuf") != "" {
				f.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("v", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(f.n % 128))
	case reflect.Uint8: // of a []byte
		v.SetUint(uint64(f.n % 256))
	}
}
