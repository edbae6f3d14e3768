package informer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/guarantees"
)

// TestChangesWhileInitialAdds checks that a handler that is slow with its initial adds
// receives one add per object, then the changes in order, and blocks no other goroutine.
func TestChangesWhileInitialAdds(t *testing.T) {
	inBubble(t, func(w *world) {
		const n = 1000
		name := func(i int) string { return fmt.Sprintf("o-%04d", i) }
		for i := range n {
			w.put(name(i), "1")
		}
		gate := make(chan struct{})
		slow, fast := &log{}, &log{}
		slow.hook = func(string) { <-gate }
		r := w.run(informer.Options{}, handle(w, slow), handle(w, fast)).sync()
		if got := len(fast.take()); got != n {
			t.Fatalf("the other handler was told of %d objects, want %d", got, n)
		}
		// The slow handler has taken a chunk. These keys are before and after its cursor.
		for _, i := range []int{0, 10, 500, 999} {
			w.put(name(i), "2")
			w.put(name(i), "3")
		}
		w.drop(name(20))
		w.drop(name(700))
		w.put(name(700), "again")
		w.put("zzz", "new")
		synctest.Wait()
		close(gate)
		synctest.Wait()
		perObject := map[string][]string{}
		for _, line := range slow.take() {
			kind, rest, _ := strings.Cut(line, " ")
			what, _, _ := strings.Cut(strings.TrimPrefix(rest, "tombstone "), "@")
			_, value, _ := strings.Cut(line[strings.LastIndex(line, "@"):], "=")
			perObject[what] = append(perObject[what], kind+" "+value)
		}
		for i := range n {
			want := []string{"initial 1"}
			switch i {
			case 0, 10, 500, 999:
				want = append(want, "update 2", "update 3")
			case 20:
				want = append(want, "delete 1")
			case 700:
				want = append(want, "delete 1", "add again")
			}
			if diff := cmp.Diff(want, perObject[name(i)]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name(i), diff)
			}
		}
		if diff := cmp.Diff([]string{"add new"}, perObject["zzz"]); diff != "" {
			t.Errorf("zzz (-want +got):\n%s", diff)
		}
		r.end()
	})
}

// TestLateHandler checks that a handler that is added late receives every object as an
// initial add and has synced after these calls have returned.
func TestLateHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		r := w.run(informer.Options{}).sync()
		gate := make(chan struct{})
		l := &log{hook: func(string) { <-gate }}
		handle, err := r.inf.AddEventHandler(l)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if handle.HasSynced() {
			t.Error("the handler has synced before it returned")
		}
		close(gate)
		w.want(l, "initial a@2=1", "initial b@3=1")
		if !handle.HasSynced() || !strings.Contains(handle.HasSyncedChecker().Name(), "configmaps") {
			t.Errorf("HasSynced() = %v of %q", handle.HasSynced(), handle.HasSyncedChecker().Name())
		}
		w.put("c", "1")
		w.want(l, "add c@4=1")
		r.end()
		if _, err := r.inf.AddEventHandler(l); err == nil {
			t.Error("a handler was added to an informer that has stopped")
		}
	})
}

func TestRemoveEventHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		l, other := &log{}, &log{}
		r := w.run(informer.Options{}, handle(w, other))
		var self cache.ResourceEventHandlerRegistration
		l.hook = func(string) {
			// The handler removes itself.
			if err := r.inf.RemoveEventHandler(self); err != nil {
				t.Error(err)
			}
		}
		r.sync()
		other.take()
		registered := make(chan struct{})
		go func() {
			defer close(registered)
			l.mu.Lock()
			defer l.mu.Unlock()
			var err error
			if self, err = r.inf.AddEventHandler(l); err != nil {
				t.Error(err)
			}
		}()
		<-registered
		w.want(l, "initial a@2=1")
		w.put("a", "2")
		w.want(l)
		w.want(other, "update a@2=1 a@3=2")
		<-self.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan()
		if err := r.inf.RemoveEventHandler(nil); err == nil {
			t.Error("a nil handle was removed")
		}
		r.end()
	})
}

// TestPanickingHandler checks that with ReallyCrash off a panic skips one notification.
func TestPanickingHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		saved := utilruntime.PanicHandlers
		utilruntime.ReallyCrash, utilruntime.PanicHandlers = false, nil
		utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(ctx context.Context, _ any) {
			klog.FromContext(ctx).Info("panicked")
		})
		defer func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = true, saved }()
		w.put("a", "1")
		w.put("b", "1")
		l := &log{hook: func(line string) {
			if strings.Contains(line, "a@2") {
				panic("on purpose")
			}
		}}
		logged := 0
		logger := funcr.New(func(string, string) { logged++ }, funcr.Options{})
		r := w.run(informer.Options{}, func(inf *informer.Informer) {
			if _, err := inf.AddEventHandlerWithOptions(l, cache.HandlerOptions{Logger: &logger}); err != nil {
				t.Fatal(err)
			}
		}).sync()
		waitFor(900 * time.Millisecond)
		w.want(l) // client-go's pause
		if logged != 1 {
			t.Errorf("the handler's logger was told %d times, want once", logged)
		}
		waitFor(200 * time.Millisecond)
		w.want(l, "initial b@3=1")
		w.put("b", "2")
		w.want(l, "update b@3=1 b@4=2")
		l.hook = func(string) { panic("on purpose") }
		w.put("b", "3")
		synctest.Wait()
		begin := time.Now()
		r.end()
		if took := time.Since(begin); took > 0 {
			t.Errorf("Run returned after %v, in the pause of a handler", took)
		}
	})
}

// TestLateHandlerBesideStream checks that a handler that is slower than the watch still
// receives its initial adds.
func TestLateHandlerBesideStream(t *testing.T) {
	inBubble(t, func(w *world) {
		const objects, call = 1000, 10 * time.Millisecond
		for i := range objects {
			w.put(fmt.Sprintf("o-%04d", i), "0")
		}
		r := w.run(informer.Options{}).sync()
		told := guarantees.New(nil)
		slow := slowHandler{told, call}
		h, err := r.inf.AddEventHandler(slow)
		if err != nil {
			t.Fatal(err)
		}
		told.Registered(h)
		begin := time.Now()
		for n := 0; !h.HasSynced() && time.Since(begin) < 10*time.Minute; n++ {
			<-time.After(time.Second / 150)
			w.put(fmt.Sprintf("o-%04d", n*7%objects), fmt.Sprint(n))
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the handler has synced after %v; its initial adds alone take %v", took, objects*call)
		}
		waitFor(10 * time.Minute)
		r.atRest(told)
		r.end()
	})
}

// slowHandler is a handler whose calls take time.
type slowHandler struct {
	cache.ResourceEventHandler
	call time.Duration
}

func (h slowHandler) OnAdd(obj any, initial bool) {
	<-time.After(h.call)
	h.ResourceEventHandler.OnAdd(obj, initial)
}

func (h slowHandler) OnUpdate(old, obj any) {
	<-time.After(h.call)
	h.ResourceEventHandler.OnUpdate(old, obj)
}

func (h slowHandler) OnDelete(obj any) {
	<-time.After(h.call)
	h.ResourceEventHandler.OnDelete(obj)
}

func TestResync(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		every, never := &log{}, &log{}
		samePointer := 0
		often := cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, obj any) {
			if old == obj {
				samePointer++
			}
		}}
		r := w.run(informer.Options{ResyncPeriod: 10 * time.Second}, handle(w, every), func(inf *informer.Informer) {
			if _, err := inf.AddEventHandlerWithResyncPeriod(never, 0); err != nil {
				t.Error(err)
			}
			if _, err := inf.AddEventHandlerWithResyncPeriod(often, 5*time.Second); err != nil {
				t.Error(err)
			}
		}).sync()
		every.take()
		never.take()
		waitFor(10*time.Second + time.Millisecond)
		w.want(every, "update a@2=1 a@2=1", "update b@3=1 b@3=1")
		w.want(never)
		if samePointer != 4 {
			t.Errorf("a handler with a period of 5 s was resynced with one pointer %d times in 10 s, want 4", samePointer)
		}
		w.put("a", "2")
		w.want(every, "update a@2=1 a@4=2")
		waitFor(10 * time.Second)
		w.want(every, "update a@4=2 a@4=2", "update b@3=1 b@3=1")
		r.end()
	})
}

// TestStoreBeforeHandler checks that a handler finds each change that it receives in the
// store.
func TestStoreBeforeHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		var inf *informer.Informer
		check := cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				if _, ok, err := inf.GetIndexer().Get(obj); !ok || err != nil {
					t.Errorf("%s is not in the store when its add is told: %v", describe(obj), err)
				}
			},
			UpdateFunc: func(_, obj any) {
				got, ok, err := inf.GetIndexer().Get(obj)
				if !ok || err != nil || describe(got) < describe(obj) {
					t.Errorf("the store has %s when %s is told: %v", describe(got), describe(obj), err)
				}
			},
		}
		w.put("a", "1")
		r := w.run(informer.Options{}, func(i *informer.Informer) { inf = i }, handle(w, check)).sync()
		w.put("a", "2")
		w.put("b", "1")
		synctest.Wait()
		r.end()
	})
}

// TestMutatingHandler checks that a handler that changes its object, against the rules,
// does not change the stored object.
func TestMutatingHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		spoil := func(obj any) { obj.(*corev1.ConfigMap).Data["v"] = "spoiled" }
		r := w.run(informer.Options{}, handle(w, cache.ResourceEventHandlerFuncs{
			AddFunc: spoil, UpdateFunc: func(_, obj any) { spoil(obj) },
		})).sync()
		w.put("a", "2")
		synctest.Wait()
		r.end()
		if objects, _ := w.stored(w.path); !slices.Equal(objects, []string{"a@3=2"}) {
			t.Errorf("stored: %v", objects)
		}
	})
}
