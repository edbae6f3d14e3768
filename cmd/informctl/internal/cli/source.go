package cli

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// collection lists and watches one scope. It uses protobuf for client-go's types and
// unstructured objects for all other resources.
type collection struct {
	scope   store.Scope
	example runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// source returns a source of the objects of a scope.
func (srv *server) source(scope store.Scope) (*collection, error) {
	r := schema.ParseGroupResource(scope.Resource).WithVersion(scope.Kind.Version)
	src := &collection{scope: scope}
	if scope.Form == store.Typed {
		return src, src.useTyped(srv.config, srv.client, r)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(scope.Kind)
	src.example = u
	resource := srv.dynamic.Resource(r).Namespace(scope.Namespace)
	src.list = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, options)
	}
	src.watch = resource.Watch
	return src, nil
}

func (src *collection) useTyped(config *rest.Config, client *http.Client, r schema.GroupVersionResource) (err error) {
	if src.example, err = scheme.Scheme.New(src.scope.Kind); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	gv := r.GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if r.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	c, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return fmt.Errorf("client for %s: %w", src.scope.Resource, err)
	}
	get := func(options metav1.ListOptions) *rest.Request {
		return c.Get().Namespace(src.scope.Namespace).Resource(r.Resource).VersionedParams(&options, scheme.ParameterCodec)
	}
	src.list = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return get(options).Do(ctx).Get()
	}
	src.watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.Watch = true
		return get(options).Watch(ctx)
	}
	return nil
}

// listerWatcher returns a ListerWatcher that calls done at the end of each request. verb
// is list or watch.
func (src *collection) listerWatcher(done func(verb string, err error)) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := src.list(ctx, src.selected(options))
			done("list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := src.watch(ctx, src.selected(options))
			done("watch", err)
			return w, err
		},
	}
}

func (src *collection) selected(options metav1.ListOptions) metav1.ListOptions {
	options.LabelSelector, options.FieldSelector = src.scope.LabelSelector, src.scope.FieldSelector
	return options
}

// total returns the number of objects on the server, 0 if it is not known. The server
// does not count objects of a request with selectors.
func (src *collection) total(ctx context.Context) int {
	if src.scope.LabelSelector != "" || src.scope.FieldSelector != "" {
		return 0
	}
	list, err := src.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0
	}
	l, ok := list.(metav1.ListInterface)
	if !ok {
		if accessor, is := list.(metav1.ListMetaAccessor); is {
			l, ok = accessor.GetListMeta(), true
		}
	}
	if !ok || l.GetRemainingItemCount() == nil {
		return meta.LenList(list)
	}
	return int(*l.GetRemainingItemCount()) + 1
}
