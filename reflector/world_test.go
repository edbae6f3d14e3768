package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// sink records its calls and holds the content of a store.
type sink struct {
	checkpoint store.Checkpoint
	refuse     string // the name of an object that Push and Add refuse
	full       bool   // Push and Bookmark block
	behind     int    // how often CaughtUp fails

	mu     sync.Mutex // protects the fields below
	trace  []string
	held   map[string]string // resource versions by object name
	caught time.Time
	errs   []error
}

func (s *sink) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

func (s *sink) take(ctx context.Context, name string) error {
	if s.full {
		<-ctx.Done()
		return ctx.Err()
	}
	if name != "" && name == s.refuse {
		return &store.ObjectError{Key: name, Err: errors.New("refused")}
	}
	return nil
}

func (s *sink) Checkpoint() store.Checkpoint { return s.checkpoint }

func (s *sink) Push(ctx context.Context, t cache.DeltaType, obj runtime.Object, rv string) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	name := accessor.GetName()
	if err := s.take(ctx, name); err != nil {
		return err
	}
	s.record("%s %s@%s", strings.ToLower(string(t)), name, rv)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] = accessor.GetResourceVersion(); t == cache.Deleted {
		delete(s.held, name)
	}
	return nil
}

func (s *sink) Reject(_ context.Context, obj runtime.Object, _ error) {
	s.record("reject %s", nameOf(obj))
}

func (s *sink) Bookmark(ctx context.Context, rv string) error {
	if err := s.take(ctx, ""); err != nil {
		return err
	}
	s.record("bookmark %s", rv)
	return nil
}

func (s *sink) CaughtUp(ctx context.Context) error {
	s.record("caught up")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caught = time.Now()
	if s.behind > 0 {
		s.behind--
		return errors.New("the sink is behind")
	}
	return ctx.Err()
}

func (s *sink) Relist(ctx context.Context, reason string) (reflector.Relist, error) {
	s.record("relist: %s", reason)
	return &relist{sink: s, got: map[string]string{}}, ctx.Err()
}

type relist struct {
	sink *sink
	got  map[string]string
}

func (r *relist) Add(ctx context.Context, obj runtime.Object) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if err := r.sink.take(ctx, accessor.GetName()); err != nil {
		return err
	}
	r.got[accessor.GetName()] = accessor.GetResourceVersion()
	return nil
}

func (r *relist) Remove(_ context.Context, obj runtime.Object) error {
	delete(r.got, nameOf(obj))
	return nil
}

func (r *relist) Finish(_ context.Context, rv string) error {
	r.sink.record("listed %d@%s", len(r.got), rv)
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	r.sink.held = r.got
	return nil
}

func (r *relist) Close() error { return nil }

func nameOf(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "?"
	}
	return accessor.GetName()
}

// world is a reflector between a server and a sink. Create it in a synctest bubble.
type world struct {
	t      *testing.T
	server *fakeapi.Server
	sink   *sink
	opts   reflector.Options
	logger klog.Logger // of the context of Run
	*reflector.Reflector
	began    time.Time
	requests int // how many of the server's requests were checked
	trace    int
	errs     int
	stop     func() // ends Run and waits for it
	failed   func() // is called with each error; may be nil
}

func configMap(name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// newWorld returns a world whose server has the objects a@2 and b@3, and whose sink holds
// them complete up to stored.
func newWorld(t *testing.T, stored string, opts fakeapi.Options) *world {
	t.Helper()
	w := &world{
		t: t, server: fakeapi.New(&v1.ConfigMap{}, &v1.ConfigMapList{}, opts),
		sink: &sink{checkpoint: store.Checkpoint{RV: stored}, held: map[string]string{}},
	}
	w.opts = reflector.Options{ListerWatcher: w.server, Example: &v1.ConfigMap{}, Sink: w.sink}
	a, b := w.create("a"), w.create("b")
	if stored != "" {
		w.sink.held = map[string]string{"a": a, "b": b}
	}
	return w
}

// watching returns a world that has resumed at 3 and waits for events.
func watching(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "3", fakeapi.Options{})
	w.start()
	w.wantRequests("list limit=1", "watch 3")
	w.wantTrace("caught up")
	return w
}

func (w *world) create(name string) string {
	w.t.Helper()
	rv, err := w.server.Create(configMap(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return rv
}

func (w *world) update(name string) string {
	w.t.Helper()
	rv, err := w.server.Update(configMap(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return rv
}

func (w *world) delete(name string) string {
	w.t.Helper()
	rv, err := w.server.Delete("default/" + name)
	if err != nil {
		w.t.Fatal(err)
	}
	return rv
}

func (w *world) compact(rv string) {
	w.t.Helper()
	if err := w.server.Compact(rv); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) rewind(rv string) {
	w.t.Helper()
	if err := w.server.Rewind(rv); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) start() {
	w.t.Helper()
	w.opts.OnError = func(_ context.Context, err error) {
		w.sink.mu.Lock()
		defer w.sink.mu.Unlock()
		w.sink.errs = append(w.sink.errs, err)
		if w.failed != nil {
			w.failed()
		}
	}
	r, err := reflector.New(w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Reflector, w.began = r, time.Now()
	ctx, cancel := context.WithCancel(klog.NewContext(w.t.Context(), w.logger))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	w.t.Cleanup(w.stop)
	synctest.Wait()
}

// pass lets time go by for d.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// until lets time go by until there are n more requests.
func (w *world) until(n int) {
	w.t.Helper()
	for range 3600 {
		if len(w.server.Requests()) >= w.requests+n {
			return
		}
		w.pass(time.Second)
	}
	w.t.Fatalf("no %d requests in an hour, but %q", n, w.newRequests())
}

func (w *world) newRequests() []string {
	all := w.server.Requests()
	var got []string
	for _, r := range all[w.requests:] {
		got = append(got, show(r))
	}
	w.requests = len(all)
	return got
}

// show formats a request as "list limit=1", "list more", "watch 5", "watch 5 for 3s" for
// the timeout of a catch-up watch, or "watch stream".
func show(r fakeapi.Request) string {
	o := r.Options
	switch {
	case r.Verb == "list" && o.Continue != "":
		return "list more"
	case r.Verb == "list":
		return fmt.Sprintf("list limit=%d", o.Limit)
	case o.SendInitialEvents != nil:
		return "watch stream"
	case *o.TimeoutSeconds < 300:
		return fmt.Sprintf("watch %s for %ds", o.ResourceVersion, *o.TimeoutSeconds)
	}
	return "watch " + o.ResourceVersion
}

// wantRequests compares the requests since the last check.
func (w *world) wantRequests(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.newRequests()); diff != "" {
		w.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// wantTrace compares the calls of the sink since the last check.
func (w *world) wantTrace(want ...string) {
	w.t.Helper()
	w.sink.mu.Lock()
	got := slices.Clone(w.sink.trace[w.trace:])
	w.trace = len(w.sink.trace)
	w.sink.mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("sink (-want +got):\n%s", diff)
	}
}

// wantErrors compares the number of reported errors since the last check, and checks that
// the last one contains text.
func (w *world) wantErrors(n int, text string) {
	w.t.Helper()
	w.sink.mu.Lock()
	got := slices.Clone(w.sink.errs[w.errs:])
	w.errs = len(w.sink.errs)
	w.sink.mu.Unlock()
	if len(got) != n || n > 0 && !strings.Contains(got[n-1].Error(), text) {
		w.t.Errorf("got errors %q, want %d, the last of them %q", got, n, text)
	}
}

// wantSame compares the content of the sink with the content of the server.
func (w *world) wantSame() {
	w.t.Helper()
	list, err := w.server.ListWithContext(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.requests++
	want := map[string]string{}
	for _, item := range list.(*v1.ConfigMapList).Items {
		want[item.Name] = item.ResourceVersion
	}
	w.sink.mu.Lock()
	got := maps.Clone(w.sink.held)
	w.sink.mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("held (-server +sink):\n%s", diff)
	}
}

// waited returns the time between two requests: the n-th before the last and the one
// before.
func (w *world) waited(n int) time.Duration {
	all := w.server.Requests()
	i := len(all) - 1 - n
	return all[i].Time.Sub(all[i-1].Time)
}

// caughtUpAfter returns the duration of the start; negative if it is not over.
func (w *world) caughtUpAfter() time.Duration {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.caught.IsZero() {
		return -1
	}
	return w.sink.caught.Sub(w.began)
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

func expired() error { return apierrors.NewResourceExpired("too old resource version") }

func gone() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonGone}}
}

func tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

// decoding returns the error that client-go's stream decoder sends when it cannot
// continue.
func decoding(text string) error {
	reporter := apierrors.NewClientErrorReporter(500, "GET", "ClientWatchDecoding")
	return apierrors.FromObject(reporter.AsObject(fmt.Errorf("unable to decode an event from the watch stream: %s", text)))
}

func forbidden() error { return apierrors.NewForbidden(configMaps, "", errors.New("no role")) }

func tooManyRequests(seconds int) error { return apierrors.NewTooManyRequests("slow down", seconds) }

func errorEvent(err error) watch.Event {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	return watch.Event{Type: watch.Error, Object: &s}
}
