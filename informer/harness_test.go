package informer_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// world is an API server of ConfigMaps and the directory of a cache file, in a synctest
// bubble.
type world struct {
	*testing.T
	server *fakeapi.Server
	lw     cache.ListerWatcher // nil: server itself
	path   string
	logger klog.Logger // of informers
}

// overWire makes the informers of the world speak protobuf to the server, so that they
// take objects as they are encoded. between, which may be nil, is what the ListerWatcher
// of informers does with objects.
func (w *world) overWire(contentType string, between func(runtime.Object)) {
	w.Helper()
	if w.lw = overHTTP(w.T, w.server, contentType); between != nil {
		w.lw = changing(w.lw, between)
	}
}

// overHTTP returns what lists and watches a server's ConfigMaps through a client.
func overHTTP(t *testing.T, server *fakeapi.Server, contentType string) cache.ListerWatcher {
	t.Helper()
	return overConfig(t, server.Config(contentType))
}

// overConfig returns what lists and watches ConfigMaps through a client.
func overConfig(t *testing.T, cfg *rest.Config) cache.ListerWatcher {
	t.Helper()
	informer.TakeEncoded(cfg)
	lw, err := fakeapi.ListerWatcher(cfg, corev1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		t.Fatal(err)
	}
	return lw
}

// changing returns a ListerWatcher that calls f with each object.
func changing(lw cache.ListerWatcher, f func(runtime.Object)) cache.ListerWatcher {
	inner := cache.ToListerWatcherWithContext(lw)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, opts)
			if err == nil {
				err = meta.EachListItem(list, func(obj runtime.Object) error {
					f(obj)
					return nil
				})
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			events, err := inner.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
				if e.Type != watch.Bookmark && e.Type != watch.Error {
					f(e.Object)
				}
				return e, true
			}), nil
		},
	}
}

func inBubble(t *testing.T, f func(w *world)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		f(&world{T: t, path: path, server: fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})})
	})
}

// put creates or updates an object in the default namespace.
func (w *world) put(name, data string) string {
	w.Helper()
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": data}},
		Data:       map[string]string{"v": data},
	}
	rv, err := w.server.Update(obj)
	if err != nil {
		rv, err = w.server.Create(obj)
	}
	if err != nil {
		w.Fatal(err)
	}
	return rv
}

func (w *world) drop(name string) string {
	w.Helper()
	rv, err := w.server.Delete("default/" + name)
	if err != nil {
		w.Fatal(err)
	}
	return rv
}

func (w *world) open() *bolt.DB {
	w.Helper()
	db, err := bolt.Open(w.path, bolt.Options{})
	if err != nil {
		w.Fatal(err)
	}
	return db
}

// run is an informer that runs on the world's file.
type run struct {
	w    *world
	inf  *informer.Informer
	db   *bolt.DB
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	errors []string // what its watch error handler has received
}

func (r *run) hear(_ context.Context, _ *cache.Reflector, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, err.Error())
}

func (r *run) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errors)
}

func (w *world) run(opts informer.Options, prepare ...func(*informer.Informer)) *run {
	w.Helper()
	return w.runOf(&corev1.ConfigMap{}, opts, prepare...)
}

// runOf is like run, with an example of another type.
func (w *world) runOf(example runtime.Object, opts informer.Options, prepare ...func(*informer.Informer)) *run {
	w.Helper()
	r := &run{w: w, done: make(chan struct{})}
	if opts.Backend == nil {
		r.db = w.open()
		opts.Backend = r.db
	}
	var lw cache.ListerWatcher = w.server
	if w.lw != nil {
		lw = w.lw
	}
	inf, err := informer.New(lw, example, opts)
	if err != nil {
		w.Fatal(err)
	}
	r.inf = inf
	// client-go's default handler sleeps until a millisecond after the last error of the
	// process, which is decades away in a bubble.
	if err := inf.SetWatchErrorHandlerWithContext(r.hear); err != nil {
		w.Fatal(err)
	}
	for _, f := range prepare {
		f(inf)
	}
	r.start()
	return r
}

func (r *run) start() {
	ctx, cancel := context.WithCancel(klog.NewContext(r.w.Context(), r.w.logger))
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.inf.RunWithContext(ctx)
	}()
}

func (r *run) sync() *run {
	<-r.inf.HasSyncedChecker().Done()
	synctest.Wait()
	return r
}

// end stops the informer like a process that exits normally.
func (r *run) end() {
	r.w.Helper()
	r.stop()
	<-r.done
	if r.db != nil {
		if err := r.db.Close(); err != nil {
			r.w.Error(err)
		}
	}
}

// log is a handler that records the notifications that it receives.
type log struct {
	mu    sync.Mutex
	lines []string
	hook  func(line string) // called before the line is written; may block
}

func describe(obj any) string {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return "tombstone " + describe(t.Obj)
	}
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return fmt.Sprintf("%T", obj)
	}
	return fmt.Sprintf("%s@%s=%s", cm.Name, cm.ResourceVersion, cm.Data["v"])
}

func (l *log) write(line string) {
	l.mu.Lock()
	hook := l.hook
	l.mu.Unlock()
	if hook != nil {
		hook(line)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *log) OnAdd(obj any, initial bool) {
	kind := "add "
	if initial {
		kind = "initial "
	}
	l.write(kind + describe(obj))
}
func (l *log) OnUpdate(old, obj any) { l.write("update " + describe(old) + " " + describe(obj)) }
func (l *log) OnDelete(obj any)      { l.write("delete " + describe(obj)) }

// take returns the lines that were recorded since the last call.
func (l *log) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (w *world) want(l *log, want ...string) {
	w.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, l.take()); diff != "" {
		w.Errorf("handler was told (-want +got):\n%s", diff)
	}
}

func handle(w *world, l cache.ResourceEventHandler) func(*informer.Informer) {
	return func(inf *informer.Informer) {
		w.Helper()
		h, err := inf.AddEventHandler(l)
		if err != nil {
			w.Fatal(err)
		}
		if r, ok := l.(*guarantees.Recorder); ok {
			r.Registered(h)
		}
	}
}

// atRest checks that the store and the handler's notifications match the server's
// objects, and that no guarantee was broken.
func (r *run) atRest(told *guarantees.Recorder) {
	r.w.Helper()
	synctest.Wait()
	// Whole.
	list, err := r.w.server.ListWithContext(r.w.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		r.w.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		r.w.Fatal(err)
	}
	server, err := guarantees.States(items)
	if err != nil {
		r.w.Fatal(err)
	}
	held, err := guarantees.States(r.inf.GetStore().List())
	if err != nil {
		r.w.Fatal(err)
	}
	if diff := cmp.Diff(server, held); diff != "" {
		r.w.Errorf("store (-server +store):\n%s", diff)
	}
	told.AtRest(server)
	for _, violation := range told.Violations() {
		r.w.Error(violation)
	}
}

// isStreamedList reports whether a request is a streamed list. One of a few seconds is a
// probe.
func isStreamedList(r fakeapi.Request) bool {
	o := r.Options
	return o.SendInitialEvents != nil && *o.SendInitialEvents && (o.TimeoutSeconds == nil || *o.TimeoutSeconds > 5)
}

// lists describes the lists of the collection since a request; probes are not included.
func (w *world) lists(since int) (lists []string) {
	for _, r := range w.server.Requests()[since:] {
		if r.Verb == "list" && r.Options.Limit != 1 && r.Options.Limit != reflector.WholeLimit || isStreamedList(r) {
			lists = append(lists, r.Verb)
		}
	}
	return lists
}

// stored reads the file like the next process would.
func (w *world) stored(path string) (objects []string, cp store.Checkpoint) {
	w.Helper()
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	infos, err := db.Scopes()
	if err != nil {
		w.Fatal(err)
	}
	for _, info := range infos {
		s, err := db.Open(info.Scope, store.Options{})
		if err != nil {
			w.Fatal(err)
		}
		for obj, err := range s.All() {
			if err != nil && !info.Complete {
				break
			}
			if err != nil {
				w.Fatal(err)
			}
			objects = append(objects, describe(obj))
		}
		cp = s.Checkpoint()
	}
	slices.Sort(objects)
	return objects, cp
}

func waitFor(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func contains(lines []string, part string) bool {
	return slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(s, part) })
}
