package codec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"reflect"
)

// fingerprint hashes the parts of t that can be stored. Unexported fields are left out,
// because a new Go release may change those of its own types, and they are stored only in
// the form that their type defines itself.
func fingerprint(t reflect.Type) string {
	h := typeHash{Hash: sha256.New(), seen: map[reflect.Type]int{}}
	h.add(t)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

type typeHash struct {
	hash.Hash
	// seen contains the types in the order of their first occurrence. A later occurrence
	// is hashed as a number.
	seen map[reflect.Type]int
}

func (h typeHash) add(t reflect.Type) {
	if n, ok := h.seen[t]; ok {
		h.put("seen %d\n", n)
		return
	}
	h.seen[t] = len(h.seen)
	h.put("type %q %q %s", t.PkgPath(), t.Name(), t.Kind())
	if t.Kind() != reflect.Interface {
		json, text := implements(t, marshalerType), implements(t, textMarshalerType)
		h.put(" json %t text %t", json, text)
		// ownForm takes a type that does only one of the two by its fields.
		if json != implements(t, unmarshalerType) {
			h.put(" half json")
		}
		if text != implements(t, textUnmarshalType) {
			h.put(" half text")
		}
	}
	h.put("\n")
	switch t.Kind() {
	case reflect.Array:
		h.put("%d\n", t.Len())
		h.add(t.Elem())
	case reflect.Pointer, reflect.Slice:
		h.add(t.Elem())
	case reflect.Map:
		h.add(t.Key())
		h.add(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			h.put("field %q %t %q %q\n", f.Name, f.Anonymous, f.Tag.Get("json"), f.Tag.Get("protobuf"))
			h.add(f.Type)
		}
		h.put("end\n")
	}
}

// put ignores the error: a hash never returns one.
func (h typeHash) put(format string, args ...any) { _, _ = fmt.Fprintf(h, format, args...) }
