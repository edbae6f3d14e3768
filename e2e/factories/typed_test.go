package factories_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

type (
	configMap = corev1.ConfigMap
	podType   = corev1.Pod
)

func podNames(pods []*podType) (names []string) {
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

// wrapped is a running informer of ours in client-go's typed wrappers.
type wrapped struct {
	*run
	inf     cache.TypedSharedIndexInformer[*configMap]
	running sync.WaitGroup
}

// wrap opens the file with an informer of ConfigMaps.
func (w *world) wrap() *wrapped {
	w.t.Helper()
	r := w.open()
	lw := listWatch(r.clientset, r.clientset.CoreV1().ConfigMaps(""))
	return &wrapped{run: r, inf: cache.NewTypedSharedIndexInformer[*configMap](
		r.persistent.NewInformer(lw, &configMap{}, 0, byNamespace()),
	)}
}

func (x *wrapped) handle(h cache.TypedResourceEventHandler[*configMap]) cache.ResourceEventHandlerRegistration {
	x.t.Helper()
	handle, err := x.inf.AddTypedEventHandler(h)
	if err != nil {
		x.t.Fatal(err)
	}
	return handle
}

// start runs the informer and returns when the informer and the handlers have synced.
func (x *wrapped) start(handles ...cache.ResourceEventHandlerRegistration) {
	x.t.Helper()
	x.running.Go(func() { x.inf.RunWithContext(x.ctx) })
	ctx, cancel := context.WithTimeout(x.ctx, 2*time.Minute)
	defer cancel()
	checkers := []cache.DoneChecker{x.inf.HasSyncedChecker()}
	for _, h := range handles {
		checkers = append(checkers, h.HasSyncedChecker())
	}
	if !cache.WaitFor(ctx, "", checkers...) {
		x.t.Fatal("not synced")
	}
}

func (x *wrapped) end() {
	x.t.Helper()
	x.stop()
	x.running.Wait()
	x.run.end()
}

// typedView is a typed handler that passes its notifications to a view.
type typedView struct {
	view    *view
	mu      sync.Mutex
	deleted []cache.DeletedObject[*configMap]
}

func (v *typedView) OnAdd(obj *configMap, isInInitialList bool) { v.view.OnAdd(obj, isInInitialList) }

func (v *typedView) OnUpdate(old, obj *configMap) { v.view.OnUpdate(old, obj) }

func (v *typedView) OnDelete(obj cache.DeletedObject[*configMap]) {
	v.mu.Lock()
	v.deleted = append(v.deleted, obj)
	v.mu.Unlock()
	v.view.OnDelete(obj.OptionalObj)
}

// byValue indexes ConfigMaps by one of their annotations.
func byValue() cache.TypedIndexers[*configMap] {
	return cache.TypedIndexers[*configMap]{"changed": func(c *configMap) ([]string, error) {
		return []string{c.Annotations["changed"]}, nil
	}}
}

// testTypedWrappers checks client-go's typed informer, handler and indexer with our
// informer, on a cold start and after a restart.
func (w *world) testTypedWrappers() {
	w.create(configMaps, "wrapped-1")
	w.annotate(configMaps, "wrapped-1", "yes")
	w.create(configMaps, "wrapped-2")
	x, v := w.wrap(), &typedView{view: newView(nil)}
	if err := x.inf.AddTypedIndexers(byValue()); err != nil {
		w.t.Fatal(err)
	}
	x.start(x.handle(v))
	x.checkIndexer("wrapped-1")
	w.annotate(configMaps, "wrapped-2", "yes")
	w.create(configMaps, "wrapped-3")
	v.view.await(w.t, "wrapped-3") // the handler receives it after the update
	x.checkIndexer("wrapped-1", "wrapped-2")
	x.end()
	v.view.End()

	w.delete(configMaps, "wrapped-1")
	x, v = w.wrap(), &typedView{view: newView(v.view.Held())}
	x.start(x.handle(v))
	if err := x.inf.GetTypedIndexer().AddTypedIndexers(byValue()); err != nil {
		w.t.Fatal(err)
	}
	x.checkIndexer("wrapped-2")
	if diff := cmp.Diff([]string{"initial", "delete"}, v.view.told("default/wrapped-1")); diff != "" {
		w.t.Errorf("told of what was deleted while down (-want +got):\n%s", diff)
	}
	v.mu.Lock()
	if len(v.deleted) != 1 || v.deleted[0].GetKey() != "default/wrapped-1" || len(v.deleted[0].OptionalObj.Data) == 0 {
		w.t.Errorf("%d typed deletions", len(v.deleted))
	}
	v.mu.Unlock()
	x.end()
	v.view.AtRest(x.server(&held{form: store.Typed, gvr: configMaps}))
	v.view.check(w.t, "typed handler")
	if got := x.lists(); len(got) > 0 {
		w.t.Errorf("the warm start listed: %q", got)
	}
}

// checkIndexer checks that the typed methods find the ConfigMaps with the annotation.
func (x *wrapped) checkIndexer(want ...string) {
	x.t.Helper()
	indexer := x.inf.GetTypedIndexer()
	found, err := indexer.ByTypedIndex("changed", "yes")
	if err != nil {
		x.t.Fatal(err)
	}
	alike, err := indexer.TypedIndex("changed", found[0])
	if err != nil {
		x.t.Fatal(err)
	}
	for method, list := range map[string][]*configMap{"ByTypedIndex": found, "TypedIndex": alike} {
		var got []string
		for _, c := range list {
			got = append(got, c.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("%s (-want +got):\n%s", method, diff)
		}
	}
}

// blocking is a handler whose first call blocks until it is released.
type blocking struct {
	entered, release chan struct{}
	mu               sync.Mutex
	calls            int
	returned         bool
}

func (b *blocking) call() {
	b.mu.Lock()
	b.calls++
	first := b.calls == 1
	b.mu.Unlock()
	if first {
		close(b.entered)
		<-b.release
		b.mu.Lock()
		b.returned = true
		b.mu.Unlock()
	}
}

func (b *blocking) OnAdd(*configMap, bool)                   { b.call() }
func (b *blocking) OnUpdate(_, _ *configMap)                 { b.call() }
func (b *blocking) OnDelete(cache.DeletedObject[*configMap]) { b.call() }

// testShutDownEventHandler checks that cache.ShutDownEventHandler returns when the
// running call of the handler has returned, and that the handler is not called again.
func (w *world) testShutDownEventHandler() {
	x, v := w.wrap(), &typedView{view: newView(nil)}
	b := &blocking{entered: make(chan struct{}), release: make(chan struct{})}
	handle := x.handle(b)
	x.start(x.handle(v))
	<-b.entered
	if err := x.inf.RemoveEventHandler(handle); err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-handle.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan():
		w.t.Error("the handle says that the handler has ended, and it has not")
	default:
	}
	time.AfterFunc(100*time.Millisecond, func() { close(b.release) })
	for range 2 {
		if err := cache.ShutDownEventHandler(x.inf, handle); err != nil {
			w.t.Error(err)
		}
	}
	w.create(configMaps, "unseen")
	v.view.await(w.t, "unseen")
	b.mu.Lock()
	if !b.returned || b.calls != 1 {
		w.t.Errorf("handler was called %d times, first call has returned: %t", b.calls, b.returned)
	}
	b.mu.Unlock()
	x.end()
}
