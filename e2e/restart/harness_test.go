package restart_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/e2e/child"
	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
)

// world is a control plane, a directory for the child, and a client.
type world struct {
	t      *testing.T
	cp     *controlplane.ControlPlane
	dir    string
	client dynamic.Interface
	runs   int
	seq    int
	// held contains what handlers held and is stored for certain, by handler and key.
	held map[string]map[string]guarantees.State
}

func newWorld(t *testing.T, opts controlplane.Options) *world {
	t.Helper()
	cp := controlplanetest.Start(t, opts)
	if err := controlplane.Load(t.Context(), cp.Config(), controlplane.LoadOptions{Pods: 10, Widgets: 10}); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cp: cp, dir: t.TempDir(), client: dynamic.NewForConfigOrDie(cp.Config())}
	w.useKubeconfig(cp.Kubeconfig())
	return w
}

func (w *world) useKubeconfig(path string) {
	w.t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, "kubeconfig"), b, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// life is a running process of informers.
type life struct {
	*child.Process
	w       *world
	agent   string
	started time.Time
}

func (w *world) start(env ...string) *life {
	w.t.Helper()
	w.runs++
	run := fmt.Sprintf("run-%d", w.runs)
	held, err := json.Marshal(w.held)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, heldFile), held, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(w.dir, run+".log"))
	if err != nil {
		w.t.Fatal(err)
	}
	started := time.Now()
	p, err := child.Start(w.t.Context(), log, append(env, childDir+"="+w.dir, childDir+"_RUN="+run)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.Kill()
		_ = log.Close()
		if w.t.Failed() {
			if b, err := os.ReadFile(log.Name()); err == nil {
				w.t.Logf("log of %s:\n%s", run, tail(string(b), 6000))
			}
		}
	})
	return &life{Process: p, w: w, agent: "informctl-e2e/" + run, started: started}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func (c *life) ask(command string, answer any) {
	c.w.t.Helper()
	if err := c.Ask(command, 2*time.Minute, answer); err != nil {
		c.w.t.Fatal(err)
	}
}

func (c *life) sync() {
	var s string
	c.ask("sync", &s)
}

func (c *life) report() map[string]report {
	var r map[string]report
	c.ask("report", &r)
	return r
}

// stop ends the process as SIGTERM does: the process writes what it has received.
func (c *life) stop() {
	c.w.t.Helper()
	var violations []string
	c.ask("stop", &violations)
	_ = c.Wait()
	for _, violation := range violations {
		c.w.t.Error(violation)
	}
}

// kill kills the process, as a power cut would. Objects that churn changes are removed
// from w.held, because the file may have an older state of them or none.
func (c *life) kill() {
	c.Kill()
	for _, held := range c.w.held {
		maps.DeleteFunc(held, func(key string, _ guarantees.State) bool { return strings.HasPrefix(key, "ns-00/churn-") })
	}
}

// atRest creates two objects in each collection, one after the other, and waits until
// every handler has received them. Events arrive in order, so the handlers have then
// received all earlier events too: the first object may come with a list, whose other
// changes follow it. Then atRest checks that handlers, store and server are equal.
func (c *life) atRest() map[string]report {
	w := c.w
	w.t.Helper()
	for range 2 {
		w.seq++
		name := fmt.Sprintf("sentinel-%d", w.seq)
		for _, col := range collections {
			w.create(col, col.object(1_000_000+w.seq, "default", name))
		}
		var s string
		c.ask("await default/"+name, &s)
	}
	var reports map[string]report
	c.ask("rest", &reports)
	w.held = map[string]map[string]guarantees.State{}
	for _, col := range collections {
		for _, form := range []store.Form{store.Typed, store.Unstructured} {
			name := col.name(form)
			r := reports[name]
			for _, violation := range r.Violations {
				w.t.Errorf("%s: %s", name, violation)
			}
			if diff := cmp.Diff(w.server(col, form), r.Store); diff != "" {
				w.t.Errorf("%s: store (-server +store):\n%s", name, diff)
			}
			w.held[name] = r.Handler
		}
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
	return reports
}

// server lists a collection with that form of client.
func (w *world) server(col collection, form store.Form) map[string]guarantees.State {
	w.t.Helper()
	lw, err := col.listWatch(w.cp.Config(), form, "")
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := cache.ToListerWithContext(lw).ListWithContext(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := guarantees.States(items)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// object returns an object of the collection to be created.
func (c collection) object(i int, namespace, name string) *unstructured.Unstructured {
	var u *unstructured.Unstructured
	switch c.resource.Resource {
	case "pods":
		u = toUnstructured(testobjects.Pod(i, 1))
		unstructured.RemoveNestedField(u.Object, "status")
	case "configmaps":
		u = toUnstructured(testobjects.ConfigMap(i, 1))
	default:
		u = testobjects.Widget(i, 1)
	}
	testobjects.ClearServerFields(u)
	u.SetGroupVersionKind(c.kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func toUnstructured(obj runtime.Object) *unstructured.Unstructured {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: m}
}

func (w *world) create(col collection, u *unstructured.Unstructured) {
	w.t.Helper()
	_, err := w.client.Resource(col.resource).Namespace(u.GetNamespace()).Create(w.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(col collection, namespace, name string) {
	w.t.Helper()
	zero := int64(0)
	err := w.client.Resource(col.resource).Namespace(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	if err != nil {
		w.t.Fatal(err)
	}
}

// annotate changes one object.
func (w *world) annotate(ctx context.Context, col collection, namespace, name, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"changed":%q}}}`, value)
	_, err := w.client.Resource(col.resource).Namespace(namespace).Patch(ctx, name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	return err
}

// churn creates, changes and deletes objects of all collections, 50 times a second in
// total, until stop is called. Nothing else uses the names of these objects.
func (w *world) churn(seed int64) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		rng := rand.New(rand.NewSource(seed))
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			col := collections[rng.Intn(len(collections))]
			if err := w.change(ctx, rng, col, n); err != nil && ctx.Err() == nil {
				w.t.Errorf("churn: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (w *world) change(ctx context.Context, rng *rand.Rand, col collection, n int) error {
	i := rng.Intn(40)
	r := w.client.Resource(col.resource).Namespace("ns-00")
	name := fmt.Sprintf("churn-%d", i)
	var err error
	switch rng.Intn(5) {
	case 0:
		zero := int64(0)
		err = r.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	case 1:
		_, err = r.Create(ctx, col.object(i, "ns-00", name), metav1.CreateOptions{})
	default:
		err = w.annotate(ctx, col, "ns-00", name, fmt.Sprint(n))
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// collectionLists returns the lists of whole collections that a child requested since it
// started. Probes are not counted.
func (c *life) collectionLists() []string {
	c.w.t.Helper()
	requests, err := c.w.cp.Requests(c.started)
	if err != nil {
		c.w.t.Fatal(err)
	}
	var out []string
	for _, r := range requests {
		if !strings.HasPrefix(r.UserAgent, c.agent) {
			continue
		}
		if r.IsList() {
			out = append(out, r.Verb+" "+r.URI)
		}
	}
	return out
}

// eventually polls until the API server has reached a state that it does not announce.
func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			w.t.Fatalf("not within a minute: %s", what)
		}
	}
}
