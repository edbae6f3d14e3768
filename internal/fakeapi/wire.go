package fakeapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/client-go/tools/cache"
)

// Config returns the configuration of clients that reach the server without a network:
// their requests are encoded and decoded as those to an API server. They speak the
// content type if the server's objects are in client-go's scheme.
func (s *Server) Config(contentType string) *rest.Config {
	return &rest.Config{
		Host: "http://fakeapi", Transport: transport{s}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: contentType},
	}
}

// ListerWatcher returns what lists and watches a resource through a client that is made
// from a Config.
func ListerWatcher(cfg *rest.Config, gvr schema.GroupVersionResource) (cache.ListerWatcher, error) {
	cfg = rest.CopyConfig(cfg)
	gv := gvr.GroupVersion()
	cfg.GroupVersion, cfg.NegotiatedSerializer, cfg.APIPath = &gv, scheme.Codecs.WithoutConversion(), "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.Get().Resource(gvr.Resource).VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return client.Get().Resource(gvr.Resource).VersionedParams(&opts, scheme.ParameterCodec).Watch(ctx)
		},
	}, nil
}

// transport answers the lists and watches of a server's collection.
type transport struct{ s *Server }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var opts metav1.ListOptions
	if err := scheme.ParameterCodec.DecodeParameters(r.URL.Query(), schema.GroupVersion{Version: "v1"}, &opts); err != nil {
		return nil, err
	}
	media, _, _ := strings.Cut(strings.Split(r.Header.Get("Accept"), ",")[0], ";")
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		return nil, errors.New("fakeapi: no serializer for " + media)
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(t.s.example)
	if err != nil {
		return nil, err
	}
	a := answer{request: r, info: info, gv: kinds[0].GroupVersion()}
	if opts.Watch {
		w, err := t.s.WatchWithContext(r.Context(), opts)
		if err != nil {
			return a.failed(err)
		}
		return a.watch(w), nil
	}
	l, err := t.s.ListWithContext(r.Context(), opts)
	if err != nil {
		return a.failed(err)
	}
	return a.whole(http.StatusOK, l)
}

// answer makes the answer to one request.
type answer struct {
	request *http.Request
	info    runtime.SerializerInfo
	gv      schema.GroupVersion
}

func (a answer) encoder() runtime.Encoder {
	return scheme.Codecs.EncoderForVersion(a.info.Serializer, schema.GroupVersions{a.gv, {Version: "v1"}})
}

func (a answer) response(code int, contentType string, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Request: a.request, Body: body, ContentLength: -1, Header: http.Header{"Content-Type": {contentType}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

func (a answer) whole(code int, obj runtime.Object) (*http.Response, error) {
	var b bytes.Buffer
	if err := a.encoder().Encode(obj, &b); err != nil {
		return nil, err
	}
	return a.response(code, a.info.MediaType, io.NopCloser(&b)), nil
}

// failed answers with the status of an error. An error without one is of the connection.
func (a answer) failed(err error) (*http.Response, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err
	}
	s := status.Status()
	return a.whole(int(s.Code), &s)
}

// watch answers with the events of a watch.
func (a answer) watch(w watch.Interface) *http.Response {
	out, in := io.Pipe()
	stream := a.info.StreamSerializer
	events := restwatch.NewEncoder(
		streaming.NewEncoder(stream.NewFrameWriter(in), scheme.Codecs.EncoderForVersion(stream.Serializer, a.gv)),
		a.encoder())
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() { // which ends with the context of the request, too
			if events.Encode(&e) != nil { // the reader has closed it
				break
			}
		}
		_ = in.CloseWithError(a.request.Context().Err()) // io.EOF if that is nil
	}()
	return a.response(http.StatusOK, a.info.MediaType+";stream=watch", &stoppable{out, w})
}

// stoppable is the body of a watch, which Close stops.
type stoppable struct {
	*io.PipeReader
	w watch.Interface
}

// Close implements io.Closer.
func (s *stoppable) Close() error {
	s.w.Stop()
	return s.PipeReader.Close()
}
