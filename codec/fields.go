package codec

import (
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ForFields returns a codec for a kind that decodes of each object only the fields that are named, as JSON has them at
// the top ("metadata", "spec"), with TypeMeta; others are left empty, and a name that no field has is ignored. The codec
// does not encode. It is nil where objects of the kind are not written as protobuf, or client-go's scheme has no type
// for it.
func ForFields(gvk schema.GroupVersionKind, names ...string) Codec {
	c, ok := ForKind(gvk).(protobufCodec)
	if !ok {
		return nil
	}
	only := onlyFields{}
	for i := range c.typ.NumField() {
		f := c.typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if slices.Contains(names, name) {
			only[fieldNumber(f)] = true
		}
	}
	c.only = &only
	return c
}

// onlyFields are the numbers of fields in a message.
type onlyFields map[protowire.Number]bool

// fieldNumber reads a tag such as "bytes,2,opt,name=spec".
func fieldNumber(f reflect.StructField) (n protowire.Number) {
	_, rest, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
	for _, digit := range rest {
		if digit < '0' || digit > '9' {
			break
		}
		n = 10*n + protowire.Number(digit-'0')
	}
	return n
}

// of returns a message with these fields of another. What cannot be read is left to who decodes it.
func (o onlyFields) of(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		number, _, size := protowire.ConsumeField(data)
		if size < 0 {
			return append(out, data...)
		}
		if o[number] {
			out = append(out, data[:size]...)
		}
		data = data[size:]
	}
	return out
}
