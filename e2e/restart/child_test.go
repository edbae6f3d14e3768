package restart_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/child"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/testdata/objects"
)

// childDir names the variable with the directory in which a child runs the informers
// of all scopes on a file.
const childDir = "INFORMCTL_E2E_CHILD"

func TestMain(m *testing.M) { child.Main(m, childDir, runChild) }

// collection is one resource that the tests use.
type collection struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	typed    func() runtime.Object
}

var collections = []collection{
	{corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), func() runtime.Object { return &corev1.Pod{} }},
	{corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), func() runtime.Object { return &corev1.ConfigMap{} }},
	{objects.WidgetResource, objects.WidgetKind, func() runtime.Object { return &objects.TypedWidget{} }},
}

// listWatch returns a ListerWatcher of a collection, typed (over protobuf where
// the kind has it) or unstructured, as client-go's users make one.
func (c collection) listWatch(cfg *rest.Config, form store.Form, namespace string) (cache.ListerWatcher, error) {
	if form == store.Unstructured {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		r := client.Resource(c.resource).Namespace(namespace)
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return r.Watch(ctx, o)
			},
		}, nil
	}
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		return nil, err
	}
	if err := objects.AddToScheme(s); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	gv := c.resource.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	if gv.Group == "" {
		cfg.APIPath, cfg.ContentType = "/api", runtime.ContentTypeProtobuf
	}
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return cache.NewListWatchFromClient(client, c.resource.Resource, namespace, fields.Everything()), nil
}

func (c collection) example(form store.Form) runtime.Object {
	if form == store.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(c.kind)
		return u
	}
	return c.typed()
}

// name tells scopes apart: "pods typed".
func (c collection) name(form store.Form) string { return c.resource.Resource + " " + form.String() }

// state is an object as the tests compare it.
type state struct {
	UID, RV string
	Hash    string // of its JSON
}

func stateOf(obj runtime.Object) state {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return state{Hash: err.Error()}
	}
	obj = obj.DeepCopyObject()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		delete(u.Object, "kind")
		delete(u.Object, "apiVersion")
	} else {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return state{Hash: err.Error()}
	}
	sum := sha256.Sum256(b)
	return state{UID: string(accessor.GetUID()), RV: accessor.GetResourceVersion(), Hash: hex.EncodeToString(sum[:8])}
}

// view is what one handler was told, folded.
type view struct {
	mu      sync.Mutex
	changed *sync.Cond
	objects map[string]state
	deleted map[string]state // last known state, by key
	faults  []string         // what broke a guarantee
	updates int
}

func newView() *view {
	v := &view{objects: map[string]state{}, deleted: map[string]state{}}
	v.changed = sync.NewCond(&v.mu)
	return v
}

func (v *view) do(obj any, f func(key string, s state)) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	o, ok := obj.(runtime.Object)
	if err != nil || !ok || o == nil {
		v.faults = append(v.faults, fmt.Sprintf("%q: no object", key))
		return
	}
	f(key, stateOf(o))
	v.changed.Broadcast()
}

// OnAdd, OnUpdate and OnDelete check the named guarantees as they fold: one add
// per object and start, no update before it, old is what was last delivered.
func (v *view) OnAdd(obj any, _ bool) {
	v.do(obj, func(key string, s state) {
		if _, there := v.objects[key]; there {
			v.faults = append(v.faults, key+": added twice")
		}
		v.objects[key] = s
	})
}

func (v *view) OnUpdate(old, obj any) {
	was := stateOf(old.(runtime.Object))
	v.do(obj, func(key string, s state) {
		v.updates++
		if v.objects[key] != was {
			v.faults = append(v.faults, fmt.Sprintf("%s: update from %v, last delivered was %v", key, was, v.objects[key]))
		}
		v.objects[key] = s
	})
}

func (v *view) OnDelete(obj any) {
	v.do(obj, func(key string, s state) {
		if was, there := v.objects[key]; !there || was.UID != s.UID {
			v.faults = append(v.faults, key+": deletion of what was not delivered")
		}
		v.deleted[key] = v.objects[key]
		delete(v.objects, key)
	})
}

// await blocks until an object of that name was added.
func (v *view) await(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		if _, there := v.objects[key]; there {
			return
		}
		v.changed.Wait()
	}
}

// report is what the child says of one scope.
type report struct {
	Handler, Store, Deleted map[string]state
	Faults                  []string
	Updates                 int
	Synced                  bool
	Lists                   int
	RV                      string
}

func runChild(ctx context.Context, dir string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return err
	}
	cfg.UserAgent = "informctl-e2e/" + os.Getenv(childDir+"_RUN")
	cfg.QPS = -1
	db, err := bolt.Open(filepath.Join(dir, "informers.db"), bolt.Options{})
	if err != nil {
		return err
	}
	policy := informer.CaughtUp
	if os.Getenv(childDir+"_LOADED") != "" {
		policy = informer.Loaded
	}
	informers := map[string]*informer.Informer{}
	views := map[string]*view{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for _, c := range collections {
		for _, form := range []store.Form{store.Typed, store.Unstructured} {
			lw, err := c.listWatch(cfg, form, "")
			if err != nil {
				return err
			}
			inf, err := informer.New(lw, c.example(form), informer.Options{
				Backend: db, SyncWhen: policy,
				Scope:   store.Scope{Kind: c.kind, Resource: c.resource.GroupResource().String()},
				Indexes: []index.Index{index.Namespace(), index.Label("app")},
			})
			if err != nil {
				return err
			}
			v := newView()
			if _, err := inf.AddEventHandler(v); err != nil {
				return err
			}
			informers[c.name(form)], views[c.name(form)] = inf, v
			running.Go(func() { inf.RunWithContext(ctx) })
		}
	}
	answer := json.NewEncoder(os.Stdout)
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		command, arg, _ := strings.Cut(commands.Text(), " ")
		switch command {
		case "sync":
			for _, inf := range informers {
				<-inf.HasSyncedChecker().Done()
			}
			err = answer.Encode("synced")
		case "await":
			for _, v := range views {
				v.await(arg)
			}
			err = answer.Encode("seen")
		case "report":
			err = answer.Encode(makeReport(informers, views))
		case "stop":
			cancel()
			running.Wait()
			if err := db.Close(); err != nil {
				return err
			}
			return answer.Encode("stopped")
		}
		if err != nil {
			return err
		}
	}
	return commands.Err()
}

func makeReport(informers map[string]*informer.Informer, views map[string]*view) map[string]report {
	out := map[string]report{}
	for name, inf := range informers {
		v := views[name]
		r := report{Handler: map[string]state{}, Store: map[string]state{}, Deleted: map[string]state{}}
		for _, obj := range inf.GetIndexer().List() {
			key, err := cache.MetaNamespaceKeyFunc(obj)
			if err != nil {
				r.Faults = append(r.Faults, err.Error())
			}
			r.Store[key] = stateOf(obj.(runtime.Object))
		}
		v.mu.Lock()
		for key, s := range v.objects {
			r.Handler[key] = s
		}
		for key, s := range v.deleted {
			r.Deleted[key] = s
		}
		r.Faults, r.Updates = append(r.Faults, v.faults...), v.updates
		v.mu.Unlock()
		status := inf.Status()
		r.Synced, r.Lists, r.RV = status.Synced, status.Lists, status.Checkpoint.RV
		out[name] = r
	}
	return out
}
