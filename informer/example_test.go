package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

func podListWatch(c kubernetes.Interface) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.CoreV1().Pods("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.CoreV1().Pods("").Watch(ctx, o)
		},
	}, c)
}

// podServer returns an API server in memory with pods of these names.
func podServer(names ...string) *fakeapi.Server {
	server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
	for _, name := range names {
		_, err := server.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}})
		check(err)
	}
	return server
}

// withNamespace is a transport that has the namespace which tells clusters apart.
type withNamespace struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w withNamespace) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
		return w.next.RoundTrip(r)
	}
	out := httptest.NewRecorder()
	out.Header().Set("Content-Type", runtime.ContentTypeJSON)
	err := json.NewEncoder(out).Encode(&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "example"},
	})
	return out.Result(), err
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// An informer alone, with an index whose entries survive a restart.
func ExampleNew() {
	run := func(ctx context.Context, cfg *rest.Config, client kubernetes.Interface) error {
		identify := func(ctx context.Context) (string, error) { return informer.ClusterIdentity(ctx, cfg) }
		cluster, err := identify(ctx)
		if err != nil {
			return err
		}
		db, err := bolt.Open("/var/cache/app/informers.db", bolt.Options{})
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		inf, err := informer.New(podListWatch(client), &corev1.Pod{}, informer.Options{
			Backend:  db,
			Scope:    store.Scope{Cluster: cluster},
			Identify: identify,
			Indexes:  []index.Index{index.Namespace(), index.Label("app")},
		})
		if err != nil {
			return err
		}
		_, err = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { fmt.Println("added", obj.(*corev1.Pod).Name) },
		})
		if err != nil {
			return err
		}
		inf.RunWithContext(ctx) // until the context ends
		return nil
	}
	_ = run
	// Output:
}

// client-go's typed factory: its listers work on ours.
func ExampleFactory() {
	run := func(ctx context.Context, cfg *rest.Config, path string) error {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			return err
		}
		// Before the clientset.
		persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		factory.InformerFor(&corev1.Pod{}, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			return persistent.NewInformer(podListWatch(c), &corev1.Pod{}, resync,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		})
		pods := factory.Core().V1().Pods().Lister()
		ctx, stop := context.WithCancel(ctx)
		factory.StartWithContext(ctx)
		factory.WaitForCacheSyncWithContext(ctx)
		pod, err := pods.Pods("default").Get("web-1")
		if err == nil {
			fmt.Println(pod.Name, "has the label", pod.Labels["app"])
		}
		stop()
		factory.Shutdown()
		return errors.Join(err, db.Close())
	}

	dir, err := os.MkdirTemp("", "")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	cfg := podServer("web-1", "web-2").Config(runtime.ContentTypeProtobuf)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return withNamespace{next} })
	check(run(context.Background(), cfg, filepath.Join(dir, "informers.db")))

	// Output:
	// web-1 has the label web
}

// A lister that applies label selectors before it decodes.
func ExampleLister() {
	list := func(inf *informer.Informer) error {
		pods, err := informer.NewLister[*corev1.Pod](inf)
		if err != nil {
			return err
		}
		web, err := pods.InNamespace("default").List(labels.SelectorFromSet(labels.Set{"app": "web"}))
		if err != nil {
			return err
		}
		fmt.Println(len(web), "of app web")
		for pod, err := range pods.All(labels.Everything()) { // holds no transaction
			if err != nil {
				return err
			}
			fmt.Println(pod.Name)
		}
		return nil
	}
	_ = list
	// Output:
}

// The pods of a namespace, a page at a time.
func ExampleLister_Page() {
	list := func(inf cache.SharedIndexInformer) error {
		pods, err := informer.ListerOf[*corev1.Pod](inf)
		if err != nil {
			return err
		}
		for after := ""; ; {
			page, next, err := pods.Page(store.Query{Namespace: "default", Limit: 500, After: after})
			if err != nil {
				return err
			}
			for _, pod := range page {
				fmt.Println(pod.Name)
			}
			if after = next; next == "" {
				return nil
			}
		}
	}

	inf, err := informer.New(podServer("web-1", "web-2"), &corev1.Pod{}, informer.Options{Backend: mem.New(), Scope: store.Scope{Cluster: "example"}})
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	<-inf.HasSyncedChecker().Done()
	check(list(inf))
	stop()
	running.Wait()

	// Output:
	// web-1
	// web-2
}

// A factory whose informers of one type have stored indexes, and of another a longer
// history.
func ExampleFactoryOptions() {
	opts := informer.FactoryOptions{Configure: func(example runtime.Object, o *informer.Options) {
		switch example.(type) {
		case *corev1.Pod:
			o.Indexes = []index.Index{index.Label("app")}
		case *appsv1.Deployment:
			o.History = store.History{Bytes: 256 << 20, Age: 7 * 24 * time.Hour}
		}
	}}
	_ = opts
	// Output:
}

// The pods of one namespace with one label, and their lister, without a client.
func ExampleFor() {
	run := func(ctx context.Context, factory *informer.Factory) error {
		pods, err := informer.For[*corev1.Pod](factory, informer.ForOptions{Namespace: "default", LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		go pods.RunWithContext(ctx)
		<-pods.HasSyncedChecker().Done()
		web, err := pods.Lister().List(labels.Everything())
		fmt.Println(len(web), "pods")
		return err
	}
	_ = run
	// Output:
}
