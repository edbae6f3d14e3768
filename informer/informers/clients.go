package informers

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/informer/internal/generic"
)

// clients are the clients of the types of a clientset, by the type of their objects. They
// are found by what their methods List return: so there is no list of types here, which a
// newer client-go would no longer match.
type clients map[reflect.Type]client

// client is the client of one type.
type client struct {
	object reflect.Type
	// of returns the client of a namespace, as Clientset.CoreV1().Pods(namespace) does.
	of func(namespace string) reflect.Value
}

// clientsOf returns the clients of a clientset. It calls no method that sends a request.
func clientsOf(c kubernetes.Interface) clients {
	all := clients{}
	set := reflect.ValueOf(c)
	versions := reflect.TypeFor[kubernetes.Interface]() // of groups, as CoreV1
	for i := range versions.NumMethod() {
		version := versions.Method(i)
		if version.Type.NumIn() != 0 || version.Type.NumOut() != 1 || version.Type.Out(0).Kind() != reflect.Interface {
			continue
		}
		types := version.Type.Out(0)
		for j := range types.NumMethod() {
			of := types.Method(j) // as Pods
			object, ok := listedBy(of.Type)
			if !ok {
				continue
			}
			all[object] = client{object, func(namespace string) reflect.Value {
				var in []reflect.Value
				if of.Type.NumIn() == 1 {
					in = append(in, reflect.ValueOf(namespace))
				}
				return set.MethodByName(version.Name).Call(nil)[0].MethodByName(of.Name).Call(in)[0]
			}}
		}
	}
	return all
}

// watcher is what a client watches with. Each List returns a type of its own.
type watcher interface {
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// listedBy returns the type of the objects that a client lists. of is the type of the
// method that returns the client.
func listedBy(of reflect.Type) (object reflect.Type, ok bool) {
	if of.NumOut() != 1 || !of.Out(0).Implements(reflect.TypeFor[watcher]()) {
		return nil, false
	}
	list, ok := of.Out(0).MethodByName("List")
	if !ok || list.Type.NumOut() != 2 || list.Type.Out(0).Kind() != reflect.Pointer {
		return nil, false
	}
	items, ok := list.Type.Out(0).Elem().FieldByName("Items")
	if !ok || items.Type.Kind() != reflect.Slice {
		return nil, false
	}
	return items.Type.Elem(), true
}

// of returns the client of an object's type.
func (c clients) of(example runtime.Object) (client, bool) {
	t := reflect.TypeOf(example)
	if t.Kind() != reflect.Pointer {
		return client{}, false
	}
	found, ok := c[t.Elem()]
	return found, ok
}

// ofResource returns the client of a resource.
func (c clients) ofResource(gvr schema.GroupVersionResource) (client, bool) {
	for kind, object := range scheme.Scheme.KnownTypes(gvr.GroupVersion()) {
		plural, _ := meta.UnsafeGuessKindToResource(gvr.GroupVersion().WithKind(kind))
		if found, ok := c[object]; ok && plural == gvr {
			return found, true
		}
	}
	return client{}, false
}

// example returns an object of the client's type.
func (c client) example() runtime.Object { return reflect.New(c.object).Interface().(runtime.Object) }

// resource returns what the client's generated informer would list and watch.
func (c client) resource(namespace string) generic.Resource[runtime.Object] {
	typed := c.of(namespace)
	return typedResource{typed.Interface().(watcher), typed.MethodByName("List")}
}

// typedResource is a client whose List returns a type of its own.
type typedResource struct {
	watcher
	list reflect.Value
}

// List implements generic.Resource.
func (r typedResource) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	out := r.list.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(opts)})
	err, _ := out[1].Interface().(error)
	return out[0].Interface().(runtime.Object), err
}
