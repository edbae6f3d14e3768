package informer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/informctl/informctl/informer"
)

// These tests check the life of an informer and of its handlers, like client-go's own
// tests. Each rule also runs on client-go's informer, as a control.

// onEachFrom is onEach with a ListerWatcher that is created in the bubble.
func onEachFrom(t *testing.T, resync time.Duration, from func(w *world) cache.ListerWatcher, rule func(s *subjectOf)) {
	t.Helper()
	makers := map[string]makeInformer{"client-go": clientGo, "mem": onMem, "bolt": onBolt(t.TempDir())}
	for _, name := range slices.Sorted(maps.Keys(makers)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				inf, closeBackend := makers[name](w.T, from(w), resync, nil)
				defer closeBackend()
				s := &subjectOf{world: w, inf: inf, ours: name != "client-go", done: make(chan struct{})}
				if err := inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
					w.Fatal(err)
				}
				rule(s)
				if s.stop != nil {
					s.end()
				}
			})
		})
	}
}

// handleEvery adds a handler with its own resync period.
func (s *subjectOf) handleEvery(h cache.ResourceEventHandler, period time.Duration) cache.ResourceEventHandlerRegistration {
	s.Helper()
	handle, err := s.inf.AddEventHandlerWithResyncPeriod(h, period)
	if err != nil {
		s.Fatal(err)
	}
	return handle
}

// TestResyncPeriods checks how often each handler is resynced in four minutes. The
// shortest period of the handlers that are added before the start is the interval of the
// informer's check; other periods are rounded up to it.
func TestResyncPeriods(t *testing.T) {
	for _, row := range []struct {
		name     string
		informer time.Duration
		early    []time.Duration // periods of handlers that are added before Run
		late     []time.Duration // periods of handlers that are added after Run
		want     []int
	}{
		{name: "one never", informer: 12 * time.Hour, early: []time.Duration{0}, want: []int{0}},
		{name: "shorter than the informer's", informer: 12 * time.Hour, early: []time.Duration{0, time.Minute}, want: []int{0, 4}},
		{name: "rounded up", informer: 12 * time.Hour, early: []time.Duration{0, time.Minute, 55 * time.Second}, want: []int{0, 2, 4}},
		{name: "a fine check", informer: 12 * time.Hour, early: []time.Duration{0, time.Minute, 55 * time.Second, 5 * time.Second}, want: []int{0, 4, 4, 48}},
		{name: "longer than the informer's", informer: time.Second, early: []time.Duration{0, 2 * time.Second, 3 * time.Second}, want: []int{0, 120, 80}},
		{name: "negative", informer: time.Minute, early: []time.Duration{-1, 2 * time.Minute}, want: []int{4, 2}},
		{name: "the longest", informer: time.Minute, early: []time.Duration{math.MaxInt64, 2 * time.Minute}, want: []int{0, 2}},
		{name: "an informer without a period", early: []time.Duration{0, time.Minute}, want: []int{0, 0}},
		{name: "below the minimum", informer: 12 * time.Hour, early: []time.Duration{time.Millisecond}, want: []int{240}},
		{name: "late and short", informer: time.Minute, early: []time.Duration{0}, late: []time.Duration{time.Second}, want: []int{0, 4}},
	} {
		t.Run(row.name, func(t *testing.T) {
			onEach(t, row.informer, nil, func(s *subjectOf) {
				s.put("a", "1")
				counts := make([]int, len(row.want))
				add := func(i int, period time.Duration) {
					s.handleEvery(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { counts[i]++ }}, period)
				}
				for i, period := range row.early {
					add(i, period)
				}
				s.start().sync()
				for i, period := range row.late {
					add(len(row.early)+i, period)
				}
				waitFor(4*time.Minute + time.Millisecond)
				if diff := cmp.Diff(row.want, counts); diff != "" {
					s.Errorf("resyncs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestHandlerBesideStart adds a handler and calls the setters on other goroutines while
// Run starts.
func TestHandlerBesideStart(t *testing.T) {
	onEach(t, time.Second, nil, func(s *subjectOf) {
		s.put("a", "1")
		l := &log{}
		var others sync.WaitGroup
		others.Go(func() { s.handleEvery(l, 0) })
		others.Go(func() {
			for s.inf.SetTransform(func(obj any) (any, error) { return obj, nil }) == nil {
				<-time.After(time.Microsecond)
			}
		})
		others.Go(func() {
			for s.inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}) == nil {
				<-time.After(time.Microsecond)
			}
		})
		<-time.After(2 * time.Microsecond)
		s.start().sync()
		others.Wait()
		s.want(l, "initial a@2=1")
	})
}

// TestListErrorIsHeard checks that the watch error handler without a context receives the
// error of a list, and that the informer tries again.
func TestListErrorIsHeard(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		var heard []error
		if err := s.inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { heard = append(heard, err) }); err != nil {
			s.Fatal(err)
		}
		s.put("a", "1")
		s.server.FailWatch(errOnPurpose) // a streamed list
		s.server.FailList(errOnPurpose)
		s.start().sync()
		if len(heard) != 1 || !errors.Is(heard[0], errOnPurpose) && !strings.Contains(heard[0].Error(), errOnPurpose.Error()) {
			s.Errorf("heard %v, want %v", heard, errOnPurpose)
		}
		if keys := s.inf.GetStore().ListKeys(); !slices.Equal(keys, []string{"default/a"}) {
			s.Errorf("keys %q", keys)
		}
	})
}

// TestTransformedStates checks that the store and handlers have the results of the
// transform, under the transformed names, for additions, updates and deletions.
func TestTransformedStates(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		s.transform(func(cm *corev1.ConfigMap) (any, error) {
			cm.Name = strings.ToUpper(cm.Name)
			cm.Data = map[string]string{"v": strings.TrimSuffix(cm.Data["v"], "!") + "!"}
			return cm, nil
		})
		l := &log{}
		s.handle(l)
		s.put("a", "1")
		s.start().sync()
		s.want(l, "initial A@2=1!")
		s.put("b", "1")
		s.want(l, "add B@3=1!")
		s.put("b", "2")
		s.want(l, "update B@3=1! B@4=2!")
		s.drop("a")
		s.want(l, "delete A@5=1!")
		var held []string
		for _, obj := range s.inf.GetStore().List() {
			held = append(held, describe(obj))
		}
		if diff := cmp.Diff([]string{"B@4=2!"}, held); diff != "" {
			s.Errorf("store (-want +got):\n%s", diff)
		}
		if _, there, err := s.inf.GetStore().GetByKey("default/b"); there || err != nil {
			s.Errorf("the object is there under its old name: %v, %v", there, err)
		}
	})
}

// TestReadersBesideResync checks that readers find only transformed objects while
// handlers are resynced, and that no object is transformed twice.
func TestReadersBesideResync(t *testing.T) {
	from := func(w *world) cache.ListerWatcher { return unstreamed{w.server} }
	onEachFrom(t, time.Second, from, func(s *subjectOf) {
		s.transform(func(cm *corev1.ConfigMap) (any, error) {
			if cm.Labels["seen"] != "" {
				s.Errorf("%s is transformed again", describe(cm))
			}
			cm.Labels = map[string]string{"seen": "yes"}
			return cm, nil
		})
		resyncs := 0
		s.handle(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { resyncs++ }})
		for i := range 5 {
			s.put(fmt.Sprintf("o-%d", i), "1")
		}
		s.start().sync()
		var readers sync.WaitGroup
		for i := range 5 {
			key := fmt.Sprintf("default/o-%d", i)
			readers.Go(func() {
				for range 100 {
					obj, there, err := s.inf.GetStore().GetByKey(key)
					if err != nil || !there || obj.(*corev1.ConfigMap).Labels["seen"] != "yes" {
						s.Errorf("%s: %v, %v", key, there, err)
					}
					<-time.After(100 * time.Millisecond)
				}
			})
		}
		readers.Wait()
		synctest.Wait()
		if resyncs < 45 {
			s.Errorf("%d resyncs of 5 objects in 10 s", resyncs)
		}
	})
}

// TestOneHandlerTwice checks that a handler may be registered twice, and that each
// registration is removed only by its own handle and only by this informer.
func TestOneHandlerTwice(t *testing.T) {
	onEach(t, time.Second, nil, func(s *subjectOf) {
		l := &log{}
		first, second := s.handleEvery(l, 0), s.handleEvery(l, 0)
		construct := pick(s, clientGo, onMem)
		other, closeOther := construct(s.T, s.server, time.Second, nil)
		defer closeOther()
		remove := func(inf cache.SharedIndexInformer, handle cache.ResourceEventHandlerRegistration) {
			s.Helper()
			if err := inf.RemoveEventHandler(handle); err != nil {
				s.Error(err)
			}
		}
		remove(other, first)
		s.put("a", "1")
		s.start().sync()
		s.want(l, "initial a@2=1", "initial a@2=1")
		remove(other, second)
		remove(s.inf, first)
		remove(s.inf, first)
		s.put("b", "1")
		s.want(l, "add b@3=1")
		remove(s.inf, second)
		s.put("c", "1")
		s.want(l)
	})
}

// stoppedAlready is the end of the error with which a stopped informer refuses a handler;
// programs search for it.
const stoppedAlready = "was not added to shared informer because it has stopped already"

// TestHandlersComeAndGo has many goroutines add and remove handlers while objects change,
// until the informer has stopped.
func TestHandlersComeAndGo(t *testing.T) {
	onEach(t, time.Second, nil, func(s *subjectOf) {
		s.start()
		var workers sync.WaitGroup
		for i := range 20 {
			workers.Go(func() {
				var handles []cache.ResourceEventHandlerRegistration
				for n := i; ; n++ {
					if n%3 == 0 && len(handles) > 0 {
						if err := s.inf.RemoveEventHandler(handles[0]); err != nil {
							s.Error(err)
						}
						handles = handles[1:]
						continue
					}
					handle, err := s.inf.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{}, time.Second)
					if err != nil {
						if !strings.HasSuffix(err.Error(), stoppedAlready) {
							s.Error(err)
						}
						return
					}
					handles = append(handles, handle)
					<-time.After(10 * time.Millisecond)
				}
			})
		}
		for i := range 300 {
			name := fmt.Sprintf("o-%d", i%37)
			if i%5 == 4 {
				_, _ = s.server.Delete("default/" + name) // it may not exist
			} else {
				s.put(name, fmt.Sprint(i))
			}
			<-time.After(time.Millisecond)
		}
		s.end()
		workers.Wait()
	})
}

// TestAfterTheEnd checks an informer that has stopped: a new handler is refused with the
// words that programs search for, a present one can be removed, and what had synced stays
// synced.
func TestAfterTheEnd(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		handle := s.handle(&log{})
		s.start().sync()
		s.end()
		if _, err := s.inf.AddEventHandler(&log{}); err == nil || !strings.HasSuffix(err.Error(), stoppedAlready) {
			s.Errorf("a handler after the end: %v", err)
		}
		for range 2 {
			if err := s.inf.RemoveEventHandler(handle); err != nil {
				s.Error(err)
			}
		}
		if !s.inf.HasSynced() || !handle.HasSynced() || !s.inf.GetController().HasSynced() {
			s.Error("what had synced has not any more")
		}
	})
}

// TestLateHandlerSyncs checks when a handler syncs that is added after its informer has
// synced.
func TestLateHandlerSyncs(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		early, gate := s.handle(&log{}), make(chan struct{})
		if early.HasSynced() {
			s.Error("the handler has synced before Run")
		}
		s.put("a", "1")
		s.start().sync()
		<-early.HasSyncedChecker().Done()
		if !early.HasSynced() {
			s.Error("the checker is done, the handler has not synced")
		}
		l := &log{hook: func(string) { <-gate }}
		late := s.handle(l)
		s.put("b", "1")
		synctest.Wait()
		if late.HasSynced() {
			s.Error("the late handler has synced in its first call")
		}
		close(gate)
		<-late.HasSyncedChecker().Done()
		synctest.Wait()
		if told := l.take(); !late.HasSynced() || len(told) != 2 {
			s.Errorf("synced %v, told %q", late.HasSynced(), told)
		}
	})
}

// TestWaitFor has client-go wait for the checkers of an informer and its handlers.
func TestWaitFor(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		handle := s.handle(&log{})
		s.server.Hold()
		s.start()
		checkers := []cache.DoneChecker{s.inf.HasSyncedChecker(), handle.HasSyncedChecker(), s.inf.GetController().HasSyncedChecker()}
		for i, c := range checkers {
			if c.Name() == "" {
				s.Errorf("checker %d has no name", i)
			}
		}
		short, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		if cache.WaitFor(short, "", checkers...) {
			s.Error("synced before the server has answered")
		}
		s.server.Release()
		if !cache.WaitFor(s.Context(), "", checkers...) {
			s.Error("not synced")
		}
	})
}

// TestGoroutinesEnd checks that all goroutines end: a bubble fails if one is left.
func TestGoroutinesEnd(t *testing.T) {
	for name, use := range map[string]func(s *subjectOf){
		"a handler from the start": func(s *subjectOf) {
			handle := s.handle(&log{})
			s.start().sync().end()
			if err := s.inf.RemoveEventHandler(handle); err != nil {
				s.Error(err)
			}
		},
		"a handler that comes and goes": func(s *subjectOf) {
			s.start().sync()
			if err := s.inf.RemoveEventHandler(s.handle(&log{})); err != nil {
				s.Error(err)
			}
			s.end()
		},
		"never run": func(s *subjectOf) { s.handle(&log{}) },
		"run with a channel": func(s *subjectOf) {
			s.handle(&log{})
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				s.inf.Run(stop)
			}()
			s.sync()
			close(stop)
			<-ended
			if !s.inf.IsStopped() {
				s.Error("not stopped")
			}
		},
		"run after its context's end": func(s *subjectOf) {
			s.handle(&log{})
			ctx, cancel := context.WithCancel(klog.NewContext(s.Context(), klog.Logger{}))
			cancel()
			s.inf.RunWithContext(ctx)
			if !s.inf.IsStopped() || s.inf.HasSynced() {
				s.Errorf("stopped %v, synced %v", s.inf.IsStopped(), s.inf.HasSynced())
			}
			if n := len(s.server.Requests()); s.ours && n > 0 {
				s.Errorf("%d requests", n)
			}
		},
		"a handler that ends its goroutine": func(s *subjectOf) {
			s.handle(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { runtime.Goexit() }})
			l := &log{}
			s.handle(l)
			s.start().sync()
			s.put("a", "1")
			s.want(l, "add a@2=1")
			s.put("b", "1")
			s.want(l, "add b@3=1")
			if ours, ok := s.inf.(*informer.Informer); ok {
				if n := len(ours.Status().Handlers); n != 1 {
					s.Errorf("%d handlers, want the other one", n)
				}
			}
			s.end()
		},
		"run twice at a time": func(s *subjectOf) {
			l := &log{}
			s.handle(l)
			s.start().sync()
			s.inf.RunWithContext(klog.NewContext(s.Context(), klog.Logger{})) // returns
			if s.inf.IsStopped() {
				s.Error("the second Run has ended the first")
			}
			s.put("a", "1")
			s.want(l, "add a@2=1")
			s.end()
		},
	} {
		t.Run(name, func(t *testing.T) { onEach(t, time.Second, nil, use) })
	}
}

// written is a buffer that may be read while others write to it.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) count(part string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.text.String(), part)
}

// TestPanicsAreLogged checks that, with ReallyCrash off, each panic of a handler is
// logged once, by the logger of its registration, and that the handler pauses for a
// second.
func TestPanicsAreLogged(t *testing.T) {
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = true }()
	onEach(t, 0, nil, func(s *subjectOf) {
		for i := range 5 {
			s.put(fmt.Sprintf("o-%d", i), "1")
		}
		out := &written{}
		for _, name := range []string{"first", "second"} {
			logger := klog.LoggerWithName(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(out))), name)
			_, err := s.inf.AddEventHandlerWithOptions(&log{hook: func(string) { panic("on purpose") }}, cache.HandlerOptions{Logger: &logger})
			if err != nil {
				s.Fatal(err)
			}
		}
		s.start()
		waitFor(3500 * time.Millisecond)
		const line = `"Observed a panic" `
		if n := out.count(line); n != 8 {
			s.Errorf("%d panics of two handlers after 3.5 s, want 8", n)
		}
		waitFor(time.Second)
		for _, name := range []string{"first", "second"} {
			if n := out.count(`logger="` + name + `"`); n != 5 {
				s.Errorf("%d panics of %s, want 5", n, name)
			}
		}
		waitFor(time.Minute)
		if n := out.count(line); n != 10 {
			s.Errorf("%d panics in all, want 10", n)
		}
	})
}

// TestShutDown checks cache.ShutDownEventHandler, which returns after the last call of
// the handler, and RemoveEventHandler, which does not wait.
func TestShutDown(t *testing.T) {
	for name, use := range map[string]func(s *subjectOf){
		"before Run": func(s *subjectOf) {
			s.shutDown(s.handle(&log{}))
		},
		"added before Run": func(s *subjectOf) {
			handle := s.handle(&log{})
			s.start().sync()
			s.shutDown(handle)
		},
		"added later": func(s *subjectOf) {
			s.start().sync()
			s.shutDown(s.handle(&log{}))
		},
		"in a call": func(s *subjectOf) {
			s.start().sync()
			entered, gate := make(chan struct{}), make(chan struct{})
			left := false
			handle := s.handle(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
				close(entered)
				<-gate
				left = true
			}})
			s.put("a", "1")
			<-entered
			shut := make(chan struct{})
			go func() {
				defer close(shut)
				s.shutDown(handle)
				if !left {
					s.Error("shut down while the handler is called")
				}
			}()
			waitFor(time.Minute)
			select {
			case <-shut:
			default:
				close(gate)
			}
			<-shut
		},
		"removed in a call": func(s *subjectOf) {
			s.start().sync()
			entered, gate, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
			handle := s.handle(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
				close(entered)
				<-gate
				close(left)
			}})
			s.put("a", "1")
			<-entered
			if err := s.inf.RemoveEventHandler(handle); err != nil { // returns
				s.Error(err)
			}
			close(gate)
			<-left
		},
	} {
		t.Run(name, func(t *testing.T) { onEach(t, 0, nil, use) })
	}
}

func (s *subjectOf) shutDown(handle cache.ResourceEventHandlerRegistration) {
	s.Helper()
	if err := cache.ShutDownEventHandler(s.inf, handle); err != nil {
		s.Error(err)
	}
}

// TestHandlerWritesToServer has a handler delete each object at the server when it
// receives the object as done.
func TestHandlerWritesToServer(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		gone := 0
		s.handle(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(old, obj any) {
				from, to := old.(*corev1.ConfigMap).Data["v"], obj.(*corev1.ConfigMap).Data["v"]
				if from != "begun" || to != "done" {
					s.Errorf("from %q to %q", from, to)
				}
				s.drop(obj.(*corev1.ConfigMap).Name)
			},
			DeleteFunc: func(any) { gone++ },
		})
		s.start().sync()
		var writers sync.WaitGroup
		for i := range 3 {
			writers.Go(func() {
				name := fmt.Sprintf("o-%d", i)
				s.put(name, "begun")
				s.put(name, "done")
			})
		}
		writers.Wait()
		synctest.Wait()
		if keys := s.inf.GetStore().ListKeys(); gone != 3 || len(keys) > 0 {
			s.Errorf("%d deletions, %q left", gone, keys)
		}
	})
}

// TestKeysOfWhatIsTold checks client-go's key functions on the objects that handlers
// receive, including tombstones.
func TestKeysOfWhatIsTold(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		var keys []string
		note := func(obj any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if err != nil {
				s.Error(err)
			}
			name, err := cache.DeletionHandlingObjectToName(obj)
			if err != nil || name.String() != key {
				s.Errorf("name %s of key %s: %v", name, key, err)
			}
			keys = append(keys, key)
		}
		s.handle(cache.ResourceEventHandlerFuncs{AddFunc: note, DeleteFunc: note})
		s.put("a", "1")
		s.put("b", "1")
		s.start().sync()
		s.drop("a")
		synctest.Wait()
		s.losesHistory(func() { s.drop("b") })
		slices.Sort(keys[:2])
		if diff := cmp.Diff([]string{"default/a", "default/b", "default/a", "default/b"}, keys); diff != "" {
			s.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// typedLog is a handler with typed objects.
type typedLog struct{ log }

func (l *typedLog) OnAdd(obj *corev1.ConfigMap, initial bool) { l.log.OnAdd(obj, initial) }
func (l *typedLog) OnUpdate(old, obj *corev1.ConfigMap)       { l.log.OnUpdate(old, obj) }

func (l *typedLog) OnDelete(obj cache.DeletedObject[*corev1.ConfigMap]) {
	l.log.OnDelete(obj.OptionalObj)
}

// TestTypedInformer wraps our informer in client-go's typed informer.
func TestTypedInformer(t *testing.T) {
	onEach(t, 0, cache.Indexers{}, func(s *subjectOf) {
		typed := cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](s.inf)
		l := &typedLog{}
		if _, err := typed.AddTypedEventHandler(l); err != nil {
			s.Error(err)
		}
		byValue := func(cm *corev1.ConfigMap) ([]string, error) { return []string{cm.Data["v"]}, nil }
		if err := typed.AddTypedIndexers(cache.TypedIndexers[*corev1.ConfigMap]{"v": byValue}); err != nil {
			s.Error(err)
		}
		s.put("a", "1")
		s.start().sync()
		s.put("a", "2")
		s.want(&l.log, "initial a@2=1", "update a@2=1 a@3=2")
		found, err := typed.GetTypedIndexer().ByTypedIndex("v", "2")
		if err != nil || len(found) != 1 || found[0].Name != "a" {
			s.Errorf("by index: %v, %v", found, err)
		}
		s.drop("a")
		s.want(&l.log, "delete a@4=2")
	})
}
