package informer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// These tests check the rules that users of client-go's shared informer rely on, one test
// for each rule. Each test runs on client-go's informer and on ours, in memory and on a
// file, so that it fails if client-go changes a rule. TestTraces compares traces of whole
// lives. The tests named in the package documentation check the intended differences.

// subjectOf is one of the informers on which a rule is checked.
type subjectOf struct {
	*world
	inf  cache.SharedIndexInformer
	ours bool
	stop context.CancelFunc
	done chan struct{}
}

// onEach runs a rule on each informer.
func onEach(t *testing.T, resync time.Duration, indexers cache.Indexers, rule func(s *subjectOf)) {
	t.Helper()
	makers := map[string]makeInformer{"client-go": clientGo, "mem": onMem, "bolt": onBolt(t.TempDir())}
	for _, name := range slices.Sorted(maps.Keys(makers)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				inf, closeBackend := makers[name](w.T, w.server, resync, maps.Clone(indexers))
				s := &subjectOf{world: w, inf: inf, ours: name != "client-go", done: make(chan struct{})}
				if err := inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
					w.Fatal(err)
				}
				rule(s)
				if s.stop != nil {
					s.end()
				}
				closeBackend()
			})
		})
	}
}

func (s *subjectOf) handle(h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	s.Helper()
	handle, err := s.inf.AddEventHandler(h)
	if err != nil {
		s.Fatal(err)
	}
	return handle
}

func (s *subjectOf) start() *subjectOf {
	ctx, cancel := context.WithCancel(klog.NewContext(s.Context(), klog.Logger{}))
	s.stop = cancel
	go func() {
		defer close(s.done)
		s.inf.RunWithContext(ctx)
	}()
	return s
}

func (s *subjectOf) sync() *subjectOf {
	<-s.inf.HasSyncedChecker().Done()
	synctest.Wait()
	return s
}

func (s *subjectOf) end() {
	s.stop()
	<-s.done
	s.stop = nil
}

// TestOrderOneHandler checks that a handler receives one call at a time, in the order of
// the watch, also across objects.
func TestOrderOneHandler(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		var inside atomic.Int32
		l.hook = func(string) {
			if inside.Add(1) != 1 {
				s.Error("two calls of one handler at a time")
			}
			inside.Add(-1)
		}
		s.handle(l)
		s.start().sync()
		var want []string
		for i := range 50 {
			name := fmt.Sprintf("o-%d", i%7)
			rv := s.put(name, fmt.Sprint(i))
			if i < 7 {
				want = append(want, fmt.Sprintf("add %s@%s=%d", name, rv, i))
			} else {
				was := i - 7
				want = append(want, fmt.Sprintf("update %s@%d=%d %s@%s=%d", name, was+2, was, name, rv, i))
			}
			synctest.Wait()
		}
		s.want(l, want...)
	})
}

// TestRelistDeletesFirst checks that after a relist deletions come first, as tombstones
// with the known object.
func TestRelistDeletesFirst(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		s.handle(l)
		s.put("a", "1")
		s.put("b", "1")
		s.put("z", "1")
		s.start().sync()
		l.take()
		s.server.Down()
		s.put("a", "2")
		s.put("c", "1")
		s.drop("z")
		if err := s.server.Compact(s.server.RV()); err != nil {
			s.Fatal(err)
		}
		s.server.Up()
		waitFor(2 * time.Minute)
		told := sameButUnchanged(l.take())
		if len(told) > 0 {
			slices.Sort(told[1:]) // the others are in the list's order
		}
		want := []string{"delete tombstone z@4=1", "add c@6=1", "update a@2=1 a@5=2"}
		if diff := cmp.Diff(want, told); diff != "" {
			s.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestWatchDeletion checks that a deletion from a watch has the object with the resource
// version of the deletion, and is no tombstone.
func TestWatchDeletion(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		s.handle(l)
		s.put("a", "1")
		s.start().sync()
		s.drop("a")
		s.want(l, "initial a@2=1", "delete a@3=1")
	})
}

// TestIsInInitialList checks that isInInitialList is true for the objects of the first
// list, and for a late handler for the objects that exist when it is added, but not for
// later objects.
func TestIsInInitialList(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l, late := &log{}, &log{}
		s.put("a", "1")
		s.handle(l)
		s.start().sync()
		s.put("b", "1")
		s.want(l, "initial a@2=1", "add b@3=1")
		s.handle(late)
		synctest.Wait()
		told := late.take()
		slices.Sort(told)
		if diff := cmp.Diff([]string{"initial a@2=1", "initial b@3=1"}, told); diff != "" {
			s.Error(diff)
		}
	})
}

// TestEmptyListSyncs checks that an informer and its handlers sync after an empty list.
func TestEmptyListSyncs(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		handle := s.handle(l)
		if s.inf.HasSynced() || handle.HasSynced() {
			s.Error("synced before it ran")
		}
		s.start().sync()
		if !s.inf.HasSynced() || !handle.HasSynced() || !s.inf.GetController().HasSynced() {
			s.Error("not synced after an empty list")
		}
		if !cache.WaitForCacheSync(s.Context().Done(), s.inf.HasSynced, handle.HasSynced) {
			s.Error("WaitForCacheSync says no")
		}
		select {
		case <-s.inf.GetController().HasSyncedChecker().Done():
		default:
			s.Error("the controller's checker is not done")
		}
	})
}

// TestHasSyncedBeforeHandlers checks that the informer syncs when the store contains the
// list, and a handler when it has returned from every initial add.
func TestHasSyncedBeforeHandlers(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		s.put("a", "1")
		gate := make(chan struct{})
		handle := s.handle(&log{hook: func(string) { <-gate }})
		s.start()
		waitFor(time.Second)
		if !s.inf.HasSynced() || handle.HasSynced() {
			s.Errorf("informer %v, handler %v while the handler works", s.inf.HasSynced(), handle.HasSynced())
		}
		close(gate)
		waitFor(time.Second)
		if !handle.HasSynced() {
			s.Error("the handler has not synced")
		}
	})
}

// TestSetAfterStart checks that transform and watch error handler cannot be set after the
// start.
func TestSetAfterStart(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		if err := s.inf.SetTransform(nil); err != nil {
			s.Errorf("SetTransform(nil) before the start: %v", err)
		}
		s.start().sync()
		if err := s.inf.SetTransform(func(o any) (any, error) { return o, nil }); err == nil {
			s.Error("SetTransform after the start")
		}
		if err := s.inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err == nil {
			s.Error("SetWatchErrorHandler after the start")
		}
		if err := s.inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err == nil {
			s.Error("SetWatchErrorHandlerWithContext after the start")
		}
	})
}

// TestAddIndexers checks that indexers can be added before and after the start and that
// stored objects are indexed at once. A name that is taken is an error, and so is a
// stopped informer.
func TestAddIndexers(t *testing.T) {
	onEach(t, 0, cache.Indexers{"v": byValue(new(bool), false)}, func(s *subjectOf) {
		byLabel := func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Labels["app"]}, nil }
		if err := s.inf.AddIndexers(cache.Indexers{"before": byLabel}); err != nil {
			s.Error(err)
		}
		s.put("a", "1")
		s.put("b", "2")
		s.start().sync()
		if err := s.inf.AddIndexers(cache.Indexers{"after": byLabel}); err != nil {
			s.Error(err)
		}
		if err := s.inf.AddIndexers(cache.Indexers{"new": byLabel, "v": byLabel}); err == nil {
			s.Error("a name was taken twice")
		}
		if _, err := s.inf.GetIndexer().ByIndex("new", "1"); err == nil {
			s.Error("an index of a refused call is there")
		}
		for _, name := range []string{"v", "before", "after"} {
			keys, err := s.inf.GetIndexer().IndexKeys(name, "2")
			if diff := cmp.Diff([]string{"default/b"}, keys); diff != "" || err != nil {
				s.Errorf("%s: %v %s", name, err, diff)
			}
		}
		s.end()
		if err := s.inf.AddIndexers(cache.Indexers{"stopped": byLabel}); err == nil {
			s.Error("indexers were added to an informer that has stopped")
		}
	})
}

// TestIndexQueries checks that an unknown index is an error, except for
// ListIndexFuncValues, that keys are sorted, and that an object under several values is
// returned once.
func TestIndexQueries(t *testing.T) {
	several := func(obj any) ([]string, error) { return []string{"x", obj.(*corev1.ConfigMap).Data["v"], "x"}, nil }
	onEach(t, 0, cache.Indexers{"several": several}, func(s *subjectOf) {
		for _, name := range []string{"c", "a", "b"} {
			s.put(name, "x")
		}
		s.put("d", "y")
		s.start().sync()
		indexer := s.inf.GetIndexer()
		probe := &corev1.ConfigMap{}
		for _, name := range []string{"none", ""} {
			_, errIndex := indexer.Index(name, probe)
			_, errBy := indexer.ByIndex(name, "x")
			_, errKeys := indexer.IndexKeys(name, "x")
			if errIndex == nil || errBy == nil || errKeys == nil {
				s.Errorf("index %q, which is not there: %v, %v, %v", name, errIndex, errBy, errKeys)
			}
			if values := indexer.ListIndexFuncValues(name); len(values) > 0 {
				s.Errorf("values of index %q, which is not there: %v", name, values)
			}
		}
		keys, err := indexer.IndexKeys("several", "x")
		if diff := cmp.Diff([]string{"default/a", "default/b", "default/c", "default/d"}, keys); diff != "" || err != nil {
			s.Errorf("IndexKeys: %v %s", err, diff)
		}
		objs, err := indexer.Index("several", &corev1.ConfigMap{Data: map[string]string{"v": "y"}})
		if err != nil || len(objs) != 4 {
			s.Errorf("Index by an object with two values: %d objects, %v; want each of 4 once", len(objs), err)
		}
		values := indexer.ListIndexFuncValues("several")
		slices.Sort(values)
		if diff := cmp.Diff([]string{"x", "y"}, values); diff != "" {
			s.Error(diff)
		}
	})
}

// TestStoreRV checks that LastStoreSyncResourceVersion follows objects, deletions and
// bookmarks, and that LastSyncResourceVersion is the reflector's.
func TestStoreRV(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		if s.inf.LastSyncResourceVersion() != "" || s.inf.GetStore().LastStoreSyncResourceVersion() != "" {
			s.Error("a resource version before the start")
		}
		s.put("a", "1")
		s.start().sync()
		check := func(want string) {
			s.Helper()
			synctest.Wait()
			got := []string{s.inf.GetStore().LastStoreSyncResourceVersion(), s.inf.LastSyncResourceVersion(), s.inf.GetController().LastSyncResourceVersion()}
			if diff := cmp.Diff([]string{want, want, want}, got); diff != "" {
				s.Error(diff)
			}
		}
		check("2")
		check(s.put("a", "2"))
		check(s.drop("a"))
		rv := s.server.Advance()
		waitFor(time.Minute + time.Second)
		check(rv)
	})
}

// TestRemoveHandlerTwice checks that removal is idempotent, that a handle of another
// informer has no effect, and that a handle of a foreign type is an error.
func TestRemoveHandlerTwice(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		handle := s.handle(&log{})
		s.start().sync()
		for range 2 {
			if err := s.inf.RemoveEventHandler(handle); err != nil {
				s.Error(err)
			}
		}
		shut, ok := handle.(interface{ ShutdownChan() <-chan struct{} })
		if !ok {
			s.Fatal("the handle has no ShutdownChan, which cache.ShutDownEventHandler asks for")
		}
		<-shut.ShutdownChan()
		if err := s.inf.RemoveEventHandler(foreignHandle{}); err == nil {
			s.Error("a handle of a foreign type was removed")
		}
		other, closeOther := onMem(s.T, s.server, 0, nil)
		defer closeOther()
		foreign, err := other.AddEventHandler(&log{})
		if err != nil {
			s.Fatal(err)
		}
		if err := s.inf.RemoveEventHandler(foreign); s.ours && err != nil {
			s.Errorf("a handle of another informer: %v", err)
		}
	})
}

type foreignHandle struct{}

func (foreignHandle) HasSynced() bool                     { return true }
func (foreignHandle) HasSyncedChecker() cache.DoneChecker { return nil }

// TestRemovedHandlerIsDropped checks that a removed handler does not receive the
// notifications that were queued.
func TestRemovedHandlerIsDropped(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		gate := make(chan struct{})
		l := &log{}
		s.start().sync()
		l.hook = func(string) { <-gate }
		handle := s.handle(l)
		for i := range 20 {
			s.put(fmt.Sprintf("o-%02d", i), "1")
		}
		synctest.Wait()
		if err := s.inf.RemoveEventHandler(handle); err != nil {
			s.Error(err)
		}
		close(gate)
		synctest.Wait()
		if told := l.take(); len(told) > 2 {
			s.Errorf("%d notifications after the removal", len(told))
		}
	})
}

// TestHandlersFromWithin checks that a handler may remove itself and add another.
func TestHandlersFromWithin(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		other := &log{}
		added := make(chan struct{})
		handles := make(chan cache.ResourceEventHandlerRegistration, 1)
		l := &log{hook: func(string) {
			if err := s.inf.RemoveEventHandler(<-handles); err != nil {
				s.Error(err)
			}
			if _, err := s.inf.AddEventHandler(other); err != nil {
				s.Error(err)
			}
			close(added)
		}}
		handles <- s.handle(l)
		s.put("a", "1")
		s.start()
		<-added
		s.sync()
		s.put("a", "2")
		synctest.Wait()
		if told := other.take(); len(told) != 2 || told[0] != "initial a@2=1" && told[0] != "add a@2=1" {
			s.Errorf("the handler added from within was told %q", told)
		}
	})
}

// TestStop checks that after Run has returned IsStopped is true, a second Run does
// nothing, handlers receive nothing more, new handlers and indexers are refused, and the
// store can be read.
func TestStop(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		s.handle(l)
		s.put("a", "1")
		if s.inf.IsStopped() {
			s.Error("stopped before it ran")
		}
		s.start().sync()
		l.take()
		s.end()
		if !s.inf.IsStopped() {
			s.Error("not stopped after Run")
		}
		s.put("a", "2")
		s.want(l)
		if _, err := s.inf.AddEventHandler(l); err == nil {
			s.Error("a handler was added after the stop")
		}
		s.inf.RunWithContext(s.Context()) // returns at once
		if keys := s.inf.GetStore().ListKeys(); !slices.Equal(keys, []string{"default/a"}) {
			s.Errorf("keys after the stop: %v", keys)
		}
	})
}

// TestPanicSkipsOne checks that, with ReallyCrash off, a handler that panics loses one
// notification, and that other handlers lose none.
func TestPanicSkipsOne(t *testing.T) {
	saved := utilruntime.PanicHandlers
	utilruntime.ReallyCrash, utilruntime.PanicHandlers = false, nil
	defer func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = true, saved }()
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{hook: func(line string) {
			if strings.Contains(line, "b@") {
				panic("on purpose")
			}
		}}
		s.handle(l)
		s.start().sync()
		for _, name := range []string{"a", "b", "c"} {
			s.put(name, "1")
			waitFor(5 * time.Second) // client-go pauses for a second
		}
		s.want(l, "add a@2=1", "add c@4=1")
	})
}

// TestBlockedHandler checks that a blocked handler delays neither the store nor other
// handlers.
func TestBlockedHandler(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		gate := make(chan struct{})
		l := &log{}
		s.handle(&log{hook: func(string) { <-gate }})
		s.handle(l)
		s.start()
		waitFor(time.Second)
		for i := range 3000 {
			s.put(fmt.Sprintf("o-%04d", i), "1")
			if i%500 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if told := l.take(); len(told) != 3000 {
			s.Errorf("the other handler was told of %d objects, want 3000", len(told))
		}
		if n := len(s.inf.GetStore().ListKeys()); n != 3000 {
			s.Errorf("the store has %d objects, want 3000", n)
		}
		close(gate)
		synctest.Wait()
	})
}

// fakeClient represents a fake clientset, whose watches do not stream lists.
type fakeClient struct{ *world }

type contextKey struct{}

func (c fakeClient) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	c.check(ctx, o)
	return c.server.ListWithContext(ctx, o)
}

func (c fakeClient) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c.check(ctx, o)
	return c.server.WatchWithContext(ctx, o)
}

func (c fakeClient) check(ctx context.Context, o metav1.ListOptions) {
	if o.SendInitialEvents != nil {
		c.Error("a client that says it does not stream lists was asked to")
	}
	if ctx.Value(contextKey{}) != "of Run" {
		c.Error("a request without Run's context")
	}
}

func (fakeClient) List(metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("the variant without a context was called")
}

func (fakeClient) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("the variant without a context was called")
}

func (fakeClient) IsWatchListSemanticsUnSupported() bool { return true }

// TestListerWatcherForwarded checks that the optional methods of a ListerWatcher are
// called and that its variants with a context are used.
func TestListerWatcherForwarded(t *testing.T) {
	for name, construct := range map[string]makeInformer{"client-go": clientGo, "mem": onMem} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				inf, closeBackend := construct(w.T, fakeClient{w}, 0, nil)
				defer closeBackend()
				w.put("a", "1")
				ctx, stop := context.WithCancel(context.WithValue(klog.NewContext(w.Context(), klog.Logger{}), contextKey{}, "of Run"))
				done := make(chan struct{})
				go func() {
					defer close(done)
					inf.RunWithContext(ctx)
				}()
				<-inf.HasSyncedChecker().Done()
				w.put("a", "2")
				synctest.Wait()
				if rv := inf.LastSyncResourceVersion(); rv != "3" {
					w.Errorf("resource version %q", rv)
				}
				stop()
				<-done
			})
		})
	}
}

// TestWatchErrorHandler checks that the handler receives a Reflector that has its
// properties and that client-go's default handler accepts.
func TestWatchErrorHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		type seen struct{ err, rv, description string }
		errs := make(chan seen, 10)
		inf, closeBackend := onMem(w.T, w.server, 0, nil)
		defer closeBackend()
		err := inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			errs <- seen{err.Error(), r.LastSyncResourceVersion(), r.TypeDescription()}
			// The default handler does not sleep after this error.
			if apierrors.IsResourceExpired(err) {
				cache.DefaultWatchErrorHandler(ctx, r, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &subjectOf{world: w, inf: inf, done: make(chan struct{})}
		s.start().sync()
		s.server.FailWatch(apierrors.NewServiceUnavailable("on purpose"), apierrors.NewResourceExpired("on purpose"))
		s.server.CloseWatches()
		waitFor(time.Minute)
		for range 2 {
			got := <-errs
			// It also receives the end of the watch.
			for !strings.Contains(got.err, "on purpose") {
				got = <-errs
			}
			if got.rv != "2" || got.description != "/v1, Kind=ConfigMap" {
				t.Errorf("told of %+v", got)
			}
		}
		s.end()
	})
}

// TestWatchErrorIsItself checks that the error handler receives the error of a watch as
// it is: those that are written after client-go's default compare it with io.EOF.
func TestWatchErrorIsItself(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		var heard []error
		var mu sync.Mutex
		err := s.inf.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, err)
		})
		if err != nil {
			s.Fatal(err)
		}
		s.put("a", "1")
		s.start().sync()
		waitFor(10 * time.Second)
		s.server.FailWatch(io.EOF)
		s.server.CloseWatches()
		waitFor(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(heard, io.EOF) {
			s.Errorf("heard %q, want io.EOF itself", heard)
		}
	})
}

// lookAlike has methods of the names that this package's own followers have.
type lookAlike struct {
	cache.ResourceEventHandlerFuncs
}

func (*lookAlike) Updated(_, _ runtime.Object) { panic("it is no follower") }
func (*lookAlike) Deleted(_, _ runtime.Object) { panic("it is no follower") }

// TestHandlerWithMoreMethods checks that a handler is called by the methods of
// cache.ResourceEventHandler alone.
func TestHandlerWithMoreMethods(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		told := make(chan string, 10)
		s.handle(&lookAlike{cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(any, any) { told <- "updated" },
			DeleteFunc: func(any) { told <- "deleted" },
		}})
		s.put("a", "1")
		s.start().sync()
		s.put("a", "2")
		if _, err := s.server.Delete("default/a"); err != nil {
			s.Fatal(err)
		}
		if got := []string{<-told, <-told}; !slices.Equal(got, []string{"updated", "deleted"}) {
			s.Errorf("told %q", got)
		}
	})
}

// TestStoreWrites checks that objects that are written to the store directly, as tests
// do, can be read from it.
func TestStoreWrites(t *testing.T) {
	onEach(t, 0, cache.Indexers{"v": byValue(new(bool), false)}, func(s *subjectOf) {
		store := s.inf.GetIndexer()
		obj := func(name, value string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}
		}
		steps := []error{store.Add(obj("a", "1")), store.Add(obj("b", "1")), store.Update(obj("a", "2")), store.Delete(obj("b", "1")), store.Delete(obj("none", ""))}
		if err := errors.Join(steps...); err != nil {
			s.Error(err)
		}
		got, ok, err := store.GetByKey("default/a")
		if err != nil || !ok || got.(*corev1.ConfigMap).Data["v"] != "2" {
			s.Errorf("GetByKey: %v, %v", ok, err)
		}
		if keys, err := store.IndexKeys("v", "2"); err != nil || !slices.Equal(keys, []string{"default/a"}) {
			s.Errorf("IndexKeys: %v, %v", keys, err)
		}
		if err := store.Replace([]any{obj("c", "3")}, "77"); err != nil {
			s.Error(err)
		}
		if keys, rv := store.ListKeys(), store.LastStoreSyncResourceVersion(); !slices.Equal(keys, []string{"default/c"}) || rv != "77" {
			s.Errorf("after Replace: %v at %q", keys, rv)
		}
		store.Bookmark("78")
		if rv := store.LastStoreSyncResourceVersion(); rv != "78" {
			s.Errorf("after Bookmark: %q", rv)
		}
		if err := store.Resync(); err != nil {
			s.Error(err)
		}
		if _, ok, err := store.Get(obj("a", "")); ok || err != nil {
			s.Errorf("Get of what is gone: %v, %v", ok, err)
		}
	})
}
