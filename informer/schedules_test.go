package informer_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var (
	schedules    = flag.Int("schedules", 200/fewer, "how many schedules TestSchedules draws")
	scheduleSeed = flag.Uint64("schedules.seed", 0, "the seed of the first of them; 0 is one of the time")
)

// TestSchedules plays random schedules: handlers that are added late, are slow or are
// removed, processes that end or die, objects that are rejected, lists, probes and
// watches that fail or lag. No handler may see a broken guarantee, and at rest every
// handler must have the server's state. A failed schedule prints its seed:
//
//	go test ./informer -run TestSchedules -schedules 1 -schedules.seed SEED
func TestSchedules(t *testing.T) {
	first := *scheduleSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	var failed atomic.Int32
	for seed := first; seed < first+uint64(*schedules); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if failed.Load() >= 5 {
				t.Skip("five have failed")
			}
			t.Cleanup(func() {
				if t.Failed() {
					failed.Add(1)
					t.Logf("again with -schedules 1 -schedules.seed %d", seed)
				}
			})
			inBubble(t, func(w *world) { newSchedule(w, seed).play() })
		})
	}
}

// schedule is a schedule in progress.
type schedule struct {
	*world
	rand      *rand.Rand
	opts      informer.Options
	commits   time.Duration
	rejects   bool // a transform fails for some objects
	spills    bool // entries for slow handlers are spilled early
	run       *run // nil between processes
	handlers  []*scheduled
	atStart   map[string]guarantees.State // the objects stored when the process began
	nextName  int
	decisions []string
}

// scheduled is one handler, with its registrations in all processes.
type scheduled struct {
	name string
	told *guarantees.Recorder
	per  time.Duration // the duration of each call

	mu   sync.Mutex
	gate chan struct{} // if not nil, calls wait until it is closed
	dead bool          // the process has died; later calls do not count

	// Nil: not registered in this process.
	registration cache.ResourceEventHandlerRegistration
}

func newSchedule(w *world, seed uint64) *schedule {
	s := &schedule{world: w, rand: rand.New(rand.NewPCG(seed, 0))}
	w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{
		NoBookmarks: s.oneIn(6), NoWatchList: s.oneIn(3), MaxPage: s.rand.IntN(4),
	})
	s.rejects, s.spills = s.oneIn(4), s.oneIn(4)
	switch s.rand.IntN(4) {
	case 0, 1:
		s.overWire(runtime.ContentTypeProtobuf, nil)
	case 2:
		s.overWire(runtime.ContentTypeJSON, nil)
	}
	s.opts.DecodedBytes = []int64{0, 1, -1}[s.rand.IntN(3)]
	s.commits = []time.Duration{0, time.Millisecond, 30 * time.Second}[s.rand.IntN(3)]
	if s.oneIn(6) {
		s.opts.SyncWhen = informer.Loaded
	}
	if s.oneIn(8) {
		s.opts.ResyncPeriod = 45 * time.Second
	}
	if s.rejects {
		s.opts.TransformVersion = "1"
	}
	return s
}

func (s *schedule) oneIn(n int) bool { return s.rand.IntN(n) == 0 }

func (s *schedule) seconds(most int) time.Duration {
	return time.Duration(s.rand.IntN(most*1000)) * time.Millisecond
}

func (s *schedule) note(format string, args ...any) {
	s.decisions = append(s.decisions, fmt.Sprintf("%s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...))
}

func (s *schedule) play() {
	for range s.rand.IntN(12) {
		s.change()
	}
	s.begin()
	for range 20 + s.rand.IntN(60) {
		s.step()
	}
	s.settle()
	s.check()
	s.end()
	if s.Failed() {
		s.Logf("schedule:\n%s", strings.Join(s.decisions, "\n"))
	}
}

func (s *schedule) step() {
	switch n := s.rand.IntN(40); {
	case n < 14:
		s.change()
	case n < 17:
		for range s.rand.IntN(30) {
			s.change()
		}
	case n < 19:
		s.addHandler(s.drawHandler())
	case n < 20:
		s.removeHandler()
	case n < 22:
		s.block()
	case n < 24:
		s.unblock()
	case n < 28:
		s.breakServer()
	case n < 30:
		s.kill()
	case n < 31:
		s.end()
		s.begin()
	case n < 32:
		s.wipe()
	case n < 33:
		s.note("compact")
		if err := s.server.Compact(s.server.RV()); err != nil {
			s.Error(err)
		}
	default:
		d := s.seconds([]int{1, 4, 40, 400}[s.rand.IntN(4)])
		s.note("wait %v", d)
		waitFor(d)
	}
	if s.oneIn(2) {
		synctest.Wait()
	}
}

// change creates, updates, deletes or re-creates one object.
func (s *schedule) change() {
	name := fmt.Sprintf("o%d", s.rand.IntN(12))
	value := fmt.Sprint(s.rand.IntN(1000))
	if s.rejects && s.oneIn(5) {
		value = "bad"
	}
	switch s.rand.IntN(8) {
	case 0, 1:
		_, err := s.server.Delete("default/" + name) // it may not exist
		s.note("delete %s: %v", name, err)
	case 2:
		_, _ = s.server.Delete("default/" + name)
		s.note("create again %s@%s=%s", name, s.put(name, value), value)
	case 3:
		s.note("advance to %s", s.server.Advance())
	default:
		s.note("put %s@%s=%s", name, s.put(name, value), value)
	}
}

var errSchedule = errors.New("on purpose")

func (s *schedule) breakServer() {
	kinds := []error{
		errSchedule, apierrors.NewInternalError(errSchedule), apierrors.NewTooManyRequests("later", 1),
		apierrors.NewServiceUnavailable("not now"), apierrors.NewResourceExpired("expired"), apierrors.NewTimeoutError("slow", 1),
	}
	var errs []error
	for range 1 + s.rand.IntN(3) {
		if err := kinds[s.rand.IntN(len(kinds))]; s.oneIn(4) {
			errs = append(errs, nil, err)
		} else {
			errs = append(errs, err)
		}
	}
	switch s.rand.IntN(8) {
	case 0:
		s.note("lists and probes fail: %v", errs)
		s.server.FailList(errs...)
	case 1:
		s.note("watches fail: %v", errs)
		s.server.FailWatch(errs...)
	case 2:
		for i, err := range errs {
			if err != nil {
				errs[i] = fakeapi.InStream(err)
			}
		}
		s.note("watches fail in the stream: %v", errs)
		s.server.FailWatch(append(errs, fakeapi.ErrCloseAtOnce)...)
	case 3:
		s.note("down")
		s.server.Down()
		waitFor(s.seconds(100))
		s.server.Up()
		s.note("up")
	case 4:
		d := s.seconds(2)
		s.note("each event takes %v", d)
		s.server.Slow(d)
	case 5:
		s.note("lists are held")
		s.server.Hold()
	case 6:
		s.note("lists go on, no event is slow")
		s.server.Release()
		s.server.Slow(0)
	default:
		s.note("watches are closed")
		s.server.CloseWatches()
	}
}

// begin starts a process with the handlers of the previous one: some are added before
// Run, some later, like those of a leader.
func (s *schedule) begin() {
	var departed map[string]guarantees.State
	s.atStart, departed = s.storedStates(s.path)
	db, err := bolt.Open(s.path, bolt.Options{CommitInterval: s.commits})
	if err != nil {
		s.Fatal(err)
	}
	s.note("begin, stored are %v, departed %v", s.atStart, departed)
	opts := s.opts
	opts.Backend = db
	s.run = s.world.run(opts, func(inf *informer.Informer) {
		if err := inf.SetTransform(s.transform()); err != nil {
			s.Error(err)
		}
		if s.spills {
			informer.SetBacklogLimits(inf, 1<<10, 1<<10, 1<<30)
		}
	})
	s.run.db = db
	if len(s.handlers) == 0 {
		s.addHandler(s.drawHandler())
	}
	for _, h := range s.handlers {
		if h.registration == nil && !s.oneIn(4) {
			s.addHandler(h)
		}
	}
}

func (s *schedule) transform() cache.TransformFunc {
	if !s.rejects {
		return nil
	}
	return func(obj any) (any, error) {
		if obj.(*corev1.ConfigMap).Data["v"] == "bad" {
			return nil, errSchedule
		}
		return obj, nil
	}
}

// drawHandler returns a handler that is not registered.
func (s *schedule) drawHandler() *scheduled {
	for _, h := range s.handlers {
		if h.registration == nil {
			return h
		}
	}
	h := &scheduled{name: fmt.Sprintf("h%d", s.nextName), told: guarantees.New(nil)}
	s.nextName++
	switch s.rand.IntN(3) {
	case 0:
		h.per = s.seconds(1) / 4
	case 1:
		h.per = time.Millisecond
	}
	s.handlers = append(s.handlers, h)
	return h
}

func (s *schedule) addHandler(h *scheduled) {
	if h.registration != nil || len(s.handlers) > 6 {
		return
	}
	s.note("add handler %s, %v a call", h.name, h.per)
	registration, err := s.run.inf.AddEventHandler(h)
	if err != nil {
		s.Fatal(err)
	}
	h.registration = registration
	h.told.Registered(registration)
}

func (s *schedule) removeHandler() {
	h := s.handlers[s.rand.IntN(len(s.handlers))]
	if h.registration == nil {
		return
	}
	s.note("remove handler %s", h.name)
	h.open()
	if err := s.run.inf.RemoveEventHandler(h.registration); err != nil {
		s.Error(err)
	}
	synctest.Wait()
	waitFor(time.Second) // its last call
	h.told.End()
	s.violations(h)
	s.forget(h)
}

// forget makes a handler one that has received nothing yet.
func (s *schedule) forget(h *scheduled) {
	h.told, h.registration = guarantees.New(nil), nil
}

func (s *schedule) block() {
	h := s.handlers[s.rand.IntN(len(s.handlers))]
	s.note("block handler %s", h.name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gate == nil {
		h.gate = make(chan struct{})
	}
}

func (s *schedule) unblock() {
	h := s.handlers[s.rand.IntN(len(s.handlers))]
	s.note("unblock handler %s", h.name)
	h.open()
}

func (h *scheduled) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gate != nil {
		close(h.gate)
		h.gate = nil
	}
}

func (h *scheduled) call(tell func()) {
	h.mu.Lock()
	gate := h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if h.per > 0 {
		<-time.After(h.per)
	}
	h.mu.Lock()
	dead := h.dead
	h.mu.Unlock()
	if !dead {
		tell()
	}
}

func (h *scheduled) OnAdd(obj any, initial bool) { h.call(func() { h.told.OnAdd(obj, initial) }) }
func (h *scheduled) OnUpdate(old, obj any)       { h.call(func() { h.told.OnUpdate(old, obj) }) }
func (h *scheduled) OnDelete(obj any)            { h.call(func() { h.told.OnDelete(obj) }) }

// kill ends the process at this moment: the file stays as it is, and no handler receives
// anything more.
func (s *schedule) kill() {
	synctest.Wait()
	s.note("kill")
	image := filepath.Join(filepath.Dir(s.path), "image.db")
	copyFile(s.T, s.path, image)
	s.afterDeath(image, true)
	if err := os.Rename(image, s.path); err != nil {
		s.Fatal(err)
	}
	s.begin()
}

// end ends the process normally: Run returns after the handlers.
func (s *schedule) end() {
	s.note("end")
	s.afterDeath(s.path, false)
}

// afterDeath ends the process and computes what the handlers of the next one must
// receive: each object that they know and that is stored, is kept as departed, or, unless
// the process died, was stored when it began.
func (s *schedule) afterDeath(path string, died bool) {
	for _, h := range s.handlers {
		h.mu.Lock()
		h.dead = died
		h.mu.Unlock()
		h.open()
	}
	s.run.end()
	stored, departed := s.storedStates(path)
	for _, h := range s.handlers {
		h.told.End()
		s.violations(h)
		h.dead = false
		if h.registration == nil {
			s.forget(h) // others may have received its objects since
			continue
		}
		owed := h.told.Held()
		maps.DeleteFunc(owed, func(key string, was guarantees.State) bool {
			isOwed := stored[key] == was || departed[key] == was || s.atStart[key] == was && !died
			return !isOwed
		})
		h.registration = nil
		h.told.Start(owed)
	}
}

// wipe drops the stored objects under the running informer. Its handlers receive the
// differences from the next list. A handler that has not received an old object never
// receives it, so there is no wipe while a handler has not synced.
func (s *schedule) wipe() {
	for _, h := range s.handlers {
		if h.registration != nil && !h.registration.HasSynced() {
			return
		}
	}
	s.note("wipe")
	for _, h := range s.handlers {
		if h.told.Damaged(); h.registration == nil {
			s.forget(h)
		}
	}
	if _, err := s.run.db.Wipe(nil); err != nil {
		s.Error(err)
	}
	clear(s.atStart)
}

// storedStates reads the objects that a process that starts with this file will have, and
// the departed objects that are kept.
func (s *schedule) storedStates(path string) (states, departed map[string]guarantees.State) {
	s.Helper()
	states, departed = map[string]guarantees.State{}, map[string]guarantees.State{}
	note := func(states map[string]guarantees.State, obj any) {
		key, state, err := guarantees.StateOf(obj)
		if err != nil {
			s.Fatal(err)
		}
		states[key] = state
	}
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		return states, departed // no file yet
	}
	defer func() { _ = db.Close() }()
	infos, err := db.Scopes()
	if err != nil {
		s.Fatal(err)
	}
	for _, info := range infos {
		if !info.Complete {
			continue
		}
		scope, err := db.Open(info.Scope, store.Options{})
		if err != nil {
			s.Fatal(err)
		}
		for obj, err := range scope.All() {
			if err != nil {
				s.Fatal(err)
			}
			note(states, obj)
		}
		gone, err := scope.(store.Departer).Departed(0, math.MaxInt)
		if err != nil {
			s.Fatal(err)
		}
		for _, d := range gone {
			if obj, err := scope.Decode(d.Before); err == nil {
				note(departed, obj)
			}
		}
	}
	return states, departed
}

func (s *schedule) violations(h *scheduled) {
	s.Helper()
	for _, v := range h.told.Violations() {
		s.Errorf("handler %s: %v", h.name, v)
	}
}

// settle removes all obstacles and lets time pass.
func (s *schedule) settle() {
	s.note("settle")
	s.server.Up()
	s.server.Slow(0)
	s.server.Release()
	for range 100 { // drop the pending errors of requests
		_, _ = s.server.ListWithContext(s.Context(), metav1.ListOptions{})
		if watch, err := s.server.WatchWithContext(s.Context(), metav1.ListOptions{}); err == nil {
			watch.Stop()
		}
	}
	for i := range 12 { // so that none is rejected any more
		if s.rejects {
			s.put(fmt.Sprintf("o%d", i), "good")
		}
	}
	for _, h := range s.handlers {
		h.open()
		s.addHandler(h)
	}
	for range 60 {
		waitFor(time.Minute)
	}
}

func (s *schedule) check() {
	if !s.run.inf.HasSynced() {
		s.Error("the informer has not synced")
	}
	for _, h := range s.handlers {
		if h.registration == nil {
			continue
		}
		if !h.registration.HasSynced() {
			s.Errorf("handler %s has not synced", h.name)
		}
		s.run.atRest(h.told)
	}
}
