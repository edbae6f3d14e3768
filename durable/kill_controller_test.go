package durable_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
