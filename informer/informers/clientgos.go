package informers

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// clientGos is what an informer of client-go has been made with.
type clientGos struct {
	lw      cache.ListerWatcher
	example runtime.Object
}

// contentOf returns what an informer of client-go has been made with. It reads fields
// that client-go does not export, and finds them by their types. The clientset has the
// same in methods, but to call those by their names has the linker keep every method of
// the program: that doubles its size. ok is false if a newer client-go has no such field.
func contentOf(inf cache.SharedIndexInformer) (c clientGos, ok bool) {
	for read(inf, &inf) {
		continue // one of a type wraps another one
	}
	ok = read(inf, &c.lw) && read(inf, &c.example)
	return c, ok
}

// read sets out to the first field of its type that is not nil.
func read[T any](inf cache.SharedIndexInformer, out *T) bool {
	v := reflect.ValueOf(inf)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return false
	}
	for _, field := range v.Elem().Fields() {
		if field.Type() == reflect.TypeFor[T]() && !field.IsNil() {
			*out = *(*T)(field.Addr().UnsafePointer())
			return true
		}
	}
	return false
}
