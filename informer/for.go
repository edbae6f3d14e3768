package informer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// ForOptions specify what an informer of For lists. The zero value means all objects of a
// type that client-go has.
type ForOptions struct {
	// Scheme knows the Go type and its list; nil means client-go's, which has the types
	// of Kubernetes itself.
	Scheme *runtime.Scheme
	// Resource is the plural that the server serves the type under, as "widgets"; ""
	// means that of the Mapper, or what client-go guesses from the kind.
	Resource string
	// Mapper, if it is not nil, finds the Resource.
	Mapper meta.RESTMapper

	Namespace     string // "" means all namespaces, and cluster-scoped types
	LabelSelector string // as in metav1.ListOptions
	FieldSelector string // as in metav1.ListOptions

	ResyncPeriod time.Duration // of handlers without their own; 0 means no resync
	// Indexers are the informer's index functions, beside that of namespaces.
	Indexers cache.Indexers
}

// Typed is an Informer of one Go type with its Lister.
type Typed[T runtime.Object] struct {
	*Informer
	lister *Lister[T]
}

// Lister returns the lister of the informer. It is safe for concurrent use.
func (t *Typed[T]) Lister() *Lister[T] { return t.lister }

// For returns a new informer of the objects of a Go type, for which the program needs no
// client and no ListerWatcher:
//
//	pods, err := informer.For[*corev1.Pod](factory, informer.ForOptions{})
//	go pods.RunWithContext(ctx)
//	<-pods.HasSyncedChecker().Done()
//	web, err := pods.Lister().List(labels.SelectorFromSet(labels.Set{"app": "web"}))
//
// It sends its requests through the configuration that NewFactory received, as it is at
// the first call of For. All informers of For share one client and its limit of requests;
// types that have protobuf come in it, unless the configuration names a content type. For
// sends no request itself, unless a Mapper does. Each call makes another informer; the
// second one of a scope that runs holds its objects in memory. The error reports a type
// that the scheme does not know or has under several kinds, a selector that cannot be
// parsed, and a Mapper that does not know the kind.
func For[T runtime.Object](f *Factory, opts ForOptions) (*Typed[T], error) {
	if f == nil {
		return nil, errors.New("informer: Factory of For is nil")
	}
	what := reflect.TypeFor[T]()
	if what.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("informer: For of %s, want a pointer to a struct, as *corev1.Pod", what)
	}
	example := reflect.New(what.Elem()).Interface().(T)
	lw, err := f.listWatch(example, opts)
	if err != nil {
		return nil, fmt.Errorf("informer of %s: %w", what, err)
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	maps.Copy(indexers, opts.Indexers)
	inf, ok := f.NewInformer(lw, example, opts.ResyncPeriod, indexers).(*Informer)
	if !ok {
		return nil, fmt.Errorf("informer of %s: it is refused, see the log", what)
	}
	lister, err := NewLister[T](inf)
	return &Typed[T]{inf, lister}, err
}

// listWatch returns a ListWatch of the objects of a type.
func (f *Factory) listWatch(example runtime.Object, opts ForOptions) (*cache.ListWatch, error) {
	known := opts.Scheme
	if known == nil {
		known = scheme.Scheme
	}
	kind, resource, err := resourceOf(example, known, opts)
	if err != nil {
		return nil, err
	}
	selected, err := store.Scope{LabelSelector: opts.LabelSelector, FieldSelector: opts.FieldSelector}.Canonical()
	if err != nil {
		return nil, err
	}
	cfg, client, err := f.client()
	if err != nil {
		return nil, err
	}
	group := kind.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &group, "/apis"
	if group.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	if c, err := codec.For(example); err == nil && c.ID() == codec.IDProtobuf && cfg.ContentType == "" && cfg.AcceptContentTypes == "" {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	rest, err := rest.RESTClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, err
	}
	return cache.NewFilteredListWatchFromClient(rest, resource, opts.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
	}), nil
}

// client returns a copy of the program's configuration, and the client that all informers
// of For share.
func (f *Factory) client() (*rest.Config, *http.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shared.http == nil {
		cfg := rest.CopyConfig(f.cfg)
		cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
		if cfg.RateLimiter == nil && cfg.QPS >= 0 {
			cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cmp.Or(cfg.QPS, rest.DefaultQPS), cmp.Or(cfg.Burst, rest.DefaultBurst))
		}
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, nil, err
		}
		f.shared.cfg, f.shared.http = cfg, client
	}
	return rest.CopyConfig(f.shared.cfg), f.shared.http, nil
}

// resourceOf returns the kind of a type and the plural that it is served under.
func resourceOf(example runtime.Object, known *runtime.Scheme, opts ForOptions) (kind schema.GroupVersionKind, resource string, err error) {
	kinds, _, err := known.ObjectKinds(example)
	switch {
	case runtime.IsNotRegisteredError(err):
		return kind, "", errors.New("the scheme does not know the type; want ForOptions.Scheme to be one that it was added to")
	case err != nil:
		return kind, "", err
	case len(kinds) > 1:
		return kind, "", fmt.Errorf("the scheme has the type as %v; want one kind", kinds)
	}
	kind = kinds[0]
	switch {
	case opts.Resource != "":
		return kind, opts.Resource, nil
	case opts.Mapper != nil:
		m, err := opts.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return kind, "", err
		}
		return kind, m.Resource.Resource, nil
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return kind, plural.Resource, nil
}
