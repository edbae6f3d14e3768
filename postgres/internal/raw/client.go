package raw

import (
	"context"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/codec"
)

// Client lists and watches one resource and leaves its objects as they are sent. It is a
// cache.ListerWatcher whose objects are Objects.
type Client struct {
	client    rest.Interface
	kind      schema.GroupVersionKind
	resource  string
	namespace string
	tweak     func(*metav1.ListOptions)
}

// NewClient returns a Client. tweak sets the selectors.
func NewClient(cfg *rest.Config, kind schema.GroupVersionKind, resource, namespace string, tweak func(*metav1.ListOptions)) (*Client, error) {
	c := rest.CopyConfig(cfg)
	gv := kind.GroupVersion()
	c.GroupVersion, c.APIPath = &gv, "/apis"
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializer{}
	c.ContentType = runtime.ContentTypeJSON
	c.AcceptContentTypes = runtime.ContentTypeJSON
	if hasProtobuf(kind) {
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", resource, err)
	}
	return &Client{client: client, kind: kind, resource: resource, namespace: namespace, tweak: tweak}, nil
}

// hasProtobuf reports whether all of an object is in its protobuf: the kinds with a
// nested TypeMeta lose that.
func hasProtobuf(kind schema.GroupVersionKind) bool {
	example, err := scheme.Scheme.New(kind)
	if err != nil {
		return false
	}
	c, err := codec.For(example)
	return err == nil && c.ID() == codec.IDProtobuf
}

func (c *Client) request(opts metav1.ListOptions) *rest.Request {
	c.tweak(&opts)
	r := c.client.Get().Resource(c.resource).SpecificallyVersionedParams(&opts, metav1.ParameterCodec, metav1.Unversioned)
	if c.namespace != "" {
		r = r.Namespace(c.namespace)
	}
	return r
}

// List implements cache.Lister.
func (c *Client) List(opts metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), opts)
}

// Watch implements cache.Watcher.
func (c *Client) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), opts)
}

// ListWithContext implements cache.ListerWithContext.
func (c *Client) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	result := c.request(opts).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	data, err := result.Raw()
	if err != nil {
		return nil, err
	}
	return DecodeList(data, c.kind)
}

// WatchWithContext implements cache.WatcherWithContext.
func (c *Client) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return c.request(opts).Watch(ctx)
}

// serializer gives the objects of a watch as Objects, and all else, as Status, as
// client-go does.
type serializer struct{}

func (serializer) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := append([]runtime.SerializerInfo(nil), scheme.Codecs.SupportedMediaTypes()...)
	for i := range infos {
		infos[i].Serializer = decoder{infos[i].Serializer}
	}
	return infos
}

func (serializer) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return e
}

func (serializer) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

type decoder struct{ runtime.Serializer }

func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into != nil {
		return d.Serializer.Decode(data, defaults, into)
	}
	// The buffer of a watch is used again for its next event.
	o, err := Decode(append([]byte(nil), data...))
	if err != nil {
		return nil, nil, err
	}
	gvk := o.GroupVersionKind()
	if gvk.Kind == "Status" {
		return d.Serializer.Decode(data, defaults, nil)
	}
	return o, &gvk, nil
}

func (d decoder) Encode(obj runtime.Object, w io.Writer) error {
	return d.Serializer.Encode(obj, w)
}
