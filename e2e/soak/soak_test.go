package soak_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/soak"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var (
	duration = flag.Duration("soak.duration", 75*time.Second, "begin rounds for so long")
	seedFlag = flag.Int64("seed", 0, "seed of what happens when; 0 is another one each time")
)

const (
	roundTime   = 25 * time.Second      // faults and changes, before all faults end
	changeEvery = 50 * time.Millisecond // 20 changes a second
	namesEach   = 60                    // maximum of the changing objects in a collection
	stackDump   = syscall.SIGQUIT
)

// world is a control plane behind a proxy, a disk, and the process that uses them. The
// fields belong to the test's goroutine. During a round, each field belongs to the
// goroutine that causes that kind of fault.
type world struct {
	t      *testing.T
	cp     *controlplane.ControlPlane
	proxy  *soak.Proxy
	server clients // not through the proxy
	dir    string
	disk   *disk
	life   *life
	rounds int
	tally  tally
	there  map[string]bool // existing objects that are changed
	// held contains what handlers held and is stored for certain, by collection and key.
	held map[string]map[string]guarantees.State
	down atomic.Bool // the API server is being restarted
}

// TestSoak checks all promises together: after any faults of process, network, server and
// disk have ended, handlers, store, file and server agree, and no goroutine or descriptor
// is left.
func TestSoak(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Logf("-seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	w := newWorld(t)
	begin := time.Now()
	defer func() { t.Logf("in %v:\n%s", time.Since(begin).Round(time.Second), w.tally.table()) }()
	for time.Since(begin) < *duration {
		w.rounds++
		err := w.round(rng.Int63())
		if err == nil {
			err = w.atRest()
		}
		if err != nil {
			log := readLog(w.log())
			t.Fatalf("log of round %d:\n%s\nround %d: %v", w.rounds, log[max(0, len(log)-8000):], w.rounds, err)
		}
		w.tally.add("rounds")
		w.tally.addN("commits that failed", strings.Count(readLog(w.log()), "Could not write the cache"))
		_ = os.Remove(w.log())
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), there: map[string]bool{}, tally: tally{counts: map[string]int{}}}
	// Without a watch cache, a compaction at once ends the history of a client that lags;
	// with a watch cache, a restart ends it.
	cp := controlplanetest.Start(t, controlplane.Options{
		APIServerArgs: []string{"--watch-cache-sizes=configmaps#0,deployments.apps#0"},
	})
	w.cp = cp
	var err error
	if err = controlplane.Load(t.Context(), cp.Config(), controlplane.LoadOptions{Pods: 20, Widgets: 20}); err != nil {
		t.Fatal(err)
	}
	if w.proxy, err = soak.NewProxy(strings.TrimPrefix(cp.Config().Host, "https://")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.proxy.Close)
	if w.server, err = newClients(cp.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.server.http.CloseIdleConnections)
	w.disk = newDisk(t, filepath.Join(w.dir, "disk"))
	w.writeKubeconfig()
	t.Cleanup(func() {
		if w.life != nil {
			w.life.Kill()
		}
	})
	return w
}

// writeKubeconfig sets the address of the proxy in the child's kubeconfig.
func (w *world) writeKubeconfig() {
	w.t.Helper()
	cfg, err := clientcmd.LoadFromFile(w.cp.Kubeconfig())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server = "https://" + w.proxy.Addr()
	}
	if err := clientcmd.WriteToFile(*cfg, filepath.Join(w.dir, "kubeconfig")); err != nil {
		w.t.Fatal(err)
	}
}

// round makes changes and faults for a while, each kind in its own goroutine, and then
// ends the faults.
func (w *world) round(seed int64) error {
	if err := w.startLife(); err != nil {
		return err
	}
	seeds := rand.New(rand.NewSource(seed))
	g, ctx := errgroup.WithContext(w.t.Context())
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	for _, part := range []func(context.Context, *rand.Rand) error{w.changes, w.kills, w.cuts, w.restarts, w.compactions, w.fullDisks} {
		rng := rand.New(rand.NewSource(seeds.Int63()))
		g.Go(func() error { return part(ctx, rng) })
	}
	return g.Wait()
}

// pause waits for a random time from least to most and reports whether the round
// continues.
func pause(ctx context.Context, rng *rand.Rand, least, most time.Duration) bool {
	t := time.NewTimer(least + time.Duration(rng.Int63n(int64(most-least))))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// changes changes objects on the server. w.there is set by the server's answers.
func (w *world) changes(ctx context.Context, rng *rand.Rand) error {
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		c, i := collections[rng.Intn(len(collections))], rng.Intn(namesEach)
		id := fmt.Sprint(c.name(), i)
		down := w.down.Load()
		what, err := w.change(ctx, rng, c, i, w.there[id])
		switch {
		case err == nil:
			w.tally.add("changes: " + what)
			w.there[id] = what != "deleted"
		case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
			w.there[id] = !w.there[id]
		// The change may or may not have been made.
		case down || w.down.Load() || ctx.Err() != nil:
		default:
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// change creates an object if it is not there, and otherwise updates or deletes it.
func (w *world) change(ctx context.Context, rng *rand.Rand, c collection, i int, there bool) (what string, err error) {
	name := fmt.Sprintf("soak-%d", i)
	switch {
	case !there:
		return "created", w.create(ctx, c, i, name)
	case rng.Intn(5) == 0:
		return "deleted", w.delete(ctx, c, name)
	}
	// Some changes are large, so that the file grows and meets a full disk.
	b := make([]byte, 8)
	if rng.Intn(4) == 0 {
		b = make([]byte, rng.Intn(48<<10))
	}
	_, _ = rng.Read(b)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%x"}}}`, b)
	_, err = w.server.dynamic.Resource(c.resource).Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return "updated", err
}

const namespace = "ns-00"

func (w *world) create(ctx context.Context, c collection, i int, name string) error {
	obj, err := c.make(i, namespace, name)
	if err == nil {
		_, err = w.server.dynamic.Resource(c.resource).Namespace(namespace).Create(ctx, obj, metav1.CreateOptions{})
	}
	return err
}

func (w *world) delete(ctx context.Context, c collection, name string) error {
	now := int64(0)
	return w.server.dynamic.Resource(c.resource).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// kills kills the process every few seconds, sometimes just after its start, and leaves
// one running. In a third of the rounds a process lives longer.
func (w *world) kills(ctx context.Context, rng *rand.Rand) error {
	longest := 7 * time.Second
	if rng.Intn(3) == 0 {
		longest = 2 * roundTime
	}
	for {
		least, most := time.Second, longest
		if rng.Intn(4) == 0 {
			least, most = 0, 600*time.Millisecond
		}
		if !pause(ctx, rng, least, most) {
			return nil
		}
		if err := w.kill(); err != nil {
			return err
		}
		if err := w.startLife(); err != nil {
			return err
		}
	}
}

// cuts breaks the network and heals it.
func (w *world) cuts(ctx context.Context, rng *rand.Rand) error {
	defer w.proxy.Heal()
	for pause(ctx, rng, 500*time.Millisecond, 5*time.Second) {
		cut := soak.Cuts[rng.Intn(len(soak.Cuts))]
		w.tally.add("cuts: " + string(cut))
		w.proxy.Break(cut)
		if !pause(ctx, rng, 100*time.Millisecond, 4*time.Second) {
			return nil
		}
		w.proxy.Heal()
	}
	return nil
}

// restarts restarts the API server. Its watch cache is empty afterwards.
func (w *world) restarts(ctx context.Context, rng *rand.Rand) error {
	for pause(ctx, rng, 5*time.Second, 40*time.Second) {
		w.tally.add("restarts of the API server")
		w.down.Store(true)
		// The round waits for the restart.
		if err := w.cp.RestartAPIServer(w.t.Context()); err != nil {
			return err
		}
		w.down.Store(false)
	}
	return nil
}

// compactions makes etcd forget its history.
func (w *world) compactions(ctx context.Context, rng *rand.Rand) error {
	for pause(ctx, rng, time.Second, 20*time.Second) {
		w.tally.add("compactions of etcd")
		if err := w.cp.Compact(w.t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// fullDisks fills the disk and frees it again.
func (w *world) fullDisks(ctx context.Context, rng *rand.Rand) error {
	for pause(ctx, rng, time.Second, 20*time.Second) {
		w.tally.add("full disks")
		if err := w.disk.fill(); err != nil {
			return err
		}
		pause(ctx, rng, time.Second, 8*time.Second)
		if err := w.disk.free(); err != nil {
			return err
		}
	}
	return nil
}

// atRest compares handlers, store, file and server after the faults have ended. It waits
// until handlers have received two new objects in each collection, one after the other:
// the first may come with a list, whose other changes they receive after it.
func (w *world) atRest() error {
	begin := time.Now()
	a, err := w.life.ask("look")
	if err != nil {
		return err
	}
	inMemory := func(s scope) bool { return s.Status.Memory != "" }
	if w.life.bounded || slices.ContainsFunc(slices.Collect(maps.Values(a.Scopes)), inMemory) {
		// This process cannot write to its file, so another one is started.
		if err := w.kill(); err != nil {
			return err
		}
		if err := w.startLife(); err != nil {
			return err
		}
	}
	for _, nth := range []string{"first", "second"} {
		name := fmt.Sprintf("sentinel-%d-%s", w.rounds, nth)
		for _, c := range collections {
			if err := w.create(w.t.Context(), c, w.rounds, name); err != nil {
				return err
			}
		}
		if _, err := w.life.ask("await " + namespace + "/" + name); err != nil {
			return err
		}
	}
	a, err = w.life.ask("report")
	if err == nil {
		err = w.count(a)
	}
	if err == nil {
		err = w.stop()
	}
	if err != nil {
		return err
	}
	w.held = map[string]map[string]guarantees.State{}
	for name, s := range a.Scopes {
		w.held[name] = s.Handler
	}
	w.tally.most("longest way back, in s", int(time.Since(begin).Seconds()))
	return w.compare(a)
}

// compare checks that store, file and server are equal. The report has compared handlers
// and store.
func (w *world) compare(a answer) error {
	for _, c := range collections {
		listed, rv, err := w.listed(c)
		if err != nil {
			return err
		}
		stored, err := w.stored(c, rv)
		if err != nil {
			return fmt.Errorf("%s in the file: %w", c.name(), err)
		}
		for _, other := range []struct {
			what string
			has  map[string]guarantees.State
		}{{"store", a.Scopes[c.name()].Store}, {"file", stored}} {
			if diff := cmp.Diff(listed, other.has); diff != "" {
				return fmt.Errorf("%s (-server +%s):\n%s", c.name(), other.what, diff)
			}
		}
		w.tally.addN("objects compared", len(listed))
	}
	if aside, err := filepath.Glob(w.disk.file() + ".corrupt-*"); err != nil || len(aside) > 0 {
		return fmt.Errorf("a file was set aside, though nothing damaged one: %v %w", aside, err)
	}
	return nil
}

// listed lists a collection on the server, in the form of its informer.
func (w *world) listed(c collection) (map[string]guarantees.State, string, error) {
	list, err := cache.ToListerWithContext(c.listWatch(w.server)).ListWithContext(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, "", err
	}
	out, err := guarantees.States(items)
	if err != nil {
		return nil, "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return out, accessor.GetResourceVersion(), nil
}

// stored reads a collection from the file after the process has ended. The server must
// have reached the checkpoint, and no object may have a later resource version than the
// checkpoint.
func (w *world) stored(c collection, now string) (out map[string]guarantees.State, err error) {
	db, err := bolt.OpenReadOnly(w.disk.file(), bolt.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := db.Close(); err == nil {
			err = closing
		}
	}()
	infos, err := db.Scopes()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(infos, func(info store.Info) bool { return info.Scope.Resource == c.name() })
	if i < 0 {
		return nil, store.ErrNotFound
	}
	encoding, err := codec.For(c.example)
	if err != nil {
		return nil, err
	}
	s, err := db.Open(infos[i].Scope, store.Options{Codec: encoding})
	if err != nil {
		return nil, err
	}
	rv := s.Checkpoint().RV
	if order, err := resourceversion.CompareResourceVersion(rv, now); err != nil || order > 0 {
		return nil, fmt.Errorf("resource version %q, the server's is %s: %w", rv, now, err)
	}
	out = map[string]guarantees.State{}
	for obj, err := range s.All() {
		if err != nil {
			return nil, err
		}
		key, is, err := guarantees.StateOf(obj)
		if err != nil {
			return nil, err
		}
		if order, err := resourceversion.CompareResourceVersion(is.RV, rv); err != nil || order > 0 {
			return nil, fmt.Errorf("%q is at resource version %s, the file at %s: %w", key, is.RV, rv, err)
		}
		out[key] = is
	}
	return out, s.Close()
}

// tally counts the faults and their results.
type tally struct {
	mu     sync.Mutex // protects counts
	counts map[string]int
}

func (t *tally) add(what string) { t.addN(what, 1) }

func (t *tally) addN(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what] += n
}

func (t *tally) most(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what] = max(t.counts[what], n)
}

// table returns the tally as a Markdown table.
func (t *tally) table() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for _, what := range slices.Sorted(maps.Keys(t.counts)) {
		fmt.Fprintf(columns, "| %s\t| %d\t|\n", what, t.counts[what])
	}
	_ = columns.Flush()
	return b.String()
}

func readLog(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
