package v1alpha1

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// resource is the name of Greeters in a URL.
const resource = "greeters"

// Client reads Greeters and writes their statuses. It returns errors of the API server
// unchanged.
type Client struct{ rest rest.Interface }

// NewClient returns a client of the cluster in cfg. It does not change cfg.
func NewClient(cfg *rest.Config) (*Client, error) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/apis", &GroupVersion
	cfg.ContentType = runtime.ContentTypeJSON // custom resources have no protobuf
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", GroupVersion, err)
	}
	return &Client{c}, nil
}

// ListWatch returns the ListerWatcher for an informer of all Greeters.
func (c *Client) ListWatch() cache.ListerWatcher {
	return cache.NewListWatchFromClient(c.rest, resource, metav1.NamespaceAll, fields.Everything())
}

// Get reads one Greeter from the server.
func (c *Client) Get(ctx context.Context, namespace, name string) (*Greeter, error) {
	g := &Greeter{}
	err := c.rest.Get().Namespace(namespace).Resource(resource).Name(name).Do(ctx).Into(g)
	return g, err
}

// UpdateStatus writes only the status of g. It returns a conflict if the server has a
// newer g.
func (c *Client) UpdateStatus(ctx context.Context, g *Greeter) (*Greeter, error) {
	updated := &Greeter{}
	err := c.rest.Put().Namespace(g.Namespace).Resource(resource).Name(g.Name).SubResource("status").Body(g).Do(ctx).Into(updated)
	return updated, err
}
