package generic_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientdynamicinformer "k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clientmetadatainformer "k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/dynamicinformer"
	"github.com/informctl/informctl/informer/internal/generic"
	"github.com/informctl/informctl/informer/metadatainformer"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// Both factories of client-go have the same interface.
type factory = clientdynamicinformer.DynamicSharedInformerFactory

var (
	jobs    = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// widget returns an object that the fakes of both clients accept.
func widget(namespace, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

func dynamicClient(t *testing.T, objects ...*metav1.PartialObjectMetadata) *dynamicfake.FakeDynamicClient {
	t.Helper()
	var given []runtime.Object
	for _, obj := range objects {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, &unstructured.Unstructured{Object: u})
	}
	kinds := map[schema.GroupVersionResource]string{jobs: "JobList", widgets: "WidgetList", secrets: "SecretList"}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, given...)
}

func metadataClient(t *testing.T, objects ...*metav1.PartialObjectMetadata) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var given []runtime.Object
	for _, obj := range objects {
		given = append(given, obj)
	}
	return metadatafake.NewSimpleMetadataClient(scheme, given...)
}

// inMemory returns a factory for clients that do not use its transport.
func inMemory(t *testing.T) *informer.Factory {
	t.Helper()
	f, err := informer.NewFactory(mem.New(), &rest.Config{}, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// implementations are client-go's factories, as a control, and ours.
var implementations = map[string]func(*testing.T) (factory, *clienttesting.Fake){
	"client-go dynamic": func(t *testing.T) (factory, *clienttesting.Fake) {
		c := dynamicClient(t, widget("one", "a"), widget("two", "b"))
		return clientdynamicinformer.NewDynamicSharedInformerFactory(c, 0), &c.Fake
	},
	"dynamic": func(t *testing.T) (factory, *clienttesting.Fake) {
		c := dynamicClient(t, widget("one", "a"), widget("two", "b"))
		return dynamicinformer.NewFactory(inMemory(t), c, dynamicinformer.Options{}), &c.Fake
	},
	"client-go metadata": func(t *testing.T) (factory, *clienttesting.Fake) {
		c := metadataClient(t, widget("one", "a"), widget("two", "b"))
		return clientmetadatainformer.NewSharedInformerFactory(c, 0), &c.Fake
	},
	"metadata": func(t *testing.T) (factory, *clienttesting.Fake) {
		c := metadataClient(t, widget("one", "a"), widget("two", "b"))
		return metadatainformer.NewFactory(inMemory(t), c, metadatainformer.Options{}), &c.Fake
	},
}

type syncs = map[schema.GroupVersionResource]bool

func wantSyncs(t *testing.T, when string, got, want syncs) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("WaitForCacheSync %s (-want +got):\n%s", when, diff)
	}
}

// TestRules checks the rules of client-go's interfaces for Start, ForResource,
// WaitForCacheSync and Shutdown.
func TestRules(t *testing.T) {
	for name, implementation := range implementations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkRules(t, implementation) })
		})
	}
}

func checkRules(t *testing.T, implementation func(*testing.T) (factory, *clienttesting.Fake)) {
	f, client := implementation(t)
	first, second := make(chan struct{}), make(chan struct{})
	w := f.ForResource(widgets)
	if f.ForResource(widgets) != w || f.ForResource(widgets).Informer() != w.Informer() {
		t.Error("ForResource returned another informer")
	}
	wantSyncs(t, "before Start", f.WaitForCacheSync(first), syncs{})
	f.Start(first)
	f.Start(second)
	wantSyncs(t, "after Start", f.WaitForCacheSync(first), syncs{widgets: true})
	j := f.ForResource(jobs)
	wantSyncs(t, "with a new resource", f.WaitForCacheSync(first), syncs{widgets: true})
	f.Start(second)
	wantSyncs(t, "after another Start", f.WaitForCacheSync(first), syncs{widgets: true, jobs: true})
	synctest.Wait()
	var watches []string
	for _, a := range client.Actions() {
		if a.GetVerb() == "watch" {
			watches = append(watches, a.GetResource().Resource)
		}
	}
	slices.Sort(watches) // an informer syncs before it watches
	if diff := cmp.Diff([]string{"jobs", "widgets"}, watches); diff != "" {
		t.Errorf("watches (-want +got):\n%s", diff)
	}
	checkLister(t, w.Lister())

	close(first)
	synctest.Wait()
	if !w.Informer().IsStopped() || j.Informer().IsStopped() {
		t.Error("an informer does not end with the channel that it was started with")
	}
	down := make(chan struct{})
	go func() {
		defer close(down)
		f.Shutdown()
	}()
	synctest.Wait()
	select {
	case <-down:
		t.Error("Shutdown did not wait for an informer that runs")
	default:
	}
	f.ForResource(secrets)
	f.Start(second)
	wantSyncs(t, "after Shutdown", f.WaitForCacheSync(first), syncs{widgets: true, jobs: true})
	close(second)
	<-down
	f.Shutdown()
}

func checkLister(t *testing.T, l cache.GenericLister) {
	t.Helper()
	if all, err := l.List(labels.Everything()); err != nil || len(all) != 2 {
		t.Errorf("List: %d objects: %v", len(all), err)
	}
	if one, err := l.ByNamespace("one").List(labels.Everything()); err != nil || len(one) != 1 {
		t.Errorf("List of a namespace: %d objects: %v", len(one), err)
	}
	if _, err := l.ByNamespace("two").Get("b"); err != nil {
		t.Error(err)
	}
	if obj, err := l.ByNamespace("one").Get("b"); err == nil {
		t.Errorf("Get of what is not there returned a %T", obj)
	}
}

// TestNotSynced checks that waiting ends with the channel and returns which informers
// have not synced.
func TestNotSynced(t *testing.T) {
	for name, implementation := range implementations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := implementation(t)
				client.PrependReactor("list", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("not today")
				})
				stop := make(chan struct{})
				f.ForResource(jobs)
				f.ForResource(widgets)
				f.Start(stop)
				time.AfterFunc(time.Minute, func() { close(stop) })
				wantSyncs(t, "that is cut short", f.WaitForCacheSync(stop), syncs{jobs: false, widgets: true})
				f.Shutdown()
			})
		})
	}
}

// recorder is a client that records its requests and has no objects.
type recorder struct {
	t         *testing.T
	namespace string
	lists     chan metav1.ListOptions
	watches   chan metav1.ListOptions
}

type contextKey struct{}

func (r *recorder) note(ctx context.Context, to chan metav1.ListOptions, opts metav1.ListOptions) {
	if ctx.Value(contextKey{}) == nil {
		r.t.Error("a request without the context that the factory was started with")
	}
	select {
	case to <- opts:
	case <-ctx.Done():
	}
}

func (r *recorder) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	r.note(ctx, r.lists, opts)
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("7")
	return list, nil
}

func (r *recorder) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	r.note(ctx, r.watches, opts)
	return watch.NewFake(), nil
}

// noStreams is a client that may not support streamed lists.
type noStreams bool

func (n noStreams) IsWatchListSemanticsUnSupported() bool { return bool(n) }

// TestRequests checks that each request has the namespace, the tweak and the context, and
// that the reflector knows whether the client supports streamed lists.
func TestRequests(t *testing.T) {
	for name, client := range map[string]noStreams{"pages": true, "stream": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{t: t, lists: make(chan metav1.ListOptions), watches: make(chan metav1.ListOptions)}
				opts := generic.Options{
					Namespace:        "one",
					TweakListOptions: func(o *metav1.ListOptions) { o.LabelSelector = "color=red" },
				}
				f := generic.New(inMemory(t), opts, generic.Form[*unstructured.UnstructuredList]{
					Client: client, Example: &unstructured.Unstructured{},
					Resource: func(_ schema.GroupVersionResource, namespace string) generic.Resource[*unstructured.UnstructuredList] {
						r.namespace = namespace
						return r
					},
				})
				f.ForResource(widgets)
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, true))
				f.StartWithContext(ctx)
				// The first list is the request in which the factory learns the scope.
				got := []metav1.ListOptions{<-r.lists}
				if client {
					got = append(got, <-r.lists)
				}
				got = append(got, <-r.watches)
				cancel()
				f.Shutdown()
				for _, o := range got {
					if o.LabelSelector != "color=red" {
						t.Errorf("a request without the tweak: %v", o)
					}
				}
				if r.namespace != "one" {
					t.Errorf("namespace %q", r.namespace)
				}
				if streams := got[len(got)-1].SendInitialEvents != nil; streams == bool(client) {
					t.Errorf("the list is streamed: %t", streams)
				}
			})
		})
	}
}

// forbidding is a server that answers every request with Forbidden.
type forbidding struct{}

func (forbidding) RoundTrip(r *http.Request) (*http.Response, error) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Request: r, Body: io.NopCloser(strings.NewReader(status)),
		Header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

// TestScopes checks that a resource is stored under its group, version and form, however
// often its informer is started, and that Secrets are not stored.
func TestScopes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	for range 2 {
		startForbidden(t, path)
	}
	var got []store.Scope
	for _, info := range bolttest.Scopes(t, path) {
		info.Scope.Cluster = ""
		got = append(got, info.Scope)
	}
	want := []store.Scope{
		{Resource: "jobs.batch", Kind: jobs.GroupVersion().WithKind(""), LabelSelector: "color=red", Form: store.Metadata},
		{Resource: "jobs.batch", Kind: jobs.GroupVersion().WithKind(""), Namespace: "one", Form: store.Unstructured},
		{Resource: "widgets.example.com", Kind: widgets.GroupVersion().WithKind(""), LabelSelector: "color=red", Form: store.Metadata},
		{Resource: "widgets.example.com", Kind: widgets.GroupVersion().WithKind(""), Namespace: "one", Form: store.Unstructured},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
}

// startForbidden runs the informers of both factories until each has opened its scope and
// sent its first request.
func startForbidden(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &rest.Config{Host: "https://cluster", Transport: forbidding{}, QPS: -1}
	persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	factories := []factory{
		dynamicinformer.NewFactory(persistent, dynamic.NewForConfigOrDie(cfg), dynamicinformer.Options{Namespace: "one"}),
		metadatainformer.NewFactory(persistent, metadata.NewForConfigOrDie(cfg), metadatainformer.Options{
			TweakListOptions: func(o *metav1.ListOptions) { o.LabelSelector = "color=red" },
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	for _, f := range factories {
		for _, gvr := range []schema.GroupVersionResource{jobs, widgets, secrets} {
			asked.Add(1)
			once := sync.OnceFunc(asked.Done)
			if err := f.ForResource(gvr).Informer().SetWatchErrorHandler(func(*cache.Reflector, error) { once() }); err != nil {
				t.Fatal(err)
			}
		}
		f.Start(ctx.Done())
	}
	asked.Wait()
	cancel()
	for _, f := range factories {
		f.Shutdown()
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
