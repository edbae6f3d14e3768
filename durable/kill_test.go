package durable_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var kills = flag.Int("kills", 50, "processes that TestKill kills")

// childVar is set in a process of this binary that is a controller to be killed.
const childVar = "INFORMCTL_DURABLE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		if err := childMain(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// points are where a controller kills itself: between delivery, Add, Get, the work,
// Forget and Done.
var points = []string{"delivered", "added", "enqueued", "got", "worked", "noted", "forgotten", "done", "delayed"}

// controller is the child process: an API server of ConfigMaps with a given history, an
// informer, a consumer with its queue, and two workers.
type controller struct {
	server *fakeapi.Server
	inf    *informer.Informer
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	quiet  bool // work succeeds, and nobody is killed

	mu    sync.Mutex // protects the fields below
	rand  *rand.Rand
	point string // where the process kills itself
	hits  int    // how often it still passes there before
}

// childMain runs a controller on the file args[0]. args[1] is the seed of what its work
// does, args[2] and args[3] are the point at which it kills itself and how often it
// passes there before. It reads changes of the server, one per line, from its standard
// input: those before the line "go" were made before it starts. It stops like a process
// that receives SIGTERM at the end of its input. It prints where its place is and what it
// has worked on.
func childMain(args []string) error {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	c := &controller{
		server: fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{}),
		rand:   rand.New(rand.NewPCG(seed, 2)), point: args[2], quiet: args[2] == "quiet",
	}
	if c.hits, err = strconv.Atoi(args[3]); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() && in.Text() != "go" {
		if err := c.change(in.Text()); err != nil {
			return err
		}
	}
	db, err := bolt.Open(args[0], bolt.Options{CommitInterval: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	consumer, err := durable.Open(db, "test", durable.Options{Version: "1", Unchanged: durable.Skip})
	if err != nil {
		return err
	}
	c.inf, err = informer.New(c.server, &corev1.ConfigMap{}, informer.Options{
		Backend: db, Scope: store.Scope{Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
	})
	if err != nil {
		return err
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, 300*time.Millisecond)
	c.queue = durable.NewQueue(consumer, limiter, durable.ObjectNames)
	if _, err := c.inf.AddEventHandler(consumer.Handler(c)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the root of a process
	defer cancel()
	var running, working sync.WaitGroup
	running.Go(func() { c.inf.RunWithContext(ctx) })
	for range 2 {
		working.Go(func() { c.work(ctx) })
	}
	running.Go(func() { tellPlace(ctx, consumer) })
	for in.Scan() {
		if err := c.change(in.Text()); err != nil {
			return err
		}
	}
	c.queue.ShutDown()
	working.Wait()
	cancel()
	running.Wait()
	return errors.Join(consumer.Close(), db.Close())
}

// tellPlace prints the resource version of the place whenever it moves.
func tellPlace(ctx context.Context, c *durable.Consumer) {
	tick, last := time.NewTicker(5*time.Millisecond), ""
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s := c.Status().Scopes; len(s) > 0 && s[0].ResourceVersion != last {
			last = s[0].ResourceVersion
			fmt.Println("place", last)
		}
	}
}

// change applies a line to the server: the name of an object and its owner, or only the
// name of one to delete.
func (c *controller) change(line string) error {
	name, owner, _ := strings.Cut(line, " ")
	if owner == "" {
		_, err := c.server.Delete("default/" + name)
		return err
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"owner": owner}}
	_, err := c.server.Update(obj)
	if err != nil {
		_, err = c.server.Create(obj)
	}
	return err
}

// at kills the process if it is due at this point.
func (c *controller) at(point string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if point != c.point {
		return
	}
	if c.hits--; c.hits >= 0 {
		return
	}
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // until the signal arrives
}

func (c *controller) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

func (c *controller) OnAdd(obj any, _ bool)   { c.enqueue(obj) }
func (c *controller) OnUpdate(before, is any) { c.enqueue(before, is) }
func (c *controller) OnDelete(obj any) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	c.enqueue(obj)
}

func (c *controller) enqueue(objects ...any) {
	c.at("delivered")
	for _, obj := range objects {
		c.queue.Add(cache.ObjectName{Namespace: "default", Name: obj.(*corev1.ConfigMap).Data["owner"]})
		c.at("added")
	}
	c.at("enqueued")
	if !c.quiet && c.intN(100) == 0 {
		panic("a handler has panicked, and ends the process")
	}
}

// work is a worker of the queue.
func (c *controller) work(ctx context.Context) {
	select {
	case <-c.inf.HasSyncedChecker().Done():
	case <-ctx.Done():
	}
	for {
		item, over := c.queue.Get()
		if over {
			return
		}
		c.at("got")
		c.reconcile(item)
		c.queue.Done(item)
		c.at("done")
	}
}

// reconcile works on an owner: it prints what the informer holds. It may fail, ask to be
// called later, panic, or end without Forget.
func (c *controller) reconcile(item cache.ObjectName) {
	defer func() { _ = recover() }() // as controller-runtime does
	line := "worked " + item.Name + " " + c.inf.LastSyncResourceVersion()
	for _, obj := range c.inf.GetStore().List() {
		cm := obj.(*corev1.ConfigMap)
		line += " " + cm.Name + "=" + cm.ResourceVersion
	}
	outcome := 100
	if !c.quiet {
		<-time.After(time.Duration(c.intN(30)) * time.Millisecond)
		outcome = c.intN(10)
	}
	c.at("worked")
	switch outcome {
	case 0, 1:
		c.queue.AddRateLimited(item)
		c.at("delayed")
		return
	case 2:
		panic("work has panicked")
	case 3:
		return
	}
	fmt.Println(line)
	c.at("noted")
	c.queue.Forget(item)
	c.at("forgotten")
	if outcome == 4 {
		c.queue.AddAfter(item, time.Duration(c.intN(1500))*time.Millisecond)
		c.at("delayed")
	}
}

// TestKill kills controllers at random moments and at the points between delivery and
// Done, and stops some of them. A journal outside of them notes the objects that each
// finished work has seen. In the end, each change that a watch can have delivered must
// have been seen by work on its owners before and after it. See also TestSchedules.
func TestKill(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	const together = 5
	var all sync.WaitGroup
	var worlds []*killed
	for i := range together {
		w := &killed{
			T: t, path: filepath.Join(t.TempDir(), "informers.db"), rand: rand.New(rand.NewPCG(seed, uint64(i))),
			deaths: map[string]int{},
		}
		worlds = append(worlds, w)
		all.Go(func() {
			for n := 0; n < *kills/together && !t.Failed(); {
				if w.live() {
					n++
				}
			}
			w.settle()
			if len(w.left()) > 0 {
				t.Logf("seed %d, world %d:\n%s", seed, i, strings.Join(w.notes, "\n"))
			}
		})
	}
	all.Wait()
	deaths, changes := map[string]int{}, 0
	for _, w := range worlds {
		changes += len(w.history)
		for how, n := range w.deaths {
			deaths[how] += n
		}
	}
	t.Logf("%d changes; %v", changes, deaths)
}

// killed is a file with the controllers that have it one after the other, and what the
// journal knows.
type killed struct {
	*testing.T
	path    string
	rand    *rand.Rand
	history []change // change i has the resource version i+2
	place   uint64   // the highest one that was printed
	notes   []string
	deaths  map[string]int
}

// ending is how one controller ends.
type ending struct {
	point string
	hits  int
	after time.Duration // until it is killed, or stopped
	stop  bool
}

// live runs one controller until its end, and reports whether it was killed.
func (w *killed) live() bool {
	for range w.rand.IntN(4) {
		w.write()
	}
	e := ending{point: "-", after: time.Duration(w.rand.IntN(2500)) * time.Millisecond}
	switch w.rand.IntN(8) {
	case 0:
		e.stop = true
	case 1, 2, 3, 4:
		e.point, e.hits = points[w.rand.IntN(len(points))], w.rand.IntN(6)
	}
	p := w.begin(e.point, e.hits)
	end := time.After(e.after)
	for alive := true; alive; {
		select {
		case line, ok := <-p.lines:
			if alive = ok; ok {
				w.read(line)
			}
		case <-time.After(time.Duration(w.rand.IntN(120)) * time.Millisecond):
			if line := w.write(); line != "" {
				_, _ = fmt.Fprintln(p.in, line) // it may be dead
			}
		case <-end:
			end = nil
			if e.stop {
				_ = p.in.Close()
				continue
			}
			_ = p.cmd.Process.Kill()
		}
	}
	return strings.HasPrefix(p.end(w, e), "killed")
}

// settle runs a last controller, whose work succeeds, until nothing is left.
func (w *killed) settle() {
	p := w.begin("quiet", 0)
	patience := time.After(20 * time.Second)
	for len(w.left()) > 0 {
		select {
		case line, ok := <-p.lines:
			if !ok {
				w.Errorf("the last controller has died: %s", p.errors.String())
				_ = p.cmd.Wait()
				return
			}
			w.read(line)
			continue
		case <-patience:
		}
		for _, c := range w.left() {
			w.Errorf("%s was changed at %d, and its owners %s were not worked on after that", c.name, c.rv, c.owners)
		}
		break
	}
	_ = p.in.Close()
	for line := range p.lines {
		w.read(line)
	}
	p.end(w, ending{stop: true})
}

// left returns the changes that still wait for work on an owner.
func (w *killed) left() (out []change) {
	for _, c := range w.history {
		if len(c.owners) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// write changes a random object, if its last change is in a commit of its own: the log
// has one change for several of an object in one commit. It returns the line for the
// controller.
func (w *killed) write() string {
	c := change{rv: uint64(len(w.history)) + 2, name: fmt.Sprintf("o%d", w.rand.IntN(30))}
	owner := ""
	for i := len(w.history) - 1; i >= 0; i-- {
		if last := w.history[i]; last.name == c.name {
			if last.rv > w.place {
				return ""
			}
			owner = last.owner
			break
		}
	}
	if owner != "" {
		c.owners = append(c.owners, owner)
	}
	if owner != "" && w.rand.IntN(4) == 0 {
		c.deleted = true
	} else {
		if c.owner = owner; owner == "" || w.rand.IntN(3) == 0 {
			c.owner = fmt.Sprintf("k%d", w.rand.IntN(12))
		}
		c.owners = append(c.owners, c.owner)
	}
	c.owners = slices.Compact(c.owners)
	w.note("%d: %s of %s", c.rv, c.name, c.owners)
	w.history = append(w.history, c)
	return c.line()
}

// line is the change for controller.change.
func (c change) line() string { return strings.TrimSpace(c.name + " " + c.owner) }

func (w *killed) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// read reads a line that a controller has printed.
func (w *killed) read(line string) {
	w.note("  %s", line)
	words := strings.Fields(line)
	switch {
	case len(words) == 2 && words[0] == "place":
		rv, _ := strconv.ParseUint(words[1], 10, 64)
		w.place = max(w.place, rv)
	case len(words) >= 3 && words[0] == "worked":
		synced, _ := strconv.ParseUint(words[2], 10, 64)
		held := map[string]uint64{}
		for _, word := range words[3:] {
			name, rv, _ := strings.Cut(word, "=")
			held[name], _ = strconv.ParseUint(rv, 10, 64)
		}
		w.worked(words[1], synced, held)
	}
}

// worked notes that an owner was worked on by a controller whose informer held these
// objects at least as of a resource version.
func (w *killed) worked(owner string, synced uint64, held map[string]uint64) {
	for i := range w.history {
		c := &w.history[i]
		if at, is := held[c.name]; at >= c.rv || !is && synced >= c.rv {
			c.owners = slices.DeleteFunc(c.owners, func(name string) bool { return name == owner })
		}
	}
}

// process is a running controller.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed when it has died
	errors strings.Builder
}

// begin starts a controller with the history so far.
func (w *killed) begin(point string, hits int) *process {
	w.note("begins, with %s %d", point, hits)
	p := &process{lines: make(chan string)}
	p.cmd = exec.Command(os.Args[0], w.path, strconv.FormatUint(w.rand.Uint64(), 10), point, strconv.Itoa(hits))
	p.cmd.Env = append(os.Environ(), childVar+"=1")
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		w.Error(err)
		close(p.lines)
		return p
	}
	var history strings.Builder
	for _, c := range w.history {
		history.WriteString(c.line() + "\n")
	}
	history.WriteString("go\n")
	_, _ = p.in.Write([]byte(history.String())) // it reads all of it before it begins
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}

// end waits for a controller that has died, and returns how.
func (p *process) end(w *killed, e ending) (how string) {
	err := p.cmd.Wait()
	var exit *exec.ExitError
	switch how = "stopped"; {
	case err == nil:
	case !errors.As(err, &exit):
		w.Error(err)
	case !exit.Exited():
		how = "killed at " + e.point
	case strings.Contains(p.errors.String(), "a handler has panicked"):
		how = "panicked"
	default:
		w.Errorf("a controller has ended by itself: %v: %.3000s", err, p.errors.String())
	}
	w.note("%s", how)
	w.deaths[how]++
	return how
}
