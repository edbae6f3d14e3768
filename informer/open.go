package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// opener opens the store of an informer, and knows why that is in memory. One goroutine
// calls its methods, except that any may call those that read.
type opener struct {
	example runtime.Object
	codec   codec.Codec
	opts    Options
	onError func(context.Context, error)
	// lease opens a scope in the Backend.
	lease func(context.Context, store.Scope, store.Options) (store.Store, error)
	// unindexed is called with each stored object for which an index function fails.
	unindexed func(*store.ObjectError)

	// mu protects the fields below.
	mu       sync.Mutex
	memory   string // why Backend is not used; "" if it is used or nil
	unusable bool   // Backend could not open the scope, which is not expected
	waited   waits
}

// waits are the errors because of which an informer has waited for its scope.
type waits struct {
	last string
	time time.Time // of last
	n    int
}

// inMemory opens a scope in memory.
func (o *opener) inMemory(scope store.Scope, indexers cache.Indexers) (store.Store, error) {
	return mem.New().Open(scope, store.Options{Codec: o.codec, Indexers: indexers, Indexes: o.opts.Indexes})
}

// found is the scope of an informer.
type found struct {
	scope    store.Scope
	verifier *cluster.Verifier // nil if nobody asks which cluster answers
	// gone returns an error unless the server serves the resource in no version; nil if
	// nobody can be asked.
	gone func(context.Context) error
	err  error // why the scope is not known; scope is then the caller's
	// group shares the budget of decoded objects, if it is not nil.
	group any
}

// find finds the scope of a Factory's informer with a request through the ListerWatcher.
func (o *opener) find(ctx context.Context, f *cluster.Finder, lw cache.ListerWatcher, own store.Scope) found {
	scope, client, err := f.Scope(ctx, lw, o.example, func(err error) { o.waits(ctx, err) })
	if err == nil {
		scope.Form = own.Form
		scope, err = scope.Canonical()
	}
	if err != nil {
		return found{scope: o.named(scope, own), err: err}
	}
	resource := schema.ParseGroupResource(scope.Resource)
	return found{
		scope: scope, verifier: cluster.NewVerifier(client, lw, scope.Cluster),
		gone: func(ctx context.Context) error { return client.ConfirmGone(ctx, lw, resource) },
	}
}

// named returns what is known of a scope that could not be found: that of the request, if
// only the cluster is missing, or one of the example's type.
func (o *opener) named(asked, own store.Scope) store.Scope {
	if asked.Resource != "" {
		asked.Form, asked.Cluster = own.Form, ""
		if s, err := asked.Canonical(); err == nil {
			return s
		}
	}
	if own.Resource == "" && own.Form == store.Typed {
		kind := schema.GroupVersionKind{Kind: reflect.TypeOf(o.example).Elem().Name()}
		gvr, _ := meta.UnsafeGuessKindToResource(kind)
		own.Resource = gvr.Resource
	}
	return own
}

// waits reports an error because of which the informer waits for its scope.
func (o *opener) waits(ctx context.Context, cause error) {
	o.mu.Lock()
	o.waited = waits{last: cause.Error(), time: time.Now(), n: o.waited.n + 1}
	o.mu.Unlock()
	defer utilruntime.HandleCrashWithContext(ctx)
	o.onError(ctx, cause)
}

// open opens the scope, in memory if it may not or cannot be persisted: a cache must not
// be able to take its controller down (promise 5).
func (o *opener) open(ctx context.Context, f found, transform cache.TransformFunc, indexers cache.Indexers) store.Store {
	for _, idx := range o.opts.Indexes {
		delete(indexers, idx.Name)
	}
	if o.opts.Backend != nil {
		var s store.Store
		err := f.err
		if err == nil {
			s, err = o.inBackend(ctx, f, transform, indexers)
		}
		if err == nil {
			return s
		}
		expected := isExpectedInMemory(err) || ctx.Err() != nil
		if expected {
			klog.FromContext(ctx).Info("Not persisted, held in memory", "because", err.Error())
		} else {
			klog.FromContext(ctx).Error(err, "NOT PERSISTED: all objects are listed at each start and held in memory")
		}
		o.refuse(err, f.err == nil && !expected)
	}
	s, err := o.inMemory(f.scope, indexers)
	if err != nil {
		panic(err) // New has opened a store with the same options
	}
	return s
}

// refuse notes why Backend is not used. unusable says that this is not expected.
func (o *opener) refuse(why error, unusable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.memory, o.unusable = why.Error(), unusable
}

// inBackend opens the scope in the Backend.
func (o *opener) inBackend(ctx context.Context, f found, transform cache.TransformFunc, indexers cache.Indexers) (store.Store, error) {
	if f.scope.Kind.Empty() {
		return nil, fmt.Errorf("the kind of a %T is not known; name it in Scope", o.example)
	}
	version := o.opts.transformVersion(transform)
	opts := store.Options{
		Codec: o.codec, Indexers: indexers, Indexes: o.opts.Indexes,
		TransformVersion: version,
		History:          o.opts.History,
		Fresh:            transform != nil && version == "",
		DecodedBytes:     o.opts.DecodedBytes,
		DecodedGroup:     f.group,
		Rejected: func(bad *store.ObjectError) {
			o.unindexed(bad)
			klog.FromContext(ctx).Error(bad, "Stored object is not in an index", "key", bad.Key)
		},
	}
	if opts.Fresh {
		// Else a start without the transform would resume transformed objects.
		opts.TransformVersion = "unversioned"
	}
	if f.verifier == nil && f.scope.Cluster == "" {
		klog.FromContext(ctx).Info("Scope names no cluster: what is stored is resumed against whichever server answers")
	}
	s, err := o.lease(ctx, f.scope, opts)
	if err != nil {
		return nil, err
	}
	if err := cluster.DropForeign(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// isPersistent reports whether the Backend holds the objects, once the store is opened.
func (o *opener) isPersistent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opts.Backend != nil && o.memory == ""
}

// path returns the path of the database, "" if the backend has no file.
func (o *opener) path() string {
	if s, ok := o.opts.Backend.(interface{ Suspended() error }); ok && s.Suspended() != nil {
		return ""
	}
	if located, ok := o.opts.Backend.(interface{ Path() string }); ok {
		return located.Path()
	}
	return ""
}

// dir returns the directory of the database; "" means the system's temporary directory.
func (o *opener) dir() string {
	if path := o.path(); path != "" {
		return filepath.Dir(path)
	}
	return ""
}

// isExpectedInMemory reports whether a correct program can cause the error that prevents
// a scope from being persisted, for example Secrets without an encryption key or a scope
// that another informer holds.
func isExpectedInMemory(err error) bool {
	return errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrInUse) || errors.Is(err, store.ErrClosed) ||
		errors.Is(err, context.Canceled)
}

// withoutIndexes returns the indexers without those that an index with an identity
// replaces: callers often pass the namespace function both ways.
func withoutIndexes(indexers cache.Indexers, indexes []index.Index) cache.Indexers {
	out := maps.Clone(indexers)
	for _, idx := range indexes {
		if fn := out[idx.Name]; fn != nil && index.IsNamespace(fn) && index.IsNamespace(idx.Func) {
			delete(out, idx.Name)
		}
	}
	return out
}
