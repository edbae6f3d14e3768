package cluster

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

// Collection lists and watches the objects of one scope. It uses protobuf for client-go's
// types and unstructured objects for all other resources.
type Collection struct {
	Scope   store.Scope
	Example runtime.Object // of the type of the objects
	// List and Watch take the selectors of a request as they are: see Selected.
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// Identify asks which cluster answers. nil: nobody can be asked.
	Identify func(context.Context) (string, error)
}

// Collection returns what lists and watches the objects of a scope.
func (srv *Server) Collection(scope store.Scope) (*Collection, error) {
	r := schema.ParseGroupResource(scope.Resource).WithVersion(scope.Kind.Version)
	collection := &Collection{Scope: scope, Identify: srv.Identify}
	if scope.Form == store.Typed {
		return collection, collection.useTyped(srv.Config, srv.client, r)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(scope.Kind)
	collection.Example = u
	resource := srv.dynamic.Resource(r).Namespace(scope.Namespace)
	collection.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, options)
	}
	collection.Watch = resource.Watch
	return collection, nil
}

func (c *Collection) useTyped(config *rest.Config, client *http.Client, r schema.GroupVersionResource) (err error) {
	if c.Example, err = scheme.Scheme.New(c.Scope.Kind); err != nil {
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
	restClient, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return fmt.Errorf("client for %s: %w", c.Scope.Resource, err)
	}
	get := func(options metav1.ListOptions) *rest.Request {
		return restClient.Get().Namespace(c.Scope.Namespace).Resource(r.Resource).VersionedParams(&options, scheme.ParameterCodec)
	}
	c.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return get(options).Do(ctx).Get()
	}
	c.Watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.Watch = true
		return get(options).Watch(ctx)
	}
	return nil
}

// ListerWatcher returns a ListerWatcher that calls done at the end of each request. verb
// is list or watch.
func (c *Collection) ListerWatcher(done func(verb string, err error)) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := c.List(ctx, c.Selected(options))
			done("list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, c.Selected(options))
			done("watch", err)
			return w, err
		},
	}
}

// Selected returns options with the selectors of the scope.
func (c *Collection) Selected(options metav1.ListOptions) metav1.ListOptions {
	options.LabelSelector, options.FieldSelector = c.Scope.LabelSelector, c.Scope.FieldSelector
	return options
}

// Total returns the number of objects on the server, if it is known. The server does not
// count objects of a request with selectors. PostgreSQL does not count.
func (c *Collection) Total(ctx context.Context) (n int, known bool) {
	if c.Scope.LabelSelector != "" || c.Scope.FieldSelector != "" {
		return 0, false
	}
	list, err := c.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, false
	}
	l, ok := list.(metav1.ListInterface)
	if !ok {
		if accessor, is := list.(metav1.ListMetaAccessor); is {
			l, ok = accessor.GetListMeta(), true
		}
	}
	switch {
	case ok && l.GetRemainingItemCount() != nil:
		return int(*l.GetRemainingItemCount()) + 1, true
	case ok && l.GetContinue() != "":
		return 0, false
	}
	return meta.LenList(list), true
}
