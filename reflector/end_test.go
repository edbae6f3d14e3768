package reflector_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/internal/fakeapi"
)

// TestContextEnds checks that Run returns at once in every state, reports nothing and
// leaves no goroutine: a bubble ends only after all its goroutines.
func TestContextEnds(t *testing.T) {
	for name, in := range map[string]func(*world){
		"list": func(w *world) {
			w.sink.checkpoint.RV = ""
			w.opts.ListerWatcher = blockedServer{w.server}
			w.start()
		},
		"streamed list": func(w *world) {
			w.sink.checkpoint.RV = ""
			w.server.Slow(time.Minute)
			w.start()
		},
		"probe": func(w *world) {
			w.opts.ListerWatcher = blockedServer{w.server}
			w.start()
		},
		"watch": func(w *world) { w.start() },
		"catching up": func(w *world) {
			w.server.Advance()
			w.start()
		},
		"watch after a streamed list": func(w *world) {
			w.sink.checkpoint.RV = ""
			w.start()
			w.pass(time.Minute)
		},
		"backoff": func(w *world) {
			w.server.Down()
			w.start()
			w.pass(time.Hour)
			w.sink.errs = nil
		},
		"blocked Push": func(w *world) {
			w.sink.full = true
			w.start()
			w.create("c")
			w.pass(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", fakeapi.Options{})
				in(w)
				begin := time.Now()
				w.stop()
				synctest.Wait()
				if got := time.Since(begin); got != 0 {
					t.Errorf("Run returned after %v", got)
				}
				if n := w.server.Watches(); n != 0 {
					t.Errorf("%d watches are open", n)
				}
				w.wantErrors(0, "")
			})
		})
	}
}

// TestBlockedPush checks that a full sink makes the watch wait and has no other effect.
func TestBlockedPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.sink.full = true
		w.start()
		w.create("c")
		w.pass(time.Hour)
		w.wantRequests("list limit=1", "watch 3")
		w.wantErrors(0, "")
		w.wantTrace("caught up")
	})
}

// blockedServer does not answer lists and does not support streamed lists.
type blockedServer struct{ *fakeapi.Server }

func (blockedServer) IsWatchListSemanticsUnSupported() bool { return true }

func (blockedServer) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// deafServer never sends anything in its first watch.
type deafServer struct {
	*fakeapi.Server
	opened bool
}

func (s *deafServer) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if !s.opened {
		s.opened = true
		return watch.NewFake(), nil
	}
	return s.Server.WatchWithContext(ctx, opts)
}

// fake behaves like a fake client: it has no resource versions, no bookmarks, and a watch
// without earlier events.
type fake struct {
	lists   []int64 // the limits of the lists
	watches int
	open    *watch.FakeWatcher
	first   *watch.FakeWatcher
}

func (*fake) IsWatchListSemanticsUnSupported() bool { return true }

func (f *fake) List(opts metav1.ListOptions) (runtime.Object, error) {
	f.lists = append(f.lists, opts.Limit)
	return &v1.ConfigMapList{Items: []v1.ConfigMap{*configMap("a")}}, nil
}

func (f *fake) Watch(metav1.ListOptions) (watch.Interface, error) {
	f.watches++
	f.open = watch.NewFake()
	f.first = cmp.Or(f.first, f.open)
	return f.open, nil
}

// TestFake checks that without resource versions there is only one list, however often a
// watch ends after it, and that the next watch is opened at once.
func TestFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, "", fakeapi.Options{})
		w.opts.ListerWatcher = f
		w.start()
		w.wantTrace("relist: nothing stored yet", "listed 1@", "caught up")
		f.open.Add(configMap("b"))
		f.open.Add(&metav1.Status{}) // it is reported, and the watch goes on
		f.open.Modify(configMap("b"))
		for range 10 {
			w.pass(2 * time.Minute)
			f.open.Stop()
			w.pass(0)
		}
		f.open.Delete(configMap("b"))
		w.pass(0)
		w.wantTrace("added b@", "updated b@", "deleted b@")
		full := 0
		for _, limit := range f.lists {
			if limit != 1 {
				full++
			}
		}
		if full != 1 || f.watches != 11 {
			t.Errorf("got %d lists and %d watches, want 1 and 11", full, f.watches)
		}
	})
}

// blocking is a fake whose watches begin when the test ends.
type blocking struct{ *fake }

func (blocking) WatchWithContext(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (b blocking) ListWithContext(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return b.List(opts)
}

// TestFakeThatBlocks checks that the watch of a fake does not hold up for ever that the
// reflector has caught up.
func TestFakeThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.opts.ListerWatcher = blocking{&fake{}}
		w.start()
		w.wantTrace("relist: nothing stored yet", "listed 1@")
		w.pass(time.Second)
		w.wantTrace("caught up")
	})
}

// versionless is a server without resource versions, as an aggregated one may be: its
// watches begin with what exists.
type versionless struct{ *fake }

func (versionless) IsWatchListSemanticsUnSupported() bool { return false }

func (v versionless) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("sendInitialEvents is not known")
	}
	return v.fake.Watch(opts)
}

// TestVersionless checks that a list follows each watch of a server whose lists have no
// resource version: no watch says what was deleted before it began. The resource versions
// of its events do not change that, as no watch may resume from them.
func TestVersionless(t *testing.T) {
	at := func(rv string) *v1.ConfigMap {
		cm := configMap("b")
		cm.ResourceVersion = rv
		return cm
	}
	for name, test := range map[string]struct {
		rv      string
		noProbe bool
	}{"events without": {}, "events with one": {rv: "7"}, "events with one, no probes": {rv: "7", noProbe: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				w := newWorld(t, "", fakeapi.Options{})
				w.opts.ListerWatcher, w.opts.NoProbe = versionless{f}, test.noProbe
				w.start()
				w.wantTrace("relist: nothing stored yet", "listed 1@", "caught up")
				f.open.Add(at(test.rv))
				f.open.Modify(at(test.rv))
				f.open.Action(watch.Bookmark, at(test.rv))
				f.open.Error(&apierrors.NewInternalError(errors.New("etcd")).ErrStatus)
				w.pass(10 * time.Second)
				f.open.Stop()
				w.pass(10 * time.Second)
				const reason = "relist: the server gives no resource version to watch from"
				w.wantTrace("added b@", "updated b@", "bookmark ", reason, "listed 1@", reason, "listed 1@")
			})
		})
	}
}

// TestFirstWatchIsStopped checks that the first watch of a fake is stopped if the sink
// refuses what comes with it.
func TestFirstWatchIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, "", fakeapi.Options{})
		w.sink.behind = 1
		w.opts.ListerWatcher = f
		w.start()
		w.pass(10 * time.Second)
		if f.watches < 2 {
			t.Fatalf("%d watches, want two", f.watches)
		}
		if !f.first.IsStopped() {
			t.Error("the first watch goes on beside the second")
		}
	})
}
