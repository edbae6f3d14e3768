package informers_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/informers"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

func persistent(t *testing.T, backend store.Backend, cfg *rest.Config) *informer.Factory {
	t.Helper()
	f, err := informer.NewFactory(backend, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEveryType checks that the informers of all types of client-go's factory are
// persistent, those of a newer client-go included, by their methods and by ForResource.
func TestEveryType(t *testing.T) {
	f := informers.NewFactory(persistent(t, mem.New(), &rest.Config{Host: "http://127.0.0.1:1"}), fake.NewClientset(), informers.Options{})
	types := 0
	for i := range reflect.TypeFor[clientinformers.SharedInformerFactory]().NumMethod() {
		group := reflect.TypeFor[clientinformers.SharedInformerFactory]().Method(i)
		if group.Type.NumIn() > 0 || group.Type.NumOut() != 1 || group.Type.Out(0).Name() != "Interface" {
			continue
		}
		versions := reflect.ValueOf(f).MethodByName(group.Name).Call(nil)[0]
		for j := range group.Type.Out(0).NumMethod() {
			version := group.Type.Out(0).Method(j)
			typed := versions.MethodByName(version.Name).Call(nil)[0]
			for k := range version.Type.Out(0).NumMethod() {
				name := version.Type.Out(0).Method(k).Name
				one := typed.MethodByName(name).Call(nil)[0].Interface().(interface {
					Informer() cache.SharedIndexInformer
				})
				if types++; !isPersistent(one.Informer()) {
					t.Errorf("%s().%s().%s() is client-go's informer", group.Name, version.Name, name)
				}
			}
		}
	}
	if types < 100 {
		t.Errorf("%d types were found", types)
	}
	plain := clientinformers.NewSharedInformerFactory(fake.NewClientset(), 0)
	resources := 0
	for kind := range scheme.Scheme.AllKnownTypes() {
		gvr, _ := meta.UnsafeGuessKindToResource(kind)
		if _, err := plain.ForResource(gvr); err != nil {
			continue
		}
		resources++
		if got, err := f.ForResource(gvr); err != nil || !isPersistent(got.Informer()) {
			t.Errorf("ForResource(%s) is client-go's informer, error %v", gvr, err)
		}
	}
	if resources != types {
		t.Errorf("%d resources, %d types", resources, types)
	}
	unknown := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	_, want := plain.ForResource(unknown)
	if _, err := f.ForResource(unknown); err == nil || err.Error() != want.Error() {
		t.Errorf("an unknown resource: got error %v, want %v", err, want)
	}
}

func isPersistent(inf cache.SharedIndexInformer) bool {
	_, ok := informer.Of(inf)
	return ok
}

// TestSame checks that one type has one informer, however it is asked for, and that
// InformerFor calls the constructor of the caller.
func TestSame(t *testing.T) {
	f := informers.NewFactory(persistent(t, mem.New(), &rest.Config{Host: "http://127.0.0.1:1"}), fake.NewClientset(), informers.Options{})
	own, _ := informer.Of(f.Core().V1().Pods().Informer())
	generic, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := informer.Of(generic.Informer())
	again, _ := informer.Of(f.InformerFor(&corev1.Pod{}, nil))
	if own == nil || own != other || own != again {
		t.Error("pods have several informers")
	}
	called := false
	f.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		called = true
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Node{}, 0, nil)
	})
	if !called {
		t.Error("InformerFor did not call the constructor that it was given")
	}
}

// server is an API server with pods and nodes, which notes lists.
type server struct {
	mu    sync.Mutex
	lists []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	object := func(kind, namespace, name string) map[string]any {
		return map[string]any{"kind": kind, "apiVersion": "v1", "metadata": map[string]any{"namespace": namespace, "name": name, "uid": name, "resourceVersion": "9"}}
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/kube-system"):
		_ = json.NewEncoder(w).Encode(object("Namespace", "", "kube-system"))
	case q.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
	case q.Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		kind, items := "PodList", []any{object("Pod", "one", "a"), object("Pod", "one", "b")}
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			kind, items = "NodeList", []any{object("Node", "", "n")}
		}
		s.mu.Lock()
		if q.Get("limit") == "" || q.Get("limit") == "500" {
			s.lists = append(s.lists, r.URL.Path+" "+q.Get("labelSelector"))
		}
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": kind, "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "10"}, "items": items})
	}
}

// TestRestart checks that a process of a factory with options lists what client-go's
// lists, and that the next one lists nothing.
func TestRestart(t *testing.T) {
	s := &server{}
	web := httptest.NewServer(s)
	defer web.Close()
	path := filepath.Join(t.TempDir(), "informers.db")
	run := func() []string {
		t.Helper()
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := &rest.Config{Host: web.URL, Transport: &http.Transport{DisableKeepAlives: true}}
		p, err := informer.NewFactory(db, cfg, informer.FactoryOptions{TransformVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		transformed := sync.Map{}
		f := informers.NewFactory(p, client, informers.Options{
			Namespace:        "one",
			TweakListOptions: func(o *metav1.ListOptions) { o.LabelSelector = "app=web" },
			Transform: func(obj any) (any, error) {
				transformed.Store(cache.MetaObjectToName(obj.(metav1.Object)), true)
				return obj, nil
			},
		})
		pods, nodes := f.Core().V1().Pods().Lister(), f.Core().V1().Nodes().Lister()
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		f.StartWithContext(ctx)
		if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			t.Error(err)
		}
		all, err := pods.Pods("one").List(labels.Everything())
		if err != nil || len(all) != 2 {
			t.Errorf("%d pods, error %v", len(all), err)
		}
		if all, err := nodes.List(labels.Everything()); err != nil || len(all) != 1 {
			t.Errorf("%d nodes, error %v", len(all), err)
		}
		cancel()
		f.Shutdown()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		lists := slices.Sorted(slices.Values(s.lists))
		s.lists = nil
		return lists
	}
	if got, want := run(), []string{"/api/v1/namespaces/one/pods app=web", "/api/v1/nodes app=web"}; !slices.Equal(got, want) {
		t.Errorf("the first start lists %q, want %q", got, want)
	}
	if got := run(); len(got) > 0 {
		t.Errorf("the second start lists %q", got)
	}
}

// TestFakeIsWatched checks that an informer of a fake clientset has synced only when its
// watch is open: a fake forgets what is deleted before.
func TestFakeIsWatched(t *testing.T) {
	for range 20 {
		c := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "a"}})
		var opened atomic.Bool
		c.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			opened.Store(true)
			return false, nil, nil
		})
		f := informers.NewFactory(persistent(t, mem.New(), &rest.Config{Host: "http://127.0.0.1:1"}), c, informers.Options{})
		f.Core().V1().Pods().Informer()
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		f.StartWithContext(ctx)
		if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			t.Error(err)
		}
		if !opened.Load() {
			t.Error("synced before the watch was opened")
		}
		cancel()
		f.Shutdown()
	}
}
