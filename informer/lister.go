package informer

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// Lister reads an Informer's objects with their static type. Unlike client-go's listers,
// which also work on an Informer, it does not decode objects that the label selector
// excludes.
//
// It reads the present content of the informer: nothing before Run, and after the
// informer has stopped the last content, until the Backend is closed. Objects are shared
// with the informer and must not be changed. A nil selector selects everything. For a
// custom selector, only its Requirements are used. A Lister is safe for concurrent use.
//
// The methods wait for the disk, but never for the API server. For a damaged object they
// return store.ErrCorrupt at once and request a list that repairs it, while the indexer's
// List waits for the repair.
type Lister[T runtime.Object] struct {
	inf   *Informer
	known atomic.Pointer[schema.GroupResource] // nil until the informer has synced
}

// NewLister returns a Lister of an informer, running or not. The error reports that T is
// not the type of the informer's example object.
func NewLister[T runtime.Object](inf *Informer) (*Lister[T], error) {
	if inf == nil {
		return nil, errors.New("informer: Informer of a Lister is nil")
	}
	if want, got := reflect.TypeOf(inf.example), reflect.TypeFor[T](); got != want {
		return nil, fmt.Errorf("informer: Lister of %s on an informer of %s", got, want)
	}
	return &Lister[T]{inf: inf}, nil
}

// ListerOf is NewLister for an informer of a Factory. The error also reports an informer
// that is not an *Informer, as the one that client-go makes where a Factory cannot.
func ListerOf[T runtime.Object](inf cache.SharedIndexInformer) (*Lister[T], error) {
	own, ok := Of(inf)
	if !ok {
		return nil, fmt.Errorf("informer: Lister of a %T, want an *informer.Informer, as a Factory makes", inf)
	}
	return NewLister[T](own)
}

// Of returns the Informer behind one that is passed on as client-go's interface, for
// example wrapped by cache.NewTypedSharedIndexInformer, as client-go's factories return
// it. ok is false if there is none.
func Of(inf cache.SharedIndexInformer) (own *Informer, ok bool) {
	if isNil(inf) {
		return nil, false
	}
	c, ok := inf.GetController().(*controller)
	return (*Informer)(c), ok
}

// List returns the objects that match a selector, in key order and as of one moment.
func (l *Lister[T]) List(selector labels.Selector) ([]T, error) {
	return l.list(store.Query{Selector: selector})
}

// All yields the objects that match a selector, in key order. It reads in chunks and
// holds no transaction while the loop body runs, so it is no snapshot: an object that
// changes meanwhile is yielded in its old or new state, or not at all. An error ends the
// iteration.
func (l *Lister[T]) All(selector labels.Selector) iter.Seq2[T, error] {
	return l.all(store.Query{Selector: selector})
}

// Get returns one object. The namespace of a cluster-scoped object is "". If the object
// does not exist, apierrors.IsNotFound is true for the error.
func (l *Lister[T]) Get(namespace, name string) (T, error) {
	var none T
	key := cache.NewObjectName(namespace, name).String()
	item, exists, err := l.inf.content.present().Object(key)
	if err != nil {
		return none, fmt.Errorf("get %s %q: %w", l.resource(), key, l.inf.content.noticed(err))
	}
	if !exists {
		return none, apierrors.NewNotFound(l.resource(), name)
	}
	obj, ok := item.(T)
	if !ok {
		return none, fmt.Errorf("get %s %q: it is a %T", l.resource(), key, item)
	}
	l.inf.mutations.AddObject(obj)
	return obj, nil
}

// handed returns objects for a caller, who must not change them: the mutation detector
// watches them, as in client-go.
func (l *Lister[T]) handed(objects []T) []T {
	for _, obj := range objects {
		l.inf.mutations.AddObject(obj)
	}
	return objects
}

// ByIndex returns the objects that have a value in an index and match a selector, in key
// order and as of one moment. The error for an unknown index is store.ErrNoIndex.
func (l *Lister[T]) ByIndex(indexName, value string, selector labels.Selector) ([]T, error) {
	if indexName == "" { // a Query without a name asks for no index
		return l.byUnnamed(value, selector)
	}
	return l.list(store.Query{Index: indexName, Values: []string{value}, Selector: selector})
}

// byUnnamed is ByIndex for the index whose name is "".
func (l *Lister[T]) byUnnamed(value string, selector labels.Selector) ([]T, error) {
	s := l.inf.content.present()
	objects, err := store.ByIndex(s, "", []string{value}, store.Query{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", l.resource(), l.inf.content.noticed(err))
	}
	entries := make([]store.Entry, len(objects))
	for i, obj := range objects {
		entries[i].Object = obj
	}
	out, err := store.DecodeAll[T](s, entries)
	return l.handed(out), err
}

// Page returns the next objects of a query, in key order and as of one moment, and the
// key to pass as Query.After for those that follow; "" if there are none. Query.Limit
// bounds the page and must be positive. A page is not of the moment of the page before:
// an object that changes in between is returned in its old or new state, or not at all.
// Errors: store.ErrNoIndex, Values without an Index, and those of Query.At.
func (l *Lister[T]) Page(q store.Query) (objects []T, next string, err error) {
	if q.Limit <= 0 {
		return nil, "", fmt.Errorf("informer: page of %s: Limit is %d, want more than 0", l.resource(), q.Limit)
	}
	if q.Index == "" && q.Values != nil {
		return nil, "", fmt.Errorf("informer: page of %s: Values without an Index, want the index that has them", l.resource())
	}
	limit := q.Limit
	q.Limit++
	s := l.inf.content.present()
	entries, err := s.Select(q)
	if err == nil && len(entries) > limit {
		entries = entries[:limit]
		next = entries[limit-1].Key
	}
	if err == nil {
		objects, err = store.DecodeAll[T](s, entries)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", l.resource(), l.inf.content.noticed(err))
	}
	return l.handed(objects), next, nil
}

// InNamespace returns a lister of one namespace. It needs no index.
func (l *Lister[T]) InNamespace(namespace string) NamespaceLister[T] {
	return NamespaceLister[T]{lister: l, namespace: namespace}
}

// NamespaceLister is a Lister of one namespace. With the namespace "", it lists all
// namespaces, and Get returns cluster-scoped objects. See Lister.InNamespace.
type NamespaceLister[T runtime.Object] struct {
	lister    *Lister[T]
	namespace string
}

// List is Lister.List in the namespace.
func (n NamespaceLister[T]) List(selector labels.Selector) ([]T, error) {
	return n.lister.list(store.Query{Namespace: n.namespace, Selector: selector})
}

// All is Lister.All in the namespace.
func (n NamespaceLister[T]) All(selector labels.Selector) iter.Seq2[T, error] {
	return n.lister.all(store.Query{Namespace: n.namespace, Selector: selector})
}

// Get is Lister.Get in the namespace.
func (n NamespaceLister[T]) Get(name string) (T, error) { return n.lister.Get(n.namespace, name) }

// resource returns the resource of the scope. It caches the result once the result is
// final, because Scope locks mu, which readers must not wait for.
func (l *Lister[T]) resource() schema.GroupResource {
	if r := l.known.Load(); r != nil {
		return *r
	}
	final := l.inf.HasSynced()
	r := schema.ParseGroupResource(l.inf.Scope().Resource)
	if final {
		l.known.Store(&r)
	}
	return r
}

func (l *Lister[T]) list(q store.Query) ([]T, error) {
	objects, _, err := l.decoded(l.inf.content.present(), q)
	return objects, err
}

// decoded returns the objects of a query and the key of the last one.
func (l *Lister[T]) decoded(s store.Store, q store.Query) (objects []T, last string, err error) {
	entries, err := s.Select(q)
	if err == nil {
		objects, err = store.DecodeAll[T](s, entries)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", l.resource(), l.inf.content.noticed(err))
	}
	if len(entries) > 0 {
		last = entries[len(entries)-1].Key
	}
	return l.handed(objects), last, nil
}

// listerChunk is the number of objects that All reads at a time.
const listerChunk = 256

func (l *Lister[T]) all(q store.Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		s := l.inf.content.present()
		part := q // the caller may iterate again
		for part.Limit = listerChunk; ; {
			objects, last, err := l.decoded(s, part)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, obj := range objects {
				if !yield(obj, nil) {
					return
				}
			}
			if len(objects) < listerChunk {
				return
			}
			part.After = last
		}
	}
}
