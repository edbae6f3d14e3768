package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
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

// between is between the reflector and a server, like a proxy, a load balancer or a
// user's own client. A nil function passes requests through.
type between struct {
	*fakeapi.Server
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (b *between) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if b.list != nil {
		return b.list(ctx, opts)
	}
	return b.Server.ListWithContext(ctx, opts)
}

func (b *between) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if b.watch != nil {
		return b.watch(ctx, opts)
	}
	return b.Server.WatchWithContext(ctx, opts)
}

// through inserts b between the reflector and the server.
func (w *world) through(b between) {
	b.Server = w.server
	w.opts.ListerWatcher = &b
}

// silence returns a watch that is silent for d, or until its timeout.
func silence(ctx context.Context, opts metav1.ListOptions, d time.Duration) watch.Interface {
	if opts.TimeoutSeconds != nil {
		d = min(d, time.Duration(*opts.TimeoutSeconds)*time.Second)
	}
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		case <-w.StopChan():
		}
	}()
	return w
}

// TestColdStreamFails checks that the reflector lists if a streamed list fails. API
// servers whose etcd has no RequestWatchProgress answer each streamed list with a 500
// inside the stream and rely on that (k8s.io/apiserver, storage/cacher). Fake clients
// return errors of their own.
func TestColdStreamFails(t *testing.T) {
	internal := apierrors.NewInternalError(errors.New("the required storage feature is disabled"))
	_, foreign := strconv.Atoi("")
	for name, err := range map[string]error{
		"in the stream": fakeapi.InStream(internal), "as status": internal, "of no API server": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "", fakeapi.Options{})
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents != nil {
						w.server.FailWatch(err)
					}
					return w.server.WatchWithContext(ctx, opts)
				}})
				w.start()
				w.wantRequests("watch stream", "list limit=500", "watch 3")
				w.wantErrors(0, "")
				w.wantSame()

				// The next list is streamed again, if that works by then.
				w.server.Send(errorEvent(expired()))
				w.pass(time.Second)
				w.wantRequests("watch stream", "list limit=500", "watch 3")
			})
		})
	}
}

// TestColdStreamWithoutEnd checks a client that drops bookmarks and so never gets the end
// of a streamed list.
func TestColdStreamWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.AllowWatchBookmarks = false
			return w.server.WatchWithContext(ctx, opts)
		}})
		w.start()
		w.pass(time.Minute)
		w.wantRequests("watch stream", "list limit=500", "watch 3")
		w.wantErrors(1, "nothing was heard")
		w.wantSame()
	})
}

// TestColdStreamWithDeletions checks that changes that are sent together with the initial
// events are applied. Servers before Kubernetes 1.31 send them before the final bookmark.
func TestColdStreamWithDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		streams := 0
		w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil {
				return w.server.WatchWithContext(ctx, opts)
			}
			streams++
			at := func(name, rv string) *v1.ConfigMap {
				obj := configMap(name)
				obj.ResourceVersion = rv
				return obj
			}
			end := at("", "5")
			end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			stream := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
			stream.Add(at("a", "2"))
			stream.Add(at("b", "3"))
			stream.Delete(at("a", "4"))
			stream.Modify(at("b", "5"))
			stream.Action(watch.Bookmark, end)
			return stream, nil
		}})
		w.delete("a")
		w.update("b")
		w.start()
		w.pass(time.Minute)
		w.wantErrors(0, "")
		w.wantTrace("relist: nothing stored yet", "listed 1@5", "caught up")
		w.wantSame()
		if streams != 1 {
			t.Errorf("%d streamed lists, want 1", streams)
		}
	})
}

// TestContinuationsExpire checks a list that takes longer than etcd keeps its history.
func TestContinuationsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{NoWatchList: true})
		w.opts.PageSize = 1
		w.through(between{list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if opts.Continue != "" {
				w.delete("a") // the first page contained it
				return nil, expired()
			}
			return w.server.ListWithContext(ctx, opts)
		}})
		w.start()
		w.wantRequests("watch stream", "list limit=1", "list limit=0", "watch 4")
		w.wantErrors(0, "")
		w.wantSame()
	})
}

// TestListIgnoresContext checks clients that ignore the context, like generated clients
// before client-go v0.33.
func TestListIgnoresContext(t *testing.T) {
	for _, what := range []string{"list", "watch"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "", fakeapi.Options{NoWatchList: true})
				answer := make(chan struct{})
				late := watch.NewFake()
				w.through(between{
					list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
						if what == "list" {
							<-answer
						}
						return w.server.ListWithContext(t.Context(), opts)
					},
					watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						if what == "watch" {
							<-answer
						}
						return late, nil
					},
				})
				w.opts.ListerWatcher = onlyPages{w.opts.ListerWatcher.(*between)}
				w.start()
				begin := time.Now()
				w.stop()
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("Run returned %v after its context's end", took)
				}
				close(answer)
				synctest.Wait()
				if what == "watch" && !late.IsStopped() {
					t.Error("the watch that came late was not stopped")
				}
			})
		})
	}
}

// onlyPages is a client that does not support streamed lists.
type onlyPages struct{ *between }

func (onlyPages) IsWatchListSemanticsUnSupported() bool { return true }

// TestWarmServerLags checks a start in which lists go to one API server, and watches to
// another one whose watch cache lags for a while: it sends no event and no bookmark above
// the start.
func TestWarmServerLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoWatchList: true})
		w.delete("a")
		w.create("c")
		begin := time.Now()
		w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil && time.Since(begin) < 10*time.Second {
				return silence(ctx, opts, time.Hour), nil
			}
			return w.server.WatchWithContext(ctx, opts)
		}})
		w.start()
		for w.caughtUpAfter() < 0 {
			w.pass(100 * time.Millisecond)
		}
		w.wantSame()
	})
}

// TestWarmLatency checks a distant server that ends watches from an expired resource
// version without an error: a watch begins when the server has accepted it.
func TestWarmLatency(t *testing.T) {
	for _, latency := range []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond, 2200 * time.Millisecond, 20 * time.Second} {
		t.Run(latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", fakeapi.Options{NoWatchList: true})
				w.delete("a")
				w.create("c")
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					select {
					case <-time.After(latency):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					if opts.ResourceVersion == "3" {
						return silence(ctx, opts, 0), nil
					}
					return w.server.WatchWithContext(ctx, opts)
				}})
				w.start()
				for range 3600 {
					if w.caughtUpAfter() >= 0 {
						w.wantSame()
						return
					}
					w.pass(time.Second)
				}
				t.Errorf("not caught up after an hour and %d requests", len(w.newRequests()))
			})
		})
	}
}

// TestWarmCutByProxy checks a start during a rolling restart, followed by a proxy that
// cuts each watch after 30 seconds, if only the bookmark before the timeout of a watch
// shows that the reflector has caught up.
func TestWarmCutByProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.server.Advance()
		n := 0
		w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			cut := 30 * time.Second
			if n++; n <= 5 {
				cut = 1500 * time.Millisecond
			}
			inner, err := w.server.WatchWithContext(ctx, opts)
			if err == nil {
				time.AfterFunc(cut, inner.Stop)
			}
			return inner, err
		}})
		w.start()
		w.pass(10 * time.Minute)
		if w.caughtUpAfter() < 0 {
			t.Errorf("not caught up after ten minutes: %q", w.newRequests())
		}
	})
}

// TestWarmCutInSilence checks that the reflector lists if each watch ends before it
// delivers anything, or if no watch ends.
func TestWarmCutInSilence(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"cut": 1500 * time.Millisecond, "never ended": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", fakeapi.Options{NoWatchList: true})
				w.server.Advance()
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					opts.TimeoutSeconds = nil // the timeout is ignored
					return silence(ctx, opts, lasts), nil
				}})
				w.start()
				w.pass(20 * time.Minute)
				if w.caughtUpAfter() < 0 {
					t.Errorf("not caught up after twenty minutes, in %d requests", len(w.newRequests()))
				}
			})
		})
	}
}

// TestRewoundInSilence checks that a rewind between two watches is detected, although the
// next watch starts in the future and so is silent.
func TestRewoundInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		n := 0
		w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if n++; n == 2 {
				w.rewind("3") // no watch is open
				w.create("other")
			}
			return w.server.WatchWithContext(ctx, opts)
		}})
		w.start()
		for range 10 {
			w.update("a")
		}
		w.pass(time.Hour)
		w.wantSame()
	})
}

// TestReplacedCluster checks that the reflector detects that another cluster with a
// longer history answers at the same address, and later the first cluster again.
func TestReplacedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		var mu sync.Mutex // protects server
		server, first := w.server, w.server
		answering := func() *fakeapi.Server {
			mu.Lock()
			defer mu.Unlock()
			return server
		}
		other := fakeapi.New(&v1.ConfigMap{}, &v1.ConfigMapList{}, fakeapi.Options{})
		for i := range 20 {
			if _, err := other.Create(configMap(fmt.Sprintf("x%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		w.through(between{
			list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return answering().ListWithContext(ctx, opts)
			},
			watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return answering().WatchWithContext(ctx, opts)
			},
		})
		was := first
		w.opts.Verify = func(context.Context) (string, error) {
			if now := answering(); now != was {
				was = now
				return "another cluster", nil
			}
			return "", nil
		}
		w.start()
		for _, next := range []*fakeapi.Server{other, first} {
			w.server.Down()
			w.pass(30 * time.Second)
			mu.Lock()
			server = next
			mu.Unlock()
			w.server, w.requests = next, len(next.Requests())
			next.Up()
			w.pass(time.Minute)
			w.wantSame()
		}
	})
}

// TestLowerResourceVersions checks that an event with a lower resource version is
// applied, and that a probe decides whether history was rewound.
func TestLowerResourceVersions(t *testing.T) {
	send := func(w *world, name, rv string) {
		obj := configMap(name)
		obj.ResourceVersion = rv
		w.server.Send(watch.Event{Type: watch.Modified, Object: obj})
		w.pass(time.Millisecond)
	}
	t.Run("a server that lists by numbers of its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := watching(t)
			send(w, "a", "100")
			send(w, "b", "50")
			w.wantRequests("list limit=1")
			send(w, "a", "20")
			send(w, "b", "10")
			w.wantRequests()
			w.wantErrors(0, "")
			w.wantTrace("updated a@100", "updated b@", "updated a@", "updated b@")
			if got := w.LastSyncResourceVersion(); got != "10" {
				t.Errorf("got resource version %s, want that of the last event, 10", got)
			}
		})
	})
	t.Run("a server that sends an old state now and then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := watching(t)
			send(w, "a", "2")
			w.wantRequests("list limit=1")
			w.create("c")
			w.pass(0)
			// Events in order are stored with their resource versions.
			w.wantTrace("updated a@", "added c@4")
			for range 10 {
				send(w, "a", "2")
			}
			w.wantRequests("list limit=1", "list limit=1")
			w.wantErrors(0, "")
		})
	})
	t.Run("a history that was rewound under a watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := watching(t)
			send(w, "a", "9") // while the server is at 3
			send(w, "a", "2")
			w.wantRequests("list limit=1", "watch stream")
			w.wantErrors(1, "rewound")
			w.wantSame()
		})
	})
	t.Run("without a probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", fakeapi.Options{})
			w.opts.NoProbe = true
			w.start()
			send(w, "a", "9")
			send(w, "a", "2")
			w.server.CloseWatches()
			w.pass(10 * time.Second)
			w.wantRequests("watch stream", "watch 2")
			w.wantErrors(1, "before its timeout")
		})
	})
}
