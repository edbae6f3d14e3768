package reflector_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/internal/fakeapi"
)

// failures is what a server fails, for example because it cannot convert one object.
type failures struct {
	probes  bool // lists with limit 1
	lists   bool // whole ones, streamed or not
	watches bool
	with    error // nil: a 500
}

func (f failures) err() error {
	if f.with != nil {
		return f.with
	}
	return apierrors.NewInternalError(errors.New("conversion webhook failed"))
}

// failing makes the server fail what the result contains, which the caller may change. It
// counts whole lists.
func (w *world) failing(f failures) (now *atomic.Pointer[failures], whole *atomic.Int32) {
	now, whole = &atomic.Pointer[failures]{}, &atomic.Int32{}
	now.Store(&f)
	w.through(between{
		list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if opts.Limit != 1 {
				whole.Add(1)
			}
			if f := now.Load(); f.probes && opts.Limit == 1 || f.lists && opts.Limit != 1 {
				return nil, f.err()
			}
			return w.server.ListWithContext(ctx, opts)
		},
		watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			stream := opts.SendInitialEvents != nil
			if stream {
				whole.Add(1)
			}
			if f := now.Load(); f.watches && !stream || f.lists && stream {
				return nil, f.err()
			}
			return w.server.WatchWithContext(ctx, opts)
		},
	})
	return now, whole
}

// TestServerFails checks starts at a server that fails requests for half an hour. What it
// serves is used, whole lists come once a minute at most, and the reflector catches up
// when the server is mended.
func TestServerFails(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("no backend")
	for name, c := range map[string]struct {
		cold   bool
		fails  failures
		later  *failures // after ten minutes
		told   bool      // of the change, in the half hour
		whole  int32     // the most whole lists in the half hour
		caught bool      // in the half hour
	}{
		"probes":                            {fails: failures{probes: true}, told: true},
		"probes and lists":                  {fails: failures{probes: true, lists: true}, told: true},
		"whole lists":                       {fails: failures{lists: true}, told: true, caught: true},
		"watches":                           {fails: failures{watches: true}, told: true, caught: true, whole: 45},
		"watches and whole lists":           {fails: failures{lists: true, watches: true}, whole: 45},
		"everything":                        {fails: failures{probes: true, lists: true, watches: true}},
		"everything, in an outage":          {fails: failures{probes: true, lists: true, watches: true, with: unavailable}},
		"watches, then only lists":          {fails: failures{lists: true, watches: true}, later: &failures{lists: true}, told: true, caught: true, whole: 45},
		"watches, then probes and lists":    {fails: failures{lists: true, watches: true}, later: &failures{probes: true, lists: true}, told: true, whole: 45, caught: true},
		"lists, with nothing stored":        {cold: true, fails: failures{lists: true}, whole: 45},
		"everything, with nothing stored":   {cold: true, fails: failures{probes: true, lists: true, watches: true}, whole: 45},
		"an outage, and nothing was stored": {cold: true, fails: failures{probes: true, lists: true, watches: true, with: unavailable}, whole: 45},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stored := "3"
				if c.cold {
					stored = ""
				}
				w := newWorld(t, stored, fakeapi.Options{})
				now, whole := w.failing(c.fails)
				w.update("b") // 4
				w.start()
				w.pass(10 * time.Minute)
				if c.later != nil {
					now.Store(c.later)
				}
				w.pass(20 * time.Minute)
				w.sink.mu.Lock()
				told := w.sink.held["b"] == "4"
				w.sink.mu.Unlock()
				if told != c.told || whole.Load() > c.whole || w.caughtUpAfter() >= 0 != c.caught {
					t.Errorf("told %t, caught up after %v, %d whole lists; %s", told, w.caughtUpAfter(), whole.Load(), w.Status().LastError)
				}
				now.Store(&failures{})
				w.pass(2 * time.Minute)
				w.wantSame()
				if w.caughtUpAfter() < 0 {
					t.Error("not caught up two minutes after the mend")
				}
			})
		})
	}
}

// TestServerFailsUnderWatch checks that a reflector that has caught up watches on
// although the server fails its probes, and that it notices a rewound history once it
// can.
func TestServerFailsUnderWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		now, whole := w.failing(failures{})
		w.start()
		now.Store(&failures{probes: true, lists: true})
		w.server.CloseWatches()
		w.update("b") // 4
		w.pass(30 * time.Second)
		w.rewind("2")
		w.pass(10 * time.Minute)
		w.wantTrace("caught up", "updated b@4")
		now.Store(&failures{})
		w.pass(2 * time.Minute)
		w.wantTrace("relist: history was rewound", "listed 1@2")
		w.wantSame()
		if n := whole.Load(); n != 1 {
			t.Errorf("%d whole lists, want 1", n)
		}
	})
}

// TestUnprobedWatchesCutShort checks that a server which fails probes and cuts watches is
// asked less and less often.
func TestUnprobedWatchesCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.failing(failures{probes: true})
		w.start()
		for range 20 * 60 {
			w.pass(1500 * time.Millisecond)
			w.server.CloseWatches()
		}
		if n := len(w.newRequests()); n > 60 {
			t.Errorf("%d requests in half an hour", n)
		}
	})
}

// TestSinkAsksWhileListsFail checks that the sink gets the list that it has asked for,
// and no watch before.
func TestSinkAsksWhileListsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		now, _ := w.failing(failures{lists: true, watches: true})
		w.server.Advance()
		w.start()
		w.pass(5 * time.Minute) // it lists now and then
		w.Relist("something is lost")
		w.pass(5 * time.Minute)
		now.Store(&failures{lists: true})
		w.newRequests()
		w.pass(5 * time.Minute)
		for _, request := range w.newRequests() {
			if request != "watch stream" && request != "list limit=500" {
				t.Errorf("request %q, want only lists", request)
			}
		}
		now.Store(&failures{})
		w.pass(2 * time.Minute)
		w.wantSame()
	})
}

// TestListsFailWithoutBookmarks checks that a server without bookmarks, which fails every
// whole list, is asked for one a minute after the first ones.
func TestListsFailWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
		_, whole := w.failing(failures{lists: true})
		w.server.Advance()
		w.start()
		w.pass(30 * time.Minute)
		if n := whole.Load(); n > 40 {
			t.Errorf("%d whole lists in half an hour", n)
		}
	})
}

// TestUnprobedUndecodable checks that an object that client-go cannot decode is met while
// the server fails all lists: the ListerWatcher hears that it has to take it apart.
func TestUnprobedUndecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		var asked atomic.Int32
		w.opts.Undecodable = func() bool { asked.Add(1); return true }
		w.through(between{
			list: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, failures{}.err() },
			watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				switch {
				case opts.SendInitialEvents != nil:
					return nil, failures{}.err()
				case asked.Load() > 0:
					return w.server.WatchWithContext(ctx, opts)
				}
				c := make(chan watch.Event, 1)
				c <- watch.Event{Type: watch.Error, Object: &metav1.Status{
					Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
					Message: "unable to decode an event from the watch stream: unable to decode watch event",
					Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
						{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "on purpose"},
						{Type: "ClientWatchDecoding", Message: "unable to decode watch event"},
					}},
				}}
				return watch.NewProxyWatcher(c), nil
			},
		})
		rv := w.update("b")
		w.start()
		w.pass(10 * time.Minute)
		if got := w.LastSyncResourceVersion(); asked.Load() == 0 || got != rv {
			t.Errorf("asked %d times to take objects apart, at %s, want %s", asked.Load(), got, rv)
		}
	})
}

// TestRefusedWhileListsFail checks that an object that the sink refuses does not keep the
// others back while the server fails all lists.
func TestRefusedWhileListsFail(t *testing.T) {
	for name, fails := range map[string]failures{
		"lists":            {lists: true},
		"probes and lists": {probes: true, lists: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", fakeapi.Options{})
				w.failing(fails)
				w.sink.refuse = "bad"
				w.start()
				w.pass(10 * time.Second)
				w.create("bad")
				rv := w.create("good")
				w.pass(10 * time.Minute)
				if got := w.LastSyncResourceVersion(); got != rv {
					t.Errorf("at %s, want %s, behind the refused object", got, rv)
				}
			})
		})
	}
}

// TestPanic checks that a panic of a ListerWatcher or of the error handler goes to
// apimachinery's handlers, and that the reflector goes on if these do not end the
// process.
func TestPanic(t *testing.T) {
	told := takePanics(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{NoWatchList: true})
		first := true
		w.through(between{list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if first {
				first = false
				panic("list")
			}
			return w.server.ListWithContext(ctx, opts)
		}})
		w.failed = func() { panic("handler") }
		w.start()
		w.pass(time.Minute)
		w.wantSame()
	})
	if diff := cmp.Diff([]any{"list", "handler"}, *told); diff != "" {
		t.Errorf("panics that were told (-want +got):\n%s", diff)
	}
}

// takePanics keeps panics from ending the process, and returns those that apimachinery's
// handlers have received.
func takePanics(t *testing.T) *[]any {
	t.Helper()
	crash, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	t.Cleanup(func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = crash, handlers })
	utilruntime.ReallyCrash = false
	var told []any
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, p any) { told = append(told, p) }}
	return &told
}

// TestPanicBesideStream checks the same of the page that is asked for beside a streamed
// list which is silent.
func TestPanicBesideStream(t *testing.T) {
	told := takePanics(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		first := true
		w.through(between{
			list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				if first {
					first = false
					panic("list")
				}
				return w.server.ListWithContext(ctx, opts)
			},
			watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				if opts.SendInitialEvents != nil {
					return silence(ctx, opts, time.Hour), nil
				}
				return w.server.WatchWithContext(ctx, opts)
			},
		})
		w.start()
		w.pass(10 * time.Minute)
		w.wantSame()
	})
	if diff := cmp.Diff([]any{"list"}, *told); diff != "" {
		t.Errorf("panics that were told (-want +got):\n%s", diff)
	}
}
