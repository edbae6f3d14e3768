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

// between stands between the reflector and a server: a proxy, a load balancer, a client
// of one's own. What is nil goes through.
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

// through puts a list and a watch function of one's own between the reflector and the
// server.
func (w *world) through(b between) {
	b.Server = w.server
	w.opts.ListerWatcher = &b
}

// silence is a watch that brings nothing for so long, or until its timeout.
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

// TestColdStreamFails: API servers whose etcd has no RequestWatchProgress answer each
// streamed list with a 500 inside the stream, and count on clients that list then
// (k8s.io/apiserver, storage/cacher). Fake clients answer with errors of their own.
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

				// The next list is streamed, where that works by then.
				w.server.Send(errorEvent(expired()))
				w.pass(time.Second)
				w.wantRequests("watch stream", "list limit=500", "watch 3")
			})
		})
	}
}

// TestColdStreamWithoutEnd: a client that drops bookmarks never gets the end of a
// streamed list.
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

// TestColdStreamWithDeletions: until Kubernetes 1.31 what changed while the initial
// events were sent came before the bookmark that ends them.
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

// TestContinuationsExpire: a list that takes longer than etcd keeps its history.
func TestContinuationsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{NoWatchList: true})
		w.opts.PageSize = 1
		w.through(between{list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if opts.Continue != "" {
				w.delete("a") // which the first page had
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

// TestListIgnoresContext: generated clients before client-go v0.33 took no context.
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

// onlyPages is a client that has no streamed lists.
type onlyPages struct{ *between }

func (onlyPages) IsWatchListSemanticsUnSupported() bool { return true }

// TestWarmServerLags: lists go to one API server, watches to one whose watch cache is
// behind for a while: neither an event nor a bookmark above the start comes from it.
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

// TestWarmLatency: a server ends watches from an expired resource version without a
// word, and is far away: a watch begins when the server has accepted it.
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

// TestWarmCutByProxy: a start in a rolling restart, and then a proxy that cuts each
// watch after 30 seconds, while only the bookmark before a watch's timeout tells.
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

// TestWarmCutInSilence: something ends each watch before it has brought anything, or lets
// none end: a list says what there is.
func TestWarmCutInSilence(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"cut": 1500 * time.Millisecond, "never ended": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", fakeapi.Options{NoWatchList: true})
				w.server.Advance()
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					opts.TimeoutSeconds = nil // it keeps none
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

// TestRewoundInSilence: history is rewound between the end of a watch and the next one,
// which is from the future then and silent.
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

// TestReplacedCluster: another cluster answers behind the same address, with a longer
// history, and then the first one again.
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

// TestLowerResourceVersions: an event is applied whatever its resource version is, and a
// probe says whether history was rewound.
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
			w.wantTrace("updated a@", "added c@4") // what comes in order is stored with its resource version
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
			send(w, "a", "9") // and the server is at 3
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
