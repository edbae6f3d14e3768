package encoded_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

// unstructuredForm is the form of informers of unstructured objects, which receive JSON.
// The other forms are the content types of objects with a Go type.
const unstructuredForm = "unstructured"

// testInformers checks that informers hold what the server has, after a cold start, after
// events and after a warm start, whether they store objects as the server encodes them or
// receive JSON.
func (w *world) testInformers(t *testing.T) {
	for _, form := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON, unstructuredForm} {
		t.Run(form, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			for _, start := range []string{"cold", "warm"} {
				s := w.start(t, path, form)
				equal := s.checkEqual()
				pod := start + "-" + strings.TrimPrefix(form, "application/")
				w.create(t, newPod(pod))
				for _, x := range writes {
					w.write(t, pod, x)
					s.checkEqualOf(w.resourceOf(t, podKind))
				}
				w.removeFinalizer(t, pod)
				s.checkEqualOf(w.resourceOf(t, podKind))
				s.stop()
				s.checkMarks(form, start == "cold")
				if !t.Failed() {
					t.Logf("%s start: %d objects of %d resources, and a pod after %d writes: all equal", start, equal, len(w.resources), len(writes)+1)
				}
			}
		})
	}
}

// session is an informer of each resource in one process.
type session struct {
	*world
	t *testing.T
	// By the path of the resource. The lists do not use the informers' transport.
	lists     map[string]cache.ListerWithContext
	informers map[string]cache.SharedIndexInformer
	answers   *answers
	stop      func()
}

// start returns when all informers have synced.
func (w *world) start(t *testing.T, path, form string) *session {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(strings.Repeat("5e", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, bolt.Options{Keys: codec.KeyFile(keys)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := w.cp.Config()
	cfg.QPS, cfg.ContentType = -1, form
	if form == unstructuredForm {
		cfg.ContentType = runtime.ContentTypeJSON
	}
	informer.TakeEncoded(cfg) // which NewFactory need not do again
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{
		world: w, t: t, answers: &answers{marks: map[string]int{}},
		lists: map[string]cache.ListerWithContext{}, informers: map[string]cache.SharedIndexInformer{},
	}
	cfg.Wrap(s.answers.wrap)
	direct := w.cp.Config()
	direct.QPS, direct.ContentType = -1, cfg.ContentType
	ctx, cancel := context.WithCancel(t.Context())
	var running wait.Group
	var synced []cache.DoneChecker
	for _, r := range w.resources {
		inf := factory.NewInformer(listWatch(t, cfg, r, form), newObject(t, r, form), 0, cache.Indexers{})
		s.lists[r.path()], s.informers[r.path()] = cache.ToListerWithContext(listWatch(t, direct, r, form)), inf
		synced = append(synced, inf.HasSyncedChecker())
		running.StartWithContext(ctx, inf.RunWithContext)
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	timeout, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	if !cache.WaitFor(timeout, "", synced...) {
		t.Fatal("the informers did not sync")
	}
	return s
}

// listWatch returns the ListerWatcher of a resource, by a client that is made from cfg.
func listWatch(t *testing.T, cfg *rest.Config, r resource, form string) cache.ListerWatcher {
	t.Helper()
	if form != unstructuredForm {
		return cache.NewFilteredListWatchFromClient(restClient(t, cfg, r), r.Resource, "", func(*metav1.ListOptions) {})
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	objects := client.Resource(r.GroupVersionResource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, opts)
		},
		WatchFuncWithContext: objects.Watch,
	}
}

func restClient(t *testing.T, cfg *rest.Config, r resource) rest.Interface {
	t.Helper()
	c := rest.CopyConfig(cfg)
	gv := r.GroupVersion()
	c.GroupVersion, c.APIPath = &gv, "/apis"
	if r.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// checkEqual compares all informers with the server and returns the number of objects.
func (s *session) checkEqual() (objects int) {
	s.t.Helper()
	for _, r := range s.resources {
		objects += s.checkEqualOf(r)
	}
	return objects
}

// checkEqualOf waits until an informer and the server have the same objects at the same
// resource versions, and compares them.
func (s *session) checkEqualOf(r resource) (objects int) {
	s.t.Helper()
	var server, held map[string]runtime.Object
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := s.lists[r.path()].ListWithContext(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return false, err
		}
		server, held = map[string]runtime.Object{}, map[string]runtime.Object{}
		for _, obj := range items {
			server[keyOf(s.t, obj)] = obj
		}
		for _, obj := range s.informers[r.path()].GetStore().List() {
			held[keyOf(s.t, obj)] = obj.(runtime.Object)
		}
		return maps.EqualFunc(server, held, func(a, b runtime.Object) bool { return rvOf(a) == rvOf(b) }), nil
	})
	if err != nil {
		s.t.Errorf("%s: %d objects, the server has %d: %v", r.kind, len(held), len(server), err)
		return 0
	}
	for key, want := range server {
		if got := held[key]; !apiequality.Semantic.DeepEqual(want, got) {
			s.t.Errorf("%s %s (-server +informer):\n%s", r.kind, key, cmp.Diff(want, got))
		}
	}
	return len(server)
}

func keyOf(t *testing.T, obj any) string {
	t.Helper()
	key, err := cache.MetaNamespaceKeyFunc(obj)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rvOf(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err.Error()
	}
	return accessor.GetResourceVersion()
}

// checkMarks checks which answers contained encoded objects: with protobuf, and with
// unstructured objects, all lists of a cold start and the events of pods.
func (s *session) checkMarks(form string, cold bool) {
	s.t.Helper()
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	for _, r := range s.resources {
		marks := s.answers.marks[r.path()]
		switch {
		case form == runtime.ContentTypeJSON || form == runtime.ContentTypeProtobuf && inMsgpack.Has(r.kind.Kind):
			if marks > 0 {
				s.t.Errorf("%s: %d encoded objects, want none", r.kind, marks)
			}
		case (cold || r.kind == podKind) && marks == 0:
			s.t.Errorf("%s: no encoded objects", r.kind)
		}
	}
}

// answers counts the marks of encoded objects (package informer/internal/tap) in what
// client-go receives, by path.
type answers struct {
	mu    sync.Mutex
	marks map[string]int
}

func (a *answers) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			resp.Body = &answer{ReadCloser: resp.Body, all: a, path: r.URL.Path}
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type answer struct {
	io.ReadCloser
	all  *answers
	path string
	last []byte // what was read last: a mark may begin there
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	text := append(a.last, p[:n]...)
	a.last = bytes.Clone(text[max(0, len(text)-10):])
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.all.marks[a.path] += bytes.Count(text, []byte("\x00informctl/")) + bytes.Count(text, []byte(`0informctl/`))
	return n, err
}
