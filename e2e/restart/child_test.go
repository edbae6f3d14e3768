package restart_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// childDir is the environment variable with the directory in which a child runs the
// informers of all scopes on a file.
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
	{testobjects.WidgetResource, testobjects.WidgetKind, func() runtime.Object { return &testobjects.TypedWidget{} }},
}

// listWatch returns a ListerWatcher of a collection as users of client-go make one:
// typed, with protobuf if the kind supports it, or unstructured.
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
	if err := testobjects.AddToScheme(s); err != nil {
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

// name returns the name of a scope, such as "pods typed".
func (c collection) name(form store.Form) string { return c.resource.Resource + " " + form.String() }

// report is the state of one scope in the child.
type report struct {
	Handler, Store map[string]guarantees.State
	Violations     []string
	Told           guarantees.Count
	Synced         bool
	Lists          int
	RV             string
}

// heldFile is the file in which a child finds the objects that the handlers of the last
// child held.
const heldFile = "held.json"

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
	var held map[string]map[string]guarantees.State
	b, err := os.ReadFile(filepath.Join(dir, heldFile))
	if err == nil {
		err = json.Unmarshal(b, &held)
	}
	if err != nil {
		return err
	}
	informers := map[string]*informer.Informer{}
	handlers := map[string]*guarantees.Recorder{}
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
			r := guarantees.New(held[c.name(form)])
			h, err := inf.AddEventHandler(r)
			if err != nil {
				return err
			}
			r.Registered(h)
			informers[c.name(form)], handlers[c.name(form)] = inf, r
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
			for _, r := range handlers {
				err = errors.Join(err, r.Await(ctx, arg))
			}
			if err == nil {
				err = answer.Encode("seen")
			}
		case "rest", "report":
			var reports map[string]report
			if reports, err = makeReports(informers, handlers, command == "rest"); err == nil {
				err = answer.Encode(reports)
			}
		case "stop":
			cancel()
			running.Wait()
			for _, r := range handlers {
				r.End()
			}
			if err := db.Close(); err != nil {
				return err
			}
			broken := []string{}
			for _, r := range handlers {
				broken = append(broken, violations(r)...)
			}
			return answer.Encode(broken)
		}
		if err != nil {
			return err
		}
	}
	return commands.Err()
}

// makeReports returns the state of the informers. If atRest is set, it also checks that
// the handlers hold the same objects as the stores.
func makeReports(informers map[string]*informer.Informer, handlers map[string]*guarantees.Recorder, atRest bool) (map[string]report, error) {
	out := map[string]report{}
	for name, inf := range informers {
		held, err := guarantees.States(inf.GetIndexer().List())
		if err != nil {
			return nil, err
		}
		h := handlers[name]
		if atRest {
			h.AtRest(held)
		}
		status := inf.Status()
		out[name] = report{
			Handler: h.Held(), Store: held, Violations: violations(h), Told: h.Count(),
			Synced: status.Synced, Lists: status.Lists, RV: status.Checkpoint.RV,
		}
	}
	return out, nil
}

func violations(r *guarantees.Recorder) (out []string) {
	for _, violation := range r.Violations() {
		out = append(out, violation.Error())
	}
	return out
}
