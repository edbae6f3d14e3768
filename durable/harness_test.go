package durable_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// world is an API server of ConfigMaps and a file, in a synctest bubble.
type world struct {
	*testing.T
	server  *fakeapi.Server
	dir     string
	files   int
	path    string  // of the present file
	memory  *mem.DB // in its place, if it is not nil
	opts    durable.Options
	commits time.Duration // of the file; 0 is the default
	logger  klog.Logger   // of the context of informers
	// ledger returns the backend of the consumer; nil is the file itself.
	ledger func(*bolt.DB) store.Backend
	// codec is that of the queue; nil is durable.ObjectNames.
	codec durable.Codec[cache.ObjectName]
	// transform is the version of the transform; "" means none.
	transform string
}

func inBubble(t *testing.T, f func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			T: t, dir: dir, path: filepath.Join(dir, "informers.db"),
			server: fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{}),
			opts:   durable.Options{Version: "1", Unchanged: durable.Skip},
		}
		f(w)
	})
}

// putNumbered creates ConfigMaps 00, 01 and so on, of one owner.
func (w *world) putNumbered(n int) {
	w.Helper()
	for i := range n {
		w.put(fmt.Sprintf("%02d", i), "owner")
	}
}

// put creates or updates a ConfigMap, whose owner a handler enqueues, too.
func (w *world) put(name, owner string) {
	w.Helper()
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"owner": owner, "n": fmt.Sprint(w.server.RV())},
	}
	if _, err := w.server.Update(obj); err == nil {
		return
	}
	if _, err := w.server.Create(obj); err != nil {
		w.Fatal(err)
	}
}

func (w *world) drop(name string) {
	w.Helper()
	if _, err := w.server.Delete("default/" + name); err != nil {
		w.Fatal(err)
	}
}

// life is one process: an informer, a consumer with its queue, and a worker.
type life struct {
	w        *world
	db       *bolt.DB
	inf      *informer.Informer
	consumer *durable.Consumer
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	stop     context.CancelFunc
	ctx      context.Context
	running  sync.WaitGroup

	mu     sync.Mutex // protects the fields below
	worked map[string]int
	trace  func(string, ...any)
	ended  bool // what it does after its death does not count
	calls  []string
	// work is what the worker does with a key; nil succeeds.
	work func(name string) outcome
}

// outcome is how the work on a key ends.
type outcome struct {
	err   bool          // it is tried again
	after time.Duration // it is asked for again
	lost  bool          // neither forgotten nor tried again
}

// enqueue is an event handler that adds the owners of an object, before and after.
type enqueue struct{ l *life }

func (e enqueue) OnAdd(obj any, initial bool) { e.add("add", initial, obj) }
func (e enqueue) OnUpdate(old, obj any)       { e.add("update", false, old, obj) }
func (e enqueue) OnDelete(obj any) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	e.add("delete", false, obj)
}

func (e enqueue) add(call string, initial bool, objects ...any) {
	var name string
	var owners []string
	for _, obj := range objects {
		cm := obj.(*corev1.ConfigMap)
		name = cm.Name
		owners = append(owners, cm.Data["owner"])
	}
	owners = slices.Compact(owners)
	if initial {
		call = "initial " + call
	}
	if e.l.trace != nil {
		e.l.trace("  %s %s of %s", call, name, owners)
	}
	e.l.mu.Lock()
	e.l.calls = append(e.l.calls, call+" "+name+" of "+strings.Join(owners, ","))
	e.l.mu.Unlock()
	for _, owner := range owners {
		e.l.queue.Add(cache.ObjectName{Namespace: "default", Name: owner})
	}
}

// start starts a process with some handlers. Its worker starts with begin.
func (w *world) start(handlers int) *life {
	w.Helper()
	l := w.open()
	for range handlers {
		l.addHandler(enqueue{l})
	}
	l.run()
	<-l.inf.HasSyncedChecker().Done()
	synctest.Wait()
	return l
}

// open opens the file, the consumer and its queue, and makes the informer.
func (w *world) open() *life {
	w.Helper()
	l := &life{w: w, worked: map[string]int{}}
	var err error
	var backend store.Backend = w.memory
	if w.memory == nil {
		if l.db, err = bolt.Open(w.path, bolt.Options{CommitInterval: w.commits}); err != nil {
			w.Fatal(err)
		}
		backend = l.db
	}
	l.inf = w.informer(backend)
	if w.ledger != nil {
		backend = w.ledger(l.db)
	}
	if l.consumer, err = durable.Open(backend, "test", w.opts); err != nil {
		w.Fatal(err)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](time.Second, time.Hour)
	codec := w.codec
	if codec == nil {
		codec = durable.ObjectNames
	}
	l.queue = durable.NewQueue(l.consumer, limiter, codec)
	return l
}

// openConsumer opens the file, and a consumer without a queue.
func (w *world) openConsumer() (*bolt.DB, *durable.Consumer) {
	w.Helper()
	db, err := bolt.Open(w.path, bolt.Options{})
	if err != nil {
		w.Fatal(err)
	}
	c, err := durable.Open(db, "test", durable.Options{})
	if err != nil {
		w.Fatal(err)
	}
	return db, c
}

// informer makes an informer of the server's objects on a backend.
func (w *world) informer(db store.Backend) *informer.Informer {
	w.Helper()
	inf, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{
		Backend: db, TransformVersion: w.transform, Scope: store.Scope{Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
	})
	if err != nil {
		w.Fatal(err)
	}
	if w.transform != "" {
		if err := inf.SetTransform(func(obj any) (any, error) { return obj, nil }); err != nil {
			w.Fatal(err)
		}
	}
	_ = inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	return inf
}

// also runs another informer until the end.
func (l *life) also(inf *informer.Informer) {
	l.running.Go(func() { inf.RunWithContext(l.ctx) })
	<-inf.HasSyncedChecker().Done()
}

func (l *life) addHandler(h cache.ResourceEventHandler) {
	l.w.Helper()
	if _, err := l.inf.AddEventHandler(l.consumer.Handler(h)); err != nil {
		l.w.Fatal(err)
	}
}

// run starts the informer.
func (l *life) run() {
	ctx, cancel := context.WithCancel(klog.NewContext(l.w.Context(), l.w.logger))
	l.stop, l.ctx = cancel, ctx
	l.running.Go(func() { l.inf.RunWithContext(ctx) })
}

// begin starts the worker, which waits for the informer, as controllers do.
func (l *life) begin() *life {
	l.running.Go(func() {
		select {
		case <-l.inf.HasSyncedChecker().Done():
		case <-l.ctx.Done():
		}
		for {
			item, over := l.queue.Get()
			if over {
				return
			}
			l.mu.Lock()
			l.worked[item.Name]++
			work := l.work
			l.mu.Unlock()
			var end outcome
			if work != nil {
				end = work(item.Name)
			}
			switch {
			case end.err:
				l.queue.AddRateLimited(item)
			case end.after > 0:
				l.queue.Forget(item)
				l.queue.AddAfter(item, end.after)
			case !end.lost:
				l.queue.Forget(item)
			}
			l.queue.Done(item)
		}
	})
	synctest.Wait()
	return l
}

// wantDelayed checks that the key later comes once, between two moments, and not in the
// next process. It ends the life.
func (l *life) wantDelayed(before, after time.Duration) {
	l.w.Helper()
	l.w.pass(before)
	l.want("before the delay is over")
	l.w.pass(after)
	l.want("after the delay", "later")
	l.end()
	l = l.w.start(1).begin()
	l.w.pass(2 * time.Hour)
	l.want("when all is done")
	l.end()
}

// want checks which keys were worked on since the last call, and how often.
func (l *life) want(what string, keys ...string) {
	l.w.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	want := map[string]int{}
	for _, key := range keys {
		want[key]++
	}
	if diff := cmp.Diff(want, l.worked); diff != "" {
		l.w.Errorf("%s: worked on (-want +got):\n%s%s", what, diff, strings.Join(l.calls, "\n"))
	}
	clear(l.worked)
	l.calls = nil
}

// wantCalls checks what the handlers have received since the last call of want.
func (l *life) wantCalls(what string, calls ...string) {
	l.w.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if diff := cmp.Diff(calls, l.calls); diff != "" {
		l.w.Errorf("%s: received (-want +got):\n%s", what, diff)
	}
}

// end ends the process as SIGTERM does.
func (l *life) end() {
	l.w.Helper()
	l.queue.ShutDown()
	l.stop()
	l.running.Wait()
	if err := l.consumer.Close(); err != nil {
		l.w.Error(err)
	}
	if l.trace != nil {
		l.trace("ended: %+v", l.consumer.Status())
	}
	if l.db == nil {
		return
	}
	if err := l.db.Close(); err != nil {
		l.w.Error(err)
	}
}

// kill ends the process at this moment: the next one finds the file as it is now.
func (l *life) kill() {
	l.w.Helper()
	next := l.image()
	l.end()
	l.w.path = next
}

// dead says that the process has died: what it still does is not its work.
func (l *life) dead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// image copies the file as it is now, and returns the path of the copy.
func (l *life) image() string {
	w := l.w
	w.Helper()
	w.files++
	next := filepath.Join(w.dir, fmt.Sprintf("informers-%d.db", w.files))
	b, err := os.ReadFile(w.path)
	if err == nil {
		err = os.WriteFile(next, b, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
	return next
}

// pass lets time pass in the bubble.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// wipe empties the file.
func (w *world) wipe() {
	w.Helper()
	db, err := bolt.Open(w.path, bolt.Options{})
	if err != nil {
		w.Fatal(err)
	}
	infos, err := db.Scopes()
	if err != nil {
		w.Fatal(err)
	}
	if _, err := db.Wipe(func(s store.Scope) bool { return s.ID() == infos[0].ID }); err != nil {
		w.Fatal(err)
	}
	if err := db.Close(); err != nil {
		w.Fatal(err)
	}
}

// received returns what handlers have received since the last call of want.
func (l *life) received() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// other adds a handler of nobody's consumer.
func (l *life) other(f func(call string)) {
	l.w.Helper()
	h := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f("add") },
		UpdateFunc: func(_, _ any) { f("update") },
		DeleteFunc: func(any) { f("delete") },
	}
	if _, err := l.inf.AddEventHandler(h); err != nil {
		l.w.Fatal(err)
	}
}
