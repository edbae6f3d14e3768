package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/btree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store"
)

type object = metav1.PartialObjectMetadata

// shelf is a delivery.Store: a map. It returns every second object encoded.
type shelf struct {
	mu      sync.Mutex
	objects btree.Map[string, *object]
	broken  error // what reads return
}

func (s *shelf) entry(key string, obj *object) store.Entry {
	if obj.UID[len(obj.UID)-1]%2 == 0 {
		return store.Entry{Key: key, Object: obj}
	}
	e, err := s.Encode(obj)
	if err != nil {
		panic(err)
	}
	return e
}

func (s *shelf) Select(q store.Query) (entries []store.Entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.Ascend(q.After, func(key string, obj *object) bool {
		if key > q.After {
			entries = append(entries, s.entry(key, obj))
		}
		return len(entries) < q.Limit
	})
	return entries, s.broken
}

func (s *shelf) Entry(key string) (e store.Entry, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := s.objects.Get(key)
	if ok {
		e = s.entry(key, obj)
	}
	return e, ok, s.broken
}

func (s *shelf) Keys(store.Query) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects.Keys(), s.broken
}

func (*shelf) Encode(obj runtime.Object) (store.Entry, error) {
	b, err := json.Marshal(obj)
	return store.Entry{Key: obj.(*object).Name, Raw: b}, err
}

func (*shelf) Decode(e store.Entry) (runtime.Object, error) {
	obj := &object{}
	return obj, json.Unmarshal(e.Raw, obj)
}

// What handlers that go on from a log need is tested by package durable.
func (*shelf) Flush(context.Context) error { return errors.ErrUnsupported }

func (*shelf) Follow(context.Context, store.Place) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) { yield(store.Event{}, errors.ErrUnsupported) }
}

func (*shelf) History() (store.LogState, error) { return store.LogState{}, errors.ErrUnsupported }

var errBroken = errors.New("broken")

// set stores an object, or deletes it if obj is nil.
func (s *shelf) set(key string, obj *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj == nil {
		s.objects.Delete(key)
	} else {
		s.objects.Set(key, obj)
	}
}

// fail sets what reads return.
func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// world is a Hub over a shelf, and what plays the informer.
type world struct {
	*testing.T
	shelf    shelf
	hub      *delivery.Hub
	dir      string // of the files of backlogs
	rv       int
	handlers []*handler
	whole    bool // the store has held a whole list, so that changes come
	wrong    []string
}

// handler is a Recorder behind a gate.
type handler struct {
	*guarantees.Recorder
	registration *delivery.Registration
	gate         chan struct{}
	isOpen       bool
}

func (h *handler) OnAdd(obj any, isInInitialList bool) {
	<-h.gate
	h.Recorder.OnAdd(obj, isInInitialList)
}

func (h *handler) OnUpdate(old, obj any) {
	<-h.gate
	if old != obj || h.Repeats { // else a resync
		h.Recorder.OnUpdate(old, obj)
	}
}

func (h *handler) OnDelete(obj any) {
	<-h.gate
	h.Recorder.OnDelete(obj)
}

func newWorld(t *testing.T, stored int) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir()}
	w.hub = delivery.New(delivery.Env{
		Failed: func(error) {},
		Blank:  func(key string) runtime.Object { return &object{ObjectMeta: metav1.ObjectMeta{Name: key}} },
		Handed: func(runtime.Object) {},
		Dir:    func() string { return w.dir },
		Name:   func() string { return "test" },
	}, time.Minute)
	for i := range stored {
		key := keyOf(i)
		w.shelf.objects.Set(key, w.object(key))
	}
	return w
}

func keyOf(i int) string { return fmt.Sprintf("o-%04d", i) }

// object returns the next state of an object.
func (w *world) object(key string) *object {
	w.rv++
	obj := &object{ObjectMeta: metav1.ObjectMeta{Name: key, UID: types.UID("uid-" + key), ResourceVersion: fmt.Sprint(w.rv)}}
	if old, ok := w.shelf.objects.Get(key); ok {
		obj.UID = old.UID
	} else {
		obj.UID += types.UID(fmt.Sprint("-", w.rv))
	}
	return obj
}

// start opens the Hub. whole says that a list is stored.
func (w *world) start(ctx context.Context, whole bool) {
	w.whole = whole
	w.hub.Begin()
	_, _ = w.hub.Open(&w.shelf, whole) // the next list retries
	go w.hub.RunResyncs(ctx, nil, nil)
}

func (w *world) end() {
	for _, h := range w.handlers {
		h.open()
	}
	w.hub.End()
	w.hub.Wait()
	for _, h := range w.handlers {
		h.End()
	}
}

func (h *handler) open() {
	if !h.isOpen {
		close(h.gate)
		h.isOpen = true
	}
}

// add adds a handler, which has to receive the held objects. If it is slow, it blocks
// until open is called.
func (w *world) add(slow bool, held map[string]guarantees.State) {
	h := &handler{Recorder: guarantees.New(held), gate: make(chan struct{})}
	if !slow {
		h.open()
	}
	h.registration = w.hub.Add(h, delivery.Options{Resync: time.Minute})
	h.Registered(h.registration)
	w.handlers = append(w.handlers, h)
}

func (w *world) remove(i int) {
	h := w.handlers[i]
	w.hub.Remove(h.registration)
	h.open()
	<-h.registration.ShutdownChan()
	h.End()
	w.handlers = slices.Delete(w.handlers, i, i+1)
	w.check(h)
}

// set applies one change, as an informer does. Changes come after a list.
func (w *world) set(key string, deleted bool) {
	if !w.whole {
		return
	}
	if _, err := w.hub.ReadKeys(); err != nil {
		return // the next list brings the change
	}
	w.hub.Room(w.Context())
	defer w.hub.Spill(w.Context())
	apply, c, was := w.change(key, deleted)
	slim := w.hub.NewSlim()
	slim.Add(was.Object, c.Is.Object, c.Last)
	_ = w.hub.Do(func(turn delivery.Turn) error {
		if turn.Untold() {
			if err := turn.TellLoaded(); err != nil {
				return err // the next list brings the change
			}
		}
		apply()
		turn.Tell(c, was, slim)
		return nil
	})
}

// change returns a change, the state before it, and what applies it to the store.
func (w *world) change(key string, deleted bool) (apply func(), c delivery.Change, was store.Entry) {
	before, existed := w.shelf.objects.Get(key)
	c.Key = key
	if existed {
		was = w.shelf.entry(key, before)
	}
	if !deleted {
		obj := w.object(key)
		c.Is = store.Entry{Key: key, Object: obj}
		return func() { w.shelf.set(key, obj) }, c, was
	}
	if existed {
		w.rv++
		last := before.DeepCopy()
		last.ResourceVersion = fmt.Sprint(w.rv)
		c.Last = last
	}
	return func() { w.shelf.set(key, nil) }, c, was
}

// list ends a list, which has objects only with a number below n. loaded says that the
// store had lost what it held, so that there is nothing to compare the list with.
func (w *world) list(loaded bool, n int) {
	if loaded {
		for _, h := range w.handlers {
			h.Damaged()
		}
	}
	_, _ = w.hub.ReadKeys() // else cursors deliver what the list leaves
	err := w.hub.Do(func(turn delivery.Turn) error {
		if turn.Untold() && !loaded {
			if err := turn.TellLoaded(); err != nil {
				return err
			}
		}
		for _, key := range w.shelf.objects.Keys() {
			if key < keyOf(n) {
				continue
			}
			apply, c, was := w.change(key, true)
			c.Last = nil
			if apply(); !loaded {
				turn.Tell(c, was, delivery.Slim{})
			}
		}
		if loaded {
			if err := turn.TellLoaded(); err != nil {
				return err
			}
		}
		return turn.MarkListed()
	})
	w.whole = w.whole || err == nil
}

// rest checks that every handler that does not block knows what the store holds.
func (w *world) rest() {
	w.shelf.fail(nil)
	w.list(true, 1<<30) // tells what a failure has kept back
	w.hub.MarkSynced()
	synctest.Wait()
	is := w.states()
	for _, h := range w.handlers {
		if h.isOpen {
			h.AtRest(is)
			if !h.registration.HasSynced() {
				w.wrong = append(w.wrong, "a handler has received everything and is not synced")
			}
		}
		w.check(h)
	}
}

func (w *world) states() map[string]guarantees.State {
	is, err := guarantees.States(w.shelf.objects.Values())
	if err != nil {
		w.wrong = append(w.wrong, err.Error())
	}
	return is
}

func (w *world) check(h *handler) {
	for _, v := range h.Violations() {
		w.wrong = append(w.wrong, fmt.Sprint(v))
	}
}

// step is one event of a schedule.
type step struct {
	do   string
	i, n int
}

func drawSteps(rt *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			do: rapid.SampledFrom([]string{
				"set", "set", "set", "delete", "delete", "add", "add slow", "remove", "open", "settle", "break", "mend", "list", "load", "resync", "rest",
			}).Draw(rt, "do"),
			i: rapid.IntRange(0, 1199).Draw(rt, "i"),
			n: rapid.SampledFrom([]int{1, 1, 3, 50, 700}).Draw(rt, "n"),
		}
	}), 1, 40).Draw(rt, "steps")
}

func (w *world) play(s step) {
	switch s.do {
	case "set", "delete":
		for i := range s.n {
			w.set(keyOf((s.i+i)%1200), s.do == "delete")
		}
	case "add", "add slow":
		w.add(s.do == "add slow", nil)
	case "remove", "open":
		if len(w.handlers) == 0 {
			return
		}
		if i := s.i % len(w.handlers); s.do == "remove" {
			w.remove(i)
		} else {
			w.handlers[i].open()
		}
	case "settle":
		synctest.Wait()
	case "break":
		w.shelf.fail(errBroken)
	case "mend":
		w.shelf.fail(nil)
		w.list(false, 1<<30)
	case "list", "load":
		w.list(s.do == "load", s.i)
	case "resync":
		<-time.After(time.Minute)
	case "rest":
		w.rest()
	}
}

// TestSchedules plays random schedules of changes, lists, failing reads and of handlers
// that come, go and block, over backlogs in memory and in files: each handler receives
// each object once, then its changes in order, and in the end knows what is stored
// (promise 4).
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		stored := rapid.SampledFrom([]int{0, 1, 255, 256, 1000}).Draw(rt, "stored")
		before := rapid.IntRange(0, 3).Draw(rt, "steps before the start")
		small := rapid.Bool().Draw(rt, "small limits")
		isBroken := rapid.Bool().Draw(rt, "broken at the start")
		wrong := []string{"the schedule did not end"}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, stored)
			if small {
				w.hub.Limits = delivery.Limits{First: 4 << 10, Chunk: 4 << 10, Files: 1 << 30}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			held := w.states()
			if isBroken || slices.ContainsFunc(steps, func(s step) bool { return s.do == "load" }) {
				held = nil // what is lost before it is read is not known
			}
			for range before {
				w.add(false, held)
			}
			if isBroken {
				w.shelf.fail(errBroken)
			}
			w.start(ctx, stored > 0)
			for _, s := range steps {
				w.play(s)
			}
			for _, h := range w.handlers {
				h.open()
			}
			w.rest()
			w.end()
			wrong = w.wrong
		})
		if len(wrong) > 0 {
			rt.Fatalf("stored %d, %d handlers before the start, broken %t, small limits %t, steps %v:\n%s",
				stored, before, isBroken, small, steps, strings.Join(wrong, "\n"))
		}
	})
}

// TestCursorWaitsForLoadedList checks that a cursor does not walk what a list has loaded
// before handlers have received what is gone.
func TestCursorWaitsForLoadedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.start(t.Context(), true)
		w.hub.MarkSynced()
		w.shelf.fail(errBroken)
		w.add(false, nil)
		synctest.Wait()
		w.list(true, 1) // two objects are gone, which cannot be told
		w.shelf.fail(nil)
		w.hub.Urge()() // wakes the handler
		synctest.Wait()
		w.rest()
		w.end()
		if len(w.wrong) > 0 {
			t.Error(strings.Join(w.wrong, "\n"))
		}
	})
}

// TestResyncOfBusyHandler checks that a handler whose queue is never empty is resynced.
func TestResyncOfBusyHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stored = 2*delivery.CursorChunk + 3
		w := newWorld(t, stored)
		w.start(t.Context(), true)
		w.hub.MarkSynced()
		resynced := map[any]int{}
		busy, rest := context.WithTimeout(t.Context(), 4*time.Minute)
		defer rest()
		w.hub.Add(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, obj any) {
			if old == obj {
				resynced[obj.(*object).Name]++
				return
			}
			<-time.After(time.Second)
			if busy.Err() == nil {
				w.set(keyOf(0), false)
			}
		}}, delivery.Options{Resync: time.Minute})
		synctest.Wait()
		w.set(keyOf(0), false)
		<-busy.Done()
		synctest.Wait() // the handler may be called at the same moment
		if len(resynced) != stored {
			t.Errorf("%d of %d objects were resynced", len(resynced), stored)
		}
		w.end()
	})
}

// TestResyncOfSlowHandler checks that a resync which takes longer than its period is not
// queued at once: the handler's queue is in memory.
func TestResyncOfSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stored = 4 * delivery.CursorChunk
		w := newWorld(t, stored)
		w.start(t.Context(), true)
		w.hub.MarkSynced()
		resynced, most := map[any]int{}, 0
		added := make(chan *delivery.Registration, 1)
		rest, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		added <- w.hub.Add(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
			if rest.Err() == nil {
				r := <-added
				resynced[obj.(*object).Name]++
				most = max(most, r.Waiting())
				added <- r
				<-time.After(time.Second)
			}
		}}, delivery.Options{Resync: time.Minute})
		<-rest.Done()
		synctest.Wait()
		if len(resynced) != stored || most > delivery.CursorChunk {
			t.Errorf("%d of %d objects were resynced, and %d waited in memory, want %d at most", len(resynced), stored, most, delivery.CursorChunk)
		}
		w.end()
	})
}

// TestNoGoroutineIsLeft checks that End and Wait end every handler, also those that wait
// for a list, and those of a Hub that was never opened.
func TestNoGoroutineIsLeft(t *testing.T) {
	for _, opened := range []bool{false, true} {
		t.Run(fmt.Sprintf("opened %t", opened), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				ctx, cancel := context.WithCancel(t.Context())
				w.add(false, nil)
				if opened {
					w.start(ctx, false)
				}
				synctest.Wait()
				w.hub.End()
				w.hub.Wait()
				cancel()
				if h := w.handlers[0].registration; !cache.IsDone(doneOf(h.ShutdownChan())) {
					t.Error("a handler has not ended")
				}
				if w.hub.Add(cache.ResourceEventHandlerFuncs{}, delivery.Options{}) != nil {
					t.Error("a handler was added after the end")
				}
			})
		})
	}
}

// doneOf is a cache.DoneChecker.
type doneOf <-chan struct{}

func (d doneOf) Name() string          { return "" }
func (d doneOf) Done() <-chan struct{} { return d }

// TestDeletedNotStored checks that a handler receives the deletion of an object that is
// not stored any more, if it has received the object.
func TestDeletedNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2*delivery.CursorChunk)
		gate := make(chan struct{})
		slow := &noted{}
		w.hub.Add(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				<-gate
				slow.OnAdd(obj, false)
			},
			DeleteFunc: slow.OnDelete,
		}, delivery.Options{})
		w.start(t.Context(), true)
		w.hub.MarkSynced()
		synctest.Wait() // the cursor has passed the first half of the objects
		first, second, last := keyOf(0), keyOf(1), keyOf(2*delivery.CursorChunk-1)
		for _, key := range []string{first, second, last} {
			obj, _ := w.shelf.objects.Get(key)
			w.shelf.set(key, nil)
			c := delivery.Change{Key: key}
			if key != second { // else the last state is that of another object
				c.Last = obj
			}
			for range 2 { // the second time no handler knows it
				_ = w.hub.Do(func(turn delivery.Turn) error {
					turn.Tell(c, store.Entry{}, delivery.Slim{})
					return nil
				})
			}
		}
		close(gate)
		var want []string
		for i := range 2*delivery.CursorChunk - 1 {
			want = append(want, "add "+keyOf(i))
		}
		want = slices.Insert(want, delivery.CursorChunk, "delete "+first, "delete "+second)
		slow.want(t, "of objects that are not stored", want...)
		w.end()
	})
}
