package codec

import (
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ForFields returns a codec for a kind that decodes only TypeMeta and the named top-level
// fields of each object. The names are those in JSON ("metadata", "spec"). The other
// fields are left empty, and unknown names are ignored. The codec cannot encode.
// ForFields returns nil if objects of the kind are not encoded as protobuf, or if
// client-go's scheme has no type for the kind.
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

// onlyFields contains the protobuf numbers of the fields to decode.
type onlyFields map[protowire.Number]bool

// fieldNumber parses a tag such as "bytes,2,opt,name=spec".
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

// of returns data with only these fields. It keeps a malformed rest unchanged, for which
// decoding then returns an error.
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
