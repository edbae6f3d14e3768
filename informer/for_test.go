package informer_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// asked answers each request with an empty list, and notes it.
type asked struct {
	mu    sync.Mutex
	lists []string
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/kube-system"):
		_ = json.NewEncoder(w).Encode(&corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "one"},
		})
	case q.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
	case q.Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		a.mu.Lock()
		a.lists = append(a.lists, r.URL.Path+" labels="+q.Get("labelSelector")+" fields="+q.Get("fieldSelector"))
		a.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "10"}})
	}
}

func factoryOn(t *testing.T, backend store.Backend, url string) *informer.Factory {
	t.Helper()
	cfg := &rest.Config{Host: url, Transport: &http.Transport{DisableKeepAlives: true}}
	factory, err := informer.NewFactory(backend, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return factory
}

// TestForRequests checks what informers of For ask a server for.
func TestForRequests(t *testing.T) {
	a := &asked{}
	server := httptest.NewServer(a)
	defer server.Close()
	factory := factoryOn(t, mem.New(), server.URL)
	synced := func(inf *informer.Informer, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		runSynced(t, inf)()
	}
	pods, err := informer.For[*corev1.Pod](factory, informer.ForOptions{Namespace: "default", LabelSelector: "app=web,tier in (b,a)", FieldSelector: "spec.nodeName=n"})
	synced(pods.Informer, err)
	roles, err := informer.For[*rbacv1.ClusterRole](factory, informer.ForOptions{})
	synced(roles.Informer, err)
	endpoints, err := informer.For[*corev1.Endpoints](factory, informer.ForOptions{}) //nolint:staticcheck // an irregular plural
	synced(endpoints.Informer, err)
	named, err := informer.For[*corev1.ConfigMap](factory, informer.ForOptions{Resource: "others"})
	synced(named.Informer, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, want := range []string{
		"/api/v1/namespaces/default/pods labels=app=web,tier in (a,b) fields=spec.nodeName=n",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles labels= fields=",
		"/api/v1/endpoints labels= fields=",
		"/api/v1/others labels= fields=",
	} {
		if !slices.Contains(a.lists, want) {
			t.Errorf("%q was not asked for, but %q", want, a.lists)
		}
	}
}

// TestForRestarts checks that an informer of For is persistent, and reads with its own
// indexers and its lister.
func TestForRestarts(t *testing.T) {
	c := &cluster{uid: "one", rv: "10", objects: []string{"a", "b"}, watched: make(chan string, 10)}
	server := httptest.NewServer(c)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "informers.db")
	run := func() {
		t.Helper()
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		factory := factoryOn(t, db, server.URL)
		maps, err := informer.For[*corev1.ConfigMap](factory, informer.ForOptions{Indexers: cache.Indexers{
			"name": func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Name}, nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		done := make(chan struct{})
		go func() {
			defer close(done)
			maps.RunWithContext(ctx)
		}()
		<-maps.HasSyncedChecker().Done()
		all, err := maps.Lister().InNamespace("default").List(labels.Everything())
		if err != nil || len(all) != 2 {
			t.Errorf("%d objects, error %v", len(all), err)
		}
		if found, err := maps.GetIndexer().ByIndex("name", "a"); err != nil || len(found) != 1 {
			t.Errorf("%d objects by an index, error %v", len(found), err)
		}
		<-c.watched
		cancel()
		<-done
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	run()
	c.set(func(c *cluster) { c.lists = 0 })
	run()
	c.set(func(c *cluster) {
		if c.lists > 0 {
			t.Errorf("the second start made %d lists", c.lists)
		}
	})
}

// stranger is a type that client-go's scheme does not have.
type stranger struct{ corev1.ConfigMap }

// TestForRefuses checks that mistakes are named.
func TestForRefuses(t *testing.T) {
	factory := factoryOn(t, mem.New(), "http://127.0.0.1:1")
	of := func(_ any, err error) error { return err }
	empty := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	twice := runtime.NewScheme()
	twice.AddKnownTypeWithName(schema.GroupVersionKind{Group: "a", Version: "v1", Kind: "One"}, &corev1.ConfigMap{})
	twice.AddKnownTypeWithName(schema.GroupVersionKind{Group: "b", Version: "v1", Kind: "Two"}, &corev1.ConfigMap{})
	for want, err := range map[string]error{
		"Factory of For is nil":          of(informer.For[*corev1.Pod](nil, informer.ForOptions{})),
		"want a pointer to a struct":     of(informer.For[runtime.Object](factory, informer.ForOptions{})),
		"want ForOptions.Scheme":         of(informer.For[*stranger](factory, informer.ForOptions{})),
		"want one kind":                  of(informer.For[*corev1.ConfigMap](factory, informer.ForOptions{Scheme: twice})),
		`label selector "a=("`:           of(informer.For[*corev1.Pod](factory, informer.ForOptions{LabelSelector: "a=("})),
		`field selector "spec.nodeName"`: of(informer.For[*corev1.Pod](factory, informer.ForOptions{FieldSelector: "spec.nodeName"})),
		`no matches for kind "Pod"`:      of(informer.For[*corev1.Pod](factory, informer.ForOptions{Mapper: empty})),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}
