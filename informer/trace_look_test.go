package informer_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store/bolt"
)

type makeInformer func(t *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func())

func clientGo(_ *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func()) {
	return cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, resync, indexers), func() {}
}

func onMem(t *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func()) {
	inf, err := informer.New(lw, &corev1.ConfigMap{}, informer.Options{ResyncPeriod: resync, Indexers: indexers})
	if err != nil {
		t.Fatal(err)
	}
	return inf, func() {}
}

// onBolt returns a constructor of informers, each with one file per test.
func onBolt(dir string) makeInformer {
	var n atomic.Int32
	var paths sync.Map // *testing.T -> path
	return func(t *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func()) {
		path, _ := paths.LoadOrStore(t, filepath.Join(dir, strconv.Itoa(int(n.Add(1)))+".db"))
		t.Cleanup(func() { paths.Delete(t) })
		db, err := bolt.Open(path.(string), bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		opts := informer.Options{Backend: db, ResyncPeriod: resync, Indexers: indexers, TransformVersion: "1"}
		inf, err := informer.New(lw, &corev1.ConfigMap{}, opts)
		if err != nil {
			t.Fatal(err)
		}
		return inf, func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// onWire returns a constructor of informers that take objects as the server encodes them.
func onWire(construct makeInformer) makeInformer {
	return func(t *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func()) {
		if server, ok := lw.(*fakeapi.Server); ok {
			lw = overHTTP(t, server, runtime.ContentTypeProtobuf)
		}
		return construct(t, lw, resync, indexers)
	}
}

// step is the result of a command.
type step struct {
	command string
	seen    seen // is compared

	// The fields below are only for the comparison.
	history    []string // changes at the server, in order
	before     []string // objects of the server before the step
	present    []string // objects of the server now
	bad        bool     // an object exists for which the transform fails
	listed     bool     // the server has received or answered a list
	held       bool     // it does not or did not answer lists
	elapsed    time.Duration
	calls      int  // calls of the transform
	failures   int  // calls of the watch error handler
	settled    bool // synced since before the step
	handlers   map[string]handlerState
	faults     []string
	callersMap int // names in the Indexers that were passed to the informer
}

type handlerState struct {
	period  time.Duration // 0: no resync
	late    bool          // its resyncs come at other times than client-go's
	removed bool
	added   bool // in this step
	twice   bool // and another registration of it received something, too
	blocked bool // before or after it
	busy    bool // after it
}

// seen is the visible state of an informer after a command.
type seen struct {
	Told     map[string][]string // by handler
	Refused  []string            // calls that returned an error
	Synced   map[string]bool     // the informer, and each handler's registration
	Store    []string            // List
	Keys     []string            // ListKeys
	Got      map[string]string   // GetByKey and Get
	Indexers []string
	Index    map[string][]string // by index and value: IndexKeys
	ByIndex  map[string][]string
	Alike    map[string][]string // by index and key: Index
	StoreRV  string
	RV       string
	Stopped  bool
}

// quietErrors prevents client-go from waiting until a millisecond after the last error of
// the process, which may be long in a bubble.
func quietErrors(t *testing.T) {
	t.Helper()
	saved := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = saved })
}

// play runs a script in a bubble and returns its steps. At the end the informer is
// stopped.
func play(t *testing.T, script []string, construct makeInformer) (steps []step) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{
			T: t, listeners: map[string]*listener{}, done: make(chan struct{}),
			present: collection{objects: map[string]*corev1.ConfigMap{}, views: map[string]string{}},
		}
		script, opts := s.prepare(script)
		s.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, opts)
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "v": s.indexFunc("value")}
		s.construct = func() (closeBackend func()) {
			s.inf, closeBackend = construct(t, s.server, s.check, indexers)
			s.configure()
			s.ctx, s.stop = context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
			return closeBackend
		}
		closeBackend := s.construct()
		defer func() { closeBackend() }()
		defer s.end() // if a command is wrong
		for _, command := range script {
			steps = append(steps, s.step(command, func() { s.do(command) }))
		}
		steps = append(steps, s.step("(stop)", s.end), s.step("(stopped)", s.after))
		closeBackend()
		steps = append(steps, s.step(nextStart, func() { closeBackend = s.startAgain() }))
		for i := range steps {
			steps[i].callersMap = len(indexers)
		}
	})
	return steps
}

// nextStart is the last step: the state of a next process, after changes while none ran.
const nextStart = "(next start)"

// startAgain starts the next process with a handler that was at rest at the end, if there
// was one. If the objects were persisted, the handler receives those that it knew.
func (s *subject) startAgain() (closeBackend func()) {
	name, l := "next", (*listener)(nil)
	for _, name = range slices.Sorted(maps.Keys(s.listeners)) {
		if s.listeners[name].owed != nil {
			l = s.listeners[name]
		}
	}
	s.listeners = map[string]*listener{}
	if l != nil {
		l.there = false
		s.listeners[name] = l
	}
	for i, name := range slices.Sorted(maps.Keys(s.present.objects)) {
		// No earlier state is visible.
		if _, ok := s.view(s.present.objects[name]); !ok && !s.persisted {
			delete(s.present.views, name)
		}
		switch i {
		case 0:
			s.drop(name)
		case 1:
			s.put(name, "next")
		}
	}
	closeBackend = s.construct()
	s.addHandler([]string{name})
	s.done = make(chan struct{})
	s.run()
	waitFor(settling)
	return closeBackend
}

// prepare reads the lines that describe the server and the informer.
func (s *subject) prepare(script []string) ([]string, fakeapi.Options) {
	var opts fakeapi.Options
	for len(script) > 0 {
		_, rest, _ := strings.Cut(script[0], " ")
		switch verb(script[0]) {
		case "server":
			var err error
			if opts, err = serverOptions(rest); err != nil {
				s.Fatal(err)
			}
		case "resync":
			s.check = s.duration(rest)
		case "transform":
			s.transform = rest
		default:
			return script, opts
		}
		script = script[1:]
	}
	return script, opts
}

func (s *subject) configure() {
	count := func(context.Context, *cache.Reflector, error) { s.failures.Add(1) }
	if err := s.inf.SetWatchErrorHandlerWithContext(count); err != nil {
		s.Fatal(err)
	}
	if s.transform == "" {
		return
	}
	transform := transforms[s.transform]
	if err := s.inf.SetTransform(func(obj any) (any, error) {
		s.calls.Add(1)
		return transform(obj)
	}); err != nil {
		s.Fatal(err)
	}
}

// step runs a command and records its result.
func (s *subject) step(command string, do func()) step {
	s.history, s.refusals, s.faults = nil, nil, nil
	out := step{command: command, before: slices.Sorted(maps.Values(s.present.views)), settled: s.inf.HasSynced(), handlers: map[string]handlerState{}}
	requests, calls, failures, begin := len(s.server.Requests()), s.calls.Load(), s.failures.Load(), time.Now()
	held := s.held
	times, blocked := map[string]int{}, map[string]bool{}
	for name, l := range s.listeners {
		times[name], blocked[name] = l.times, l.open != nil
	}
	do()
	synctest.Wait()
	out.elapsed = time.Since(begin)
	out.held = held || s.held
	out.listed = out.held || listed(s.server.Requests()[requests:])
	out.calls, out.failures = int(s.calls.Load()-calls), int(s.failures.Load()-failures)
	out.history, out.present = s.history, slices.Sorted(maps.Values(s.present.views))
	for _, obj := range s.present.objects {
		_, ok := s.view(obj)
		out.bad = out.bad || !ok
	}
	for name, l := range s.listeners {
		out.handlers[name] = handlerState{
			period: s.period(l), late: l.late, removed: !l.there,
			added: times[name] != l.times, twice: l.earlier != nil, blocked: blocked[name] || l.open != nil, busy: l.open != nil,
		}
	}
	slices.Sort(s.refusals)
	s.look(&out)
	out.faults = s.faults
	return out
}

// listed reports whether the server has received a list; probes and further pages do not
// count.
func listed(requests []fakeapi.Request) bool {
	return slices.ContainsFunc(requests, func(r fakeapi.Request) bool {
		isProbe := r.Options.Limit == 1 || r.Options.Limit == reflector.WholeLimit
		return isStreamedList(r) || r.Verb == "list" && !isProbe && r.Options.Continue == ""
	})
}

// look reads the whole visible state.
func (s *subject) look(out *step) {
	out.seen = seen{
		Told: map[string][]string{}, Refused: s.refusals,
		Synced:  map[string]bool{"the informer": s.inf.HasSynced(), "its controller": s.inf.GetController().HasSynced()},
		StoreRV: s.inf.GetStore().LastStoreSyncResourceVersion(), RV: s.inf.LastSyncResourceVersion(), Stopped: s.inf.IsStopped(),
	}
	if s.inf.HasSynced() != cache.IsDone(s.inf.HasSyncedChecker()) {
		s.fault("HasSynced and HasSyncedChecker of the informer differ")
	}
	for name, l := range s.listeners {
		lines := append(l.earlier, l.take()...)
		l.earlier = nil
		if len(lines) > 0 {
			out.seen.Told[name] = lines
		}
		if l.handle != nil {
			s.checkGuarantees(name, l)
			out.seen.Synced[name] = l.handle.HasSynced()
			if l.handle.HasSynced() != cache.IsDone(l.handle.HasSyncedChecker()) {
				s.fault("HasSynced and HasSyncedChecker of a handler differ")
			}
		}
	}
	s.lookAtStore(&out.seen)
	s.lookAtIndexes(&out.seen)
}

// checkGuarantees checks the notifications of a handler. A handler that runs and is not
// in a call is at rest after each step.
func (s *subject) checkGuarantees(name string, l *listener) {
	if s.started && l.there && l.open == nil && !s.inf.IsStopped() {
		is, err := guarantees.States(s.inf.GetIndexer().List())
		if err != nil {
			s.Fatal(err)
		}
		l.recorder.AtRest(is)
	}
	for _, violation := range l.recorder.Violations() {
		// client-go counts the initial adds that wait while it appends them, so a handler
		// that is faster than that has synced for a moment.
		if violation.Guarantee != guarantees.SyncedAfterAdds || !l.recorder.Repeats {
			s.fault("%s: %v", name, violation)
		}
	}
}

func (s *subject) lookAtStore(out *seen) {
	indexer := s.inf.GetIndexer()
	out.Store = shown(indexer.List())
	out.Keys = slices.Sorted(slices.Values(s.inf.GetStore().ListKeys()))
	out.Got = map[string]string{}
	for _, key := range append([]string{"default/absent", "absent"}, out.Keys...) {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			s.fault("%v", err)
		}
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		got, there, err := indexer.GetByKey(key)
		text := fmt.Sprint(show(got), there, err)
		for _, arg := range []any{obj, cache.ExplicitKey(key), cache.DeletedFinalStateUnknown{Key: key}} {
			got, there, err := indexer.Get(arg)
			if other := fmt.Sprint(show(got), there, err); other != text {
				text += fmt.Sprintf(" by %T: %s", arg, other)
			}
		}
		out.Got[key] = text
	}
}

func (s *subject) lookAtIndexes(out *seen) {
	indexer := s.inf.GetIndexer()
	out.Indexers = slices.Sorted(maps.Keys(indexer.GetIndexers()))
	out.Index, out.ByIndex, out.Alike = map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, name := range out.Indexers {
		values := indexer.ListIndexFuncValues(name)
		out.Index[name] = slices.Sorted(slices.Values(values))
		for _, value := range append(values, "absent") {
			keys, err := indexer.IndexKeys(name, value)
			if err != nil {
				s.fault("%v", err)
			}
			objs, err := indexer.ByIndex(name, value)
			if err != nil {
				s.fault("%v", err)
			}
			out.Index[name+"="+value], out.ByIndex[name+"="+value] = append([]string{}, keys...), shown(objs)
		}
		probes := []any{configMap("probe", "1")}
		for _, key := range out.Keys[:min(4, len(out.Keys))] {
			obj, _, _ := indexer.GetByKey(key) // lookAtStore checks the others
			probes = append(probes, obj)
		}
		for _, obj := range probes {
			alike, err := indexer.Index(name, obj)
			if err != nil {
				s.fault("%v", err)
			}
			out.Alike[name+" of "+show(obj)] = shown(alike)
		}
	}
	if _, err := indexer.IndexKeys("absent", ""); err == nil {
		s.fault("IndexKeys of an index that is not there has no error")
	}
	if _, err := indexer.ByIndex("absent", ""); err == nil {
		s.fault("ByIndex of an index that is not there has no error")
	}
	if _, err := indexer.Index("absent", &corev1.ConfigMap{}); err == nil {
		s.fault("Index of an index that is not there has no error")
	}
	if got := indexer.ListIndexFuncValues("absent"); len(got) > 0 {
		s.fault("an index that is not there has values: %v", got)
	}
}

func shown(objs []any) []string {
	out := make([]string, len(objs))
	for i, obj := range objs {
		out[i] = show(obj)
	}
	slices.Sort(out)
	return out
}

// end stops the informer. Blocked handlers prevent Run from returning, but do not prevent
// the informer from stopping.
func (s *subject) end() {
	if ours, ok := s.inf.(*informer.Informer); ok && ours.HasSynced() {
		s.persisted = ours.Status().Persisted
	}
	for _, l := range s.listeners {
		if s.persisted && l.there && l.open == nil {
			l.owed = l.recorder.Held()
		}
	}
	s.stop()
	synctest.Wait()
	if s.started && !s.inf.IsStopped() {
		s.fault("not stopped, though its context has ended")
	}
	for _, l := range s.listeners {
		l.unblock()
	}
	if s.started {
		<-s.done
	}
	for _, l := range s.listeners {
		l.recorder.End()
	}
}

// after makes the calls that have no effect, or return an error, after an informer has
// run.
func (s *subject) after() {
	s.put("late", "late")
	s.held = false
	s.server.Release()
	if !s.started {
		waitFor(settling)
		return
	}
	// A second Run returns at once.
	s.inf.RunWithContext(klog.NewContext(s.Context(), klog.Logger{}))
	waitFor(settling)
	_, err := s.inf.AddEventHandler(&listener{})
	s.try("AddEventHandler", err)
	s.try("AddIndexers", s.inf.AddIndexers(cache.Indexers{"after": s.indexFunc("value")}))
	s.try("SetTransform", s.inf.SetTransform(nil))
	s.try("SetWatchErrorHandler", s.inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
	for name, l := range s.listeners {
		if l.handle != nil {
			s.try("RemoveEventHandler of "+name, s.inf.RemoveEventHandler(l.handle))
		}
	}
}
