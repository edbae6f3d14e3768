package watch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/program"
	"github.com/informctl/informctl/internal/testobjects"
)

var (
	pods     = flag.Int("pods", 1000, "how many pods there are")
	duration = flag.Duration("duration", 15*time.Second, "how long pods are changed, 20 a second")
)

const (
	kills     = 5
	namespace = "ns-00"
)

// TestKilled follows pods with one client of all and one with a selector, while pods are
// created, deleted and change their labels. The process that keeps the file is killed
// five times, and a client each time, before or after it. From the resource version of
// the beginning on, what the clients print has to add up to what the server has.
func TestKilled(t *testing.T) {
	cp := controlplanetest.Start(t, controlplane.Options{})
	if err := controlplane.Load(t.Context(), cp.Config(), controlplane.LoadOptions{Pods: *pods}); err != nil {
		t.Fatal(err)
	}
	cfg := cp.Config()
	cfg.QPS = -1
	w := &world{T: t, client: kubernetes.NewForConfigOrDie(cfg), program: program.Informctl(t), dir: t.TempDir(), kubeconfig: cp.Kubeconfig()}
	keeper := w.keep()
	keeper.stop() // so that the list is written: the log begins there
	var info struct {
		Scopes []struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(w.output("info", "-o", "json"), &info); err != nil {
		t.Fatal(err)
	}
	rv := info.Scopes[0].ResourceVersion
	clients := []*client{
		{world: w, selector: labels.Everything(), rv: rv},
		{world: w, selector: labels.SelectorFromSet(labels.Set{"app": "web"}), rv: rv},
	}
	for _, c := range clients {
		c.held, c.gone, c.awaited = w.server(c.selector), sets.New[string](), map[string]chan struct{}{}
	}
	keeper = w.keep()
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range kills {
		for _, c := range clients {
			c.start()
		}
		stop := w.churn(rng.Uint64())
		w.pass(*duration / kills / 2)
		first := clients[round%2]
		if round < kills-1 {
			first.kill() // it misses what comes until the other process is back
		}
		w.pass(*duration / kills / 4)
		keeper.kill()
		for _, c := range clients {
			c.wait()
		}
		w.pass(*duration / kills / 4)
		keeper = w.keep()
		for _, c := range clients {
			c.start()
		}
		stop()
		last := w.create(fmt.Sprintf("last-%d", round), "web")
		for _, c := range clients {
			c.await(last)
			if diff := cmp.Diff(w.server(c.selector), c.holds()); diff != "" {
				t.Fatalf("after kill %d, %q at %s (-server +client):\n%s", round+1, c.selector, c.rv, diff)
			}
			c.kill()
		}
	}
	for _, c := range clients {
		t.Logf("%q: %d lines, %d deletions, %d of them again", c.selector, c.lines, c.deletions, c.again)
	}
	if all := clients[0]; all.again > 0 {
		t.Errorf("a client of all pods received %d deletions again", all.again)
	}
	if deleted := w.deleted; deleted < kills {
		t.Errorf("%d deletions: the test proves nothing", deleted)
	}
	keeper.stop()
}

// client is one "informctl watch" after the other, and what its lines add up to.
type client struct {
	*world
	selector labels.Selector
	process  *process

	mu        sync.Mutex        // protects the fields below
	held      map[string]string // resource versions by key
	gone      sets.Set[string]  // what it received as deleted
	rv        string            // where the next one goes on
	awaited   map[string]chan struct{}
	lines     int
	deletions int
	again     int // deletions of what was deleted
}

func (c *client) start() {
	c.Helper()
	args := []string{"watch", "pods", "-o", "json", "--since-rv", c.at()}
	if !c.selector.Empty() {
		args = append(args, "-l", c.selector.String())
	}
	c.process = c.run(args...)
	lines := bufio.NewReader(c.process.out)
	c.process.reads(func() bool {
		line, err := lines.ReadBytes('\n')
		if err == nil { // a line that was cut off is not one
			c.take(line)
		}
		return err == nil
	})
}

func (c *client) at() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rv
}

// take adds a line to what the client holds.
func (c *client) take(line []byte) {
	var change struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(line, &change); err != nil {
		c.Errorf("%s: %v", line, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := change.Object.Namespace + "/" + change.Object.Name
	c.lines++
	c.rv = change.Object.ResourceVersion
	if change.Type != "DELETED" {
		c.held[key] = change.Object.ResourceVersion
		if found := c.awaited[key]; found != nil {
			close(found)
			delete(c.awaited, key)
		}
		return
	}
	c.deletions++
	if c.gone.Has(key) && c.held[key] == "" {
		c.again++
	}
	c.gone.Insert(key)
	delete(c.held, key)
}

func (c *client) await(key string) {
	c.Helper()
	c.mu.Lock()
	found := make(chan struct{})
	if _, ok := c.held[key]; ok {
		close(found)
	} else {
		c.awaited[key] = found
	}
	c.mu.Unlock()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	select {
	case <-found:
	case <-c.process.ended:
		c.Fatalf("the watch ended: %s", c.process.log())
	case <-timeout.C:
		c.Fatalf("%q: %s has not come within a minute", c.selector, key)
	}
}

func (c *client) holds() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.held)
}

func (c *client) kill() { c.process.kill() }

// wait waits until the watch has ended because the process that it follows has.
func (c *client) wait() {
	c.Helper()
	<-c.process.ended
}

// world is a control plane, the program and a directory with its file.
type world struct {
	*testing.T
	client                   kubernetes.Interface
	program, dir, kubeconfig string
	deleted                  int
}

// server returns the resource versions of the pods on the server.
func (w *world) server(selector labels.Selector) map[string]string {
	w.Helper()
	list, err := w.client.CoreV1().Pods("").List(w.Context(), metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Namespace+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return out
}

func (w *world) create(name, app string) (key string) {
	w.Helper()
	if err := w.createPod(w.Context(), name, app); err != nil {
		w.Fatal(err)
	}
	return namespace + "/" + name
}

func (w *world) createPod(ctx context.Context, name, app string) error {
	pod := testobjects.Pod(0, 1)
	testobjects.ClearServerFields(pod)
	pod.Name, pod.Namespace, pod.Labels = name, namespace, map[string]string{"app": app}
	_, err := w.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// churn creates and deletes pods, each with a name of its own, and changes their labels,
// 20 times a second, until stop is called.
func (w *world) churn(seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 0))
		tick := time.NewTicker(time.Second / 20)
		defer tick.Stop()
		var names []string
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := w.change(ctx, rng, &names, fmt.Sprintf("churn-%x-%d", seed, n)); err != nil && ctx.Err() == nil {
				w.Errorf("churn: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (w *world) change(ctx context.Context, rng *rand.Rand, names *[]string, name string) error {
	app := []string{"web", "db"}[rng.IntN(2)]
	if len(*names) < 5 || rng.IntN(3) == 0 {
		*names = append(*names, name)
		return w.createPod(ctx, name, app)
	}
	i := rng.IntN(len(*names))
	name = (*names)[i]
	if rng.IntN(2) == 0 {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"app":%q},"annotations":{"n":"%d"}}}`, app, rng.Int())
		_, err := w.client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	*names = append((*names)[:i], (*names)[i+1:]...)
	w.deleted++
	return w.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
}

// pass waits: the schedule of the test is one of wall-clock time.
func (w *world) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.Context().Done():
	}
}
