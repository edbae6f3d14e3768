package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// process is a process that follows pods and answers queries, as run does.
type process struct {
	path   string
	server *fakeapi.Server
	nodes  *fakeapi.Server // nil: it follows pods alone
	stop   func()
}

func runProcess(t *testing.T, pods ...*corev1.Pod) *process {
	t.Helper()
	p := &process{path: filepath.Join(t.TempDir(), "informers.db"), server: fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})}
	for _, pod := range pods {
		p.create(t, pod)
	}
	p.start(t)
	return p
}

// start starts the process on its file.
func (p *process) start(t *testing.T) {
	t.Helper()
	db, err := bolt.Open(p.path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	informers := []*informer.Informer{newInformer(t, db, p.server, "pods", &corev1.Pod{})}
	if p.nodes != nil {
		informers = append(informers, newInformer(t, db, p.nodes, "nodes", &corev1.Node{}))
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	var running sync.WaitGroup
	served := make(chan error, 1)
	for _, inf := range informers {
		running.Go(func() { inf.RunWithContext(ctx) })
	}
	go func() {
		served <- inspect.Serve(ctx, inspect.SocketPath(p.path), inspect.NewHandler(inspect.Of(db, informers...)))
	}()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		running.Wait()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(p.stop)
	for _, inf := range informers {
		<-inf.HasSyncedChecker().Done()
	}
	listens(t, p.path)
}

func newInformer(t *testing.T, db *bolt.DB, server *fakeapi.Server, resource string, example runtime.Object) *informer.Informer {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(example)
	if err != nil {
		t.Fatal(err)
	}
	inf, err := informer.New(server, example, informer.Options{
		Backend: db, Indexes: []index.Index{index.Namespace()}, Scope: store.Scope{Resource: resource, Kind: kinds[0]},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		t.Fatal(err)
	}
	return inf
}

func (p *process) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := p.server.Create(pod); err != nil {
		t.Fatal(err)
	}
}

func (p *process) update(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := p.server.Update(pod); err != nil {
		t.Fatal(err)
	}
}

// watching is a running command that follows.
type watching struct {
	*bufio.Scanner
	out  *io.PipeReader
	stop context.CancelFunc
	errs bytes.Buffer
	code chan int
	// passed is the time since now on the command's clock.
	passed atomic.Int64
}

func watchFor(t *testing.T, args ...string) *watching {
	t.Helper()
	return following(t, append([]string{"watch"}, args...)...)
}

// following runs a command that goes on until it is stopped.
func following(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	out := &watching{Scanner: bufio.NewScanner(r), out: r, stop: cancel, code: make(chan int, 1)}
	out.Buffer(nil, 1<<20)
	go func() {
		code := cli.MainWith(ctx, genericiooptions.IOStreams{Out: w, ErrOut: &out.errs}, args, func() time.Time {
			return now.Add(time.Duration(out.passed.Load()))
		})
		_ = w.Close()
		out.code <- code
	}()
	t.Cleanup(func() { _ = r.Close() })
	return out
}

// next returns the next n lines.
func (w *watching) next(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for range n {
		if !w.Scan() {
			t.Fatalf("the output ended after %q: %s", b.String(), w.errs.String())
		}
		b.WriteString(w.Text() + "\n")
	}
	return b.String()
}

// ends checks how the watch has ended.
func (w *watching) ends(t *testing.T, code int, says string) {
	t.Helper()
	for w.Scan() { // skip the remaining output
		continue
	}
	got := <-w.code
	if got != code || !strings.Contains(w.errs.String(), says) || strings.Count(w.errs.String(), "\n") != min(1, len(says)) {
		t.Errorf("exit code %d, %q; want %d and a line with %q", got, w.errs.String(), code, says)
	}
}

// TestWatch checks that each form of output prints the existing objects and then each
// change at once, and that an interrupt ends the watch.
func TestWatch(t *testing.T) {
	// Each value contains the output for the existing objects, a change, a deletion and a
	// creation.
	for form, want := range map[string][]string{
		"": {
			"EVENT NAMESPACE NAME READY STATUS RESTARTS AGE\nADDED a one 0/1 0 10d\nADDED b two 0/1 0 10d\n",
			"MODIFIED a one 0/1 0 10d\n", "DELETED b two 0/1 0 10d\n", "ADDED a three 0/1 0 10d\n",
		},
		"name": {"ADDED      pod/one\nADDED      pod/two\n", "MODIFIED   pod/one\n", "DELETED    pod/two\n", "ADDED      pod/three\n"},
		"jsonpath={.metadata.name} {.spec.nodeName}": {
			"ADDED      one node-1\nADDED      two node-1\n", "MODIFIED   one node-2\n", "DELETED    two node-1\n", "ADDED      three node-1\n",
		},
		"go-template={{.metadata.namespace}}": {"ADDED      a\nADDED      b\n", "MODIFIED   a\n", "DELETED    b\n", "ADDED      a\n"},
		"custom-columns=NAME:.metadata.name,NODE:.spec.nodeName": {
			"EVENT   NAME   NODE\nADDED   one   node-1\nADDED   two   node-1\n", "MODIFIED   one   node-2\n", "DELETED   two   node-1\n", "ADDED   three   node-1\n",
		},
	} {
		t.Run(form, func(t *testing.T) {
			p := runProcess(t, pod("a", "one", ""), pod("b", "two", ""))
			args := []string{"pods", "--initial", "--db", p.path}
			if form != "" {
				args = append(args, "-o", form)
			}
			w := watchFor(t, args...)
			got := []string{w.next(t, strings.Count(want[0], "\n"))}
			changed := pod("a", "one", "")
			changed.Spec.NodeName = "node-2"
			if _, err := p.server.Update(changed); err != nil {
				t.Fatal(err)
			}
			got = append(got, w.next(t, 1))
			if _, err := p.server.Delete("b/two"); err != nil {
				t.Fatal(err)
			}
			got = append(got, w.next(t, 1))
			p.create(t, pod("a", "three", ""))
			got = append(got, w.next(t, 1))
			if diff := cmp.Diff(squeezed(want), squeezed(got)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, got)
			}
			w.stop()
			w.ends(t, 0, "")
		})
	}
}

// squeezed replaces the space between columns, whose widths grow, with one space.
func squeezed(texts []string) (out []string) {
	for _, text := range texts {
		for line := range strings.Lines(text) {
			out = append(out, strings.Join(strings.Fields(line), " "))
		}
	}
	return out
}

// TestWatchAges checks that the age of each line is that of its time.
func TestWatchAges(t *testing.T) {
	p := runProcess(t, pod("a", "old", ""))
	w := watchFor(t, "pods", "--db", p.path, "--initial", "--no-headers")
	got := squeezed([]string{w.next(t, 1)})
	w.passed.Store(int64(24 * time.Hour))
	p.update(t, pod("a", "old", "web"))
	got = append(got, squeezed([]string{w.next(t, 1)})...)
	w.passed.Store(int64(48 * time.Hour))
	created := pod("a", "new", "")
	created.CreationTimestamp = metav1.NewTime(now.Add(47 * time.Hour))
	p.create(t, created)
	got = append(got, squeezed([]string{w.next(t, 1)})...)
	if diff := cmp.Diff([]string{"ADDED a old 0/1 0 10d", "MODIFIED a old 0/1 0 11d", "ADDED a new 0/1 0 60m"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWatchDocuments checks that JSON output has one line per change and YAML output one
// document per change, with the event type of the API.
func TestWatchDocuments(t *testing.T) {
	p := runProcess(t, pod("a", "one", ""))
	w := watchFor(t, "--initial", "-o", "json", "--db", p.path)
	if got := w.next(t, 1); !strings.HasPrefix(got, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{`) || strings.Contains(got, "managedFields") {
		t.Errorf("JSON: %s", got)
	}
	w.stop()
	w.ends(t, 0, "")
	w = watchFor(t, "--initial", "-o", "yaml", "--db", p.path)
	if got := w.next(t, 4); got != "---\nobject:\n  apiVersion: v1\n  kind: Pod\n" {
		t.Errorf("YAML: %s", got)
	}
	w.stop()
	w.ends(t, 0, "")
}

// TestWatchFromNowOn checks that watch does not print existing objects without --initial,
// and that -n leaves out other namespaces.
func TestWatchFromNowOn(t *testing.T) {
	p := runProcess(t, pod("a", "one", ""))
	w := watchFor(t, "po", "-n", "a", "--no-headers", "--db", p.path)
	made := make(chan struct{})
	stop := make(chan struct{})
	// The watch does not report when it has started, so changes are made until one is
	// printed.
	go func() {
		defer close(made)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			for _, namespace := range []string{"b", "a"} {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				if _, err := p.server.Create(pod(namespace, fmt.Sprintf("new-%d", i), "")); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	got := w.next(t, 1)
	close(stop)
	<-made
	if fields := strings.Fields(got); len(fields) != 5 || fields[0] != "ADDED" || !strings.HasPrefix(fields[1], "new-") {
		t.Errorf("%q", got)
	}
	w.stop()
	w.ends(t, 0, "")
}

// TestWatchOfNames checks that query follows names only if they are there.
func TestWatchOfNames(t *testing.T) {
	p := runProcess(t, pod("a", "one", "web"))
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"pods", "none", "-w"}, 1, `informctl: pods "none" not found in ` + p.path},
		{[]string{"pods", "one", "none", "--watch-only"}, 1, `informctl: pods "none" not found in ` + p.path},
		{[]string{"pod/one", "-n", "b", "-w"}, 1, `informctl: pods "one" not found in namespace b of ` + p.path},
		{[]string{"pods", "none", "-w", "--ignore-not-found"}, 0, ""},
	} {
		following(t, append(append([]string{"query"}, tt.args...), "--db", p.path)...).ends(t, tt.code, tt.says)
	}
	for _, args := range [][]string{{"pods", "one"}, {"pods", "one", "none", "--ignore-not-found"}} {
		w := following(t, append(append([]string{"query"}, args...), "-w", "-o", "name", "--db", p.path)...)
		if got := w.next(t, 1); got != "pod/one\n" {
			t.Errorf("%q: %q", args, got)
		}
		w.stop()
		w.ends(t, 0, "")
	}
}

// TestWatchEnds checks that one line says why a watch has ended.
func TestWatchEnds(t *testing.T) {
	t.Run("the process ends", func(t *testing.T) {
		p := runProcess(t, pod("a", "one", ""))
		w := watchFor(t, "--initial", "--db", p.path)
		_ = w.next(t, 2)
		p.stop()
		w.ends(t, 1, "the process of "+p.path+" has ended")
	})
	t.Run("no process", func(t *testing.T) {
		path := podFile(t, smallPod)
		watchFor(t, "--db", path).ends(t, 1, "no process keeps "+path+", so nothing changes in it: nobody listens at ")
		watchFor(t, "--db", path+".none").ends(t, 1, "no such file; informctl run RESOURCE --db ")
	})
	t.Run("unknown resource", func(t *testing.T) {
		p := runProcess(t)
		watchFor(t, "wheels", "--db", p.path).ends(t, 1, `unknown resource "wheels"; the process of `+p.path+" follows pods\n")
	})
	t.Run("closed pipe", func(t *testing.T) {
		p := runProcess(t, pod("a", "one", ""))
		w := watchFor(t, "--initial", "--db", p.path)
		_ = w.next(t, 1)
		_ = w.out.CloseWithError(syscall.EPIPE)
		if _, err := p.server.Update(pod("a", "one", "x")); err != nil {
			t.Fatal(err)
		}
		w.ends(t, 0, "")
	})
	t.Run("nobody reads", func(t *testing.T) {
		p := runProcess(t, pod("a", "one", ""))
		w := watchFor(t, "--initial", "-o", "json", "--db", p.path)
		_ = w.next(t, 1)
		large := pod("a", "one", "")
		large.Annotations = map[string]string{"text": strings.Repeat("x", 10_000)}
		for range 3000 {
			if _, err := p.server.Update(large); err != nil {
				t.Fatal(err)
			}
		}
		// The buffers of the watch are full. The test continues to read when the process
		// has given up.
		for len(w.code) == 0 && followed(t, p.path) {
			continue
		}
		w.ends(t, 1, "slowly")
	})
}

// followed reports whether the process has a client that follows changes.
func followed(t *testing.T, path string) bool {
	t.Helper()
	return bytes.Contains(askSocket(t, path, "/v1/status"), []byte("*informer.feed"))
}

// TestWatchSince checks that changes after a resource version are printed first, and that
// the error at the end of a watch says how to continue.
func TestWatchSince(t *testing.T) {
	p := runProcess(t, pod("a", "one", "")) // 2
	for !bytes.Contains(askSocket(t, p.path, "/v1/history"), []byte(`"Time":"2`)) {
		continue // until the list is written, which is where the log begins
	}
	p.create(t, pod("a", "two", "")) // 3
	if _, err := p.server.Delete("a/one"); err != nil {
		t.Fatal(err)
	}
	args := []string{"pods", "-o", "name", "--db", p.path, "--since-rv"}
	// The watch does not fail if the process is behind; it follows from there.
	w := watchFor(t, append(args, "2")...)
	if got := w.next(t, 2); got != "ADDED      pod/two\nDELETED    pod/one\n" {
		t.Errorf("printed %q", got)
	}
	p.create(t, pod("a", "three", "")) // 5
	if got := w.next(t, 1); got != "ADDED      pod/three\n" {
		t.Errorf("then %q", got)
	}
	watchFor(t, append(args, "1")...).ends(t, 1, "resource version 1 has expired: changes are known from resource version 2 on; --initial begins with what is there")
	p.stop()
	w.ends(t, 1, "--since-rv 5 goes on from there")
	testWatchSinceRestart(t, p, args)
	for says, args := range map[string][]string{
		`--since-rv "x" is no resource version`:       {"pods", "--since-rv", "x"},
		"--since-rv needs RESOURCE":                   {"--since-rv", "5"},
		"--since-rv and --initial do not go together": {"pods", "--since-rv", "5", "--initial"},
	} {
		w := watchFor(t, args...)
		for w.Scan() {
			continue
		}
		if code := <-w.code; code != 64 || !strings.Contains(w.errs.String(), says) {
			t.Errorf("exit code %d, %q; want 64 and %q", code, w.errs.String(), says)
		}
	}
}

// testWatchSinceRestart checks that the process after a restart, which remembers nothing,
// says what came after a resource version of the process before, from the log.
func testWatchSinceRestart(t *testing.T, p *process, args []string) {
	t.Helper()
	p.start(t)
	w := watchFor(t, append(args, "2")...)
	if got := w.next(t, 3); got != "ADDED      pod/two\nDELETED    pod/one\nADDED      pod/three\n" {
		t.Errorf("after a restart it printed %q", got)
	}
	p.create(t, pod("a", "four", "")) // 6
	if got := w.next(t, 1); got != "ADDED      pod/four\n" {
		t.Errorf("then %q", got)
	}
	watchFor(t, append(args, "1")...).ends(t, 1, "resource version 1 has expired")
}

// TestWatchSelection checks that a watch with conditions prints an object that begins to
// match as ADDED and one that no longer does as DELETED, in its last state that did, and
// that all of it is the same after a resource version, before and after a restart.
func TestWatchSelection(t *testing.T) {
	labelled := func(name, app, node string) *corev1.Pod {
		p := pod("a", name, app)
		p.Spec.NodeName = node
		return p
	}
	// 2 to 5
	p := runProcess(t, labelled("one", "web", "x"), labelled("two", "db", "x"), labelled("three", "web", "y"), labelled("six", "web", "x"))
	for !bytes.Contains(askSocket(t, p.path, "/v1/history"), []byte(`"Time":"2`)) {
		continue // until the list is written, which is where the log begins
	}
	form := []string{"--db", p.path, "-o", "jsonpath={.metadata.name} {.metadata.labels.app} {.spec.nodeName} {.metadata.resourceVersion}"}
	since := map[string][]string{
		"-l app=web": {
			"DELETED one web x 6", "ADDED two web x 7", "MODIFIED three web x 8", "DELETED six web x 9", "ADDED four web y 11", "ADDED last web x 12",
		},
		"--where object.spec.nodeName=='x'": {
			"MODIFIED one db x 6", "MODIFIED two web x 7", "ADDED three web x 8", "DELETED six web x 9", "ADDED last web x 12",
		},
		"-l app=web --field-selector spec.nodeName=x": {
			"DELETED one web x 6", "ADDED two web x 7", "ADDED three web x 8", "DELETED six web x 9", "ADDED last web x 12",
		},
		"pods four one -l app=web": {"DELETED one web x 6", "ADDED four web y 11"},
		"-n b -l app=web":          {"ADDED last web x 12"},
		"-n b":                     {"ADDED last web x 12"},
	}
	watches := map[string]*watching{}
	start := func(flag ...string) {
		for conditions := range since {
			args := strings.Fields(conditions)
			if args[0] != "pods" {
				args = append([]string{"pods"}, args...)
			}
			watches[conditions] = watchFor(t, append(append(args, form...), flag...)...)
		}
	}
	check := func(when string) {
		for conditions, w := range watches {
			for _, want := range since[conditions] {
				if got := strings.Join(strings.Fields(w.next(t, 1)), " "); got != want {
					t.Errorf("%s, %s: %q, want %q", when, conditions, got, want)
				}
			}
			w.stop()
			if w.Scan() {
				t.Errorf("%s, %s: %q too", when, conditions, w.Text())
			}
			w.ends(t, 0, "")
		}
	}
	start("--initial")
	for conditions, n := range map[string]int{
		"-l app=web": 3, "--where object.spec.nodeName=='x'": 3, "-l app=web --field-selector spec.nodeName=x": 2, "pods four one -l app=web": 1,
	} {
		if got := watches[conditions].next(t, n); strings.Count(got, "ADDED") != n {
			t.Errorf("%s: %q", conditions, got)
		}
	}
	p.update(t, labelled("one", "db", "x"))             // 6
	p.update(t, labelled("two", "web", "x"))            // 7
	p.update(t, labelled("three", "web", "x"))          // 8
	if _, err := p.server.Delete("a/six"); err != nil { // 9
		t.Fatal(err)
	}
	p.create(t, labelled("five", "db", "z"))  // 10
	p.create(t, labelled("four", "web", "y")) // 11
	last := labelled("last", "web", "x")
	last.Namespace = "b"
	p.create(t, last) // 12
	check("live")
	start("--since-rv", "5")
	check("since 5")
	p.stop()
	p.start(t)
	start("--since-rv", "5")
	check("after a restart")
}

// TestWatchCategory checks that watch takes the names that query does: a category, and an
// error for one that is not known.
func TestWatchCategory(t *testing.T) {
	p := runProcess(t, pod("a", "one", "web"))
	w := watchFor(t, "all", "--initial", "--db", p.path, "-o", "name")
	if got := w.next(t, 1); got != "ADDED      pod/one\n" {
		t.Errorf("%q", got)
	}
	w.stop()
	w.ends(t, 0, "")
	watchFor(t, "toys", "--db", p.path).ends(t, 1, `unknown resource "toys"`)
}

// TestWatchSinceOfSeveral checks that watch refuses one resource version for several
// clusters or resources, whose resource versions cannot be compared.
func TestWatchSinceOfSeveral(t *testing.T) {
	for says, scopes := range map[string][]store.Scope{
		"do not compare: pods of cluster one, pods of cluster two\n": {{Cluster: "one", Resource: "pods"}, {Cluster: "two", Resource: "pods"}},
		"do not compare: pods, pods.example.com\n":                   {{Resource: "pods"}, {Resource: "pods.example.com"}},
	} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		var running sync.WaitGroup
		var informers []*informer.Informer
		for _, scope := range scopes {
			scope.Kind = corev1.SchemeGroupVersion.WithKind("Pod")
			server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
			inf, err := informer.New(server, &corev1.Pod{}, informer.Options{Backend: db, Scope: scope})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() { inf.RunWithContext(ctx) })
			<-inf.HasSyncedChecker().Done()
			informers = append(informers, inf)
		}
		running.Go(func() {
			if err := inspect.Serve(ctx, inspect.SocketPath(path), inspect.NewHandler(inspect.Of(db, informers...))); err != nil {
				t.Error(err)
			}
		})
		listens(t, path)
		watchFor(t, "pods", "--since-rv", "99", "--db", path).ends(t, 1, says)
		cancel()
		running.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestQueryWatch checks that query --watch prints what is there and then each change, in
// the forms of query, and refuses what does not go with it.
func TestQueryWatch(t *testing.T) {
	for form, want := range map[string][]string{
		"": {
			"NAME READY STATUS RESTARTS AGE\none 0/1 0 10d\n", "one 0/1 0 10d\n", "three 0/1 0 10d\n", "one 0/1 0 10d\n",
		},
		"name":                             {"pod/one\n", "pod/one\n", "pod/three\n", "pod/one\n"},
		"jsonpath={.spec.nodeName}":        {"node-1\n", "node-2\n", "node-1\n", "node-2\n"},
		"custom-columns=N:.spec.nodeName":  {"N\nnode-1\n", "node-2\n", "node-1\n", "node-2\n"},
		"go-template={{.spec.nodeName}}\n": {"node-1\n", "node-2\n", "node-1\n", "node-2\n"},
		"jsonpath-as-json={.spec.nodeName}": {
			"[\n\"node-1\"\n]\n", "[\n\"node-2\"\n]\n", "[\n\"node-1\"\n]\n", "[\n\"node-2\"\n]\n",
		},
	} {
		t.Run(form, func(t *testing.T) {
			p := runProcess(t, pod("a", "one", "web"), pod("a", "two", "db"))
			args := []string{"query", "pods", "-n", "a", "-l", "app=web", "--watch", "--db", p.path}
			if form != "" {
				args = append(args, "-o", form)
			}
			w := following(t, args...)
			got := []string{w.next(t, strings.Count(want[0], "\n"))}
			changed := pod("a", "one", "web")
			changed.Spec.NodeName = "node-2"
			p.update(t, changed)
			got = append(got, w.next(t, strings.Count(want[1], "\n")))
			p.create(t, pod("a", "three", "web"))
			got = append(got, w.next(t, strings.Count(want[1], "\n")))
			left := changed.DeepCopy()
			left.Labels["app"] = "db"
			p.update(t, left)
			got = append(got, w.next(t, strings.Count(want[1], "\n")))
			if diff := cmp.Diff(squeezed(want), squeezed(got)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, got)
			}
			w.stop()
			w.ends(t, 0, "")
		})
	}
	for _, flag := range []string{"--limit=3", "--at=5", "--sort-by=.metadata.name", "--group-by=.spec.nodeName", "--index=namespace=a"} {
		w := following(t, "query", "pods", "-w", flag)
		for w.Scan() {
			continue
		}
		name, _, _ := strings.Cut(flag, "=")
		if code := <-w.code; code != 64 || !strings.Contains(w.errs.String(), "--watch and "+name+" do not go together") {
			t.Errorf("%s: exit code %d, %q", flag, code, w.errs.String())
		}
	}
	w := following(t, "query", "pods", "-w", "--db", filepath.Join(t.TempDir(), "none.db"))
	for w.Scan() {
		continue
	}
	if code := <-w.code; code != 1 || strings.Count(w.errs.String(), "\n") != 1 {
		t.Errorf("without a file: exit code %d, %q", code, w.errs.String())
	}
}

// TestQueryWatchOfZero checks that query --watch selects what query does by a field that
// JSON leaves out where it is false.
func TestQueryWatchOfZero(t *testing.T) {
	shares := pod("a", "two", "web")
	shares.Spec.HostPID = true
	p := runProcess(t, pod("a", "one", "web"), shares, pod("a", "zero", "web"))
	for selector, want := range map[string]string{
		"spec.hostPID!=false": "pod/two\n",
		"spec.hostPID!=true":  "pod/one\npod/zero\n",
	} {
		args := []string{"query", "pods", "--field-selector", selector, "-o", "name", "--db", p.path}
		if got := string(run(t, args...)); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
		w := following(t, append(args, "--watch")...)
		if got := w.next(t, strings.Count(want, "\n")); got != want {
			t.Errorf("%s --watch: %q, want %q", selector, got, want)
		}
		w.stop()
		w.ends(t, 0, "")
	}
}

// TestQueryWatchOnly checks that query --watch-only leaves out what is there, and names
// no flag of watch at the end of the process.
func TestQueryWatchOnly(t *testing.T) {
	p := runProcess(t, pod("a", "one", "web"))
	w := watchOnly(t, p)
	w.stop()
	w.ends(t, 0, "")
	w = watchOnly(t, p)
	p.stop()
	w.ends(t, 1, "has ended\n")
}

// watchOnly returns a query --watch-only that has printed its first line.
func watchOnly(t *testing.T, p *process) *watching {
	t.Helper()
	w := following(t, "query", "pods", "--watch-only", "-o", "name", "--db", p.path)
	line := make(chan string)
	go func() { line <- w.next(t, 1) }()
	for i := 0; ; i++ {
		// Until the command follows.
		p.create(t, pod("a", fmt.Sprintf("new-%p-%d", w, i), "web"))
		select {
		case got := <-line:
			if !strings.HasPrefix(got, "pod/new-") {
				t.Errorf("the first line is %q", got)
			}
			return w
		case <-time.After(10 * time.Millisecond):
		}
	}
}
