package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/internal/fakeapi"
)

// streamed is a stream of events, each some time after the one before.
type streamed struct {
	at    []time.Duration
	event func(i int) watch.Event // the i-th event
	every time.Duration           // the events behind the last of at; 0: there are none
}

// open returns a watch that ends at its timeout.
func (s streamed) open(ctx context.Context, opts metav1.ListOptions) watch.Interface {
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*opts.TimeoutSeconds)*time.Second)
	go func() {
		defer cancel()
		defer close(events)
		due := time.Duration(0)
		for i := 0; ; i++ {
			switch {
			case i < len(s.at):
				due = s.at[i]
			case s.every == 0:
				due = 24 * time.Hour
			default:
				due += s.every
			}
			select {
			case <-time.After(due - time.Since(began)):
			case <-ctx.Done():
				return
			case <-w.StopChan():
				return
			}
			select {
			case events <- s.event(i):
			case <-ctx.Done():
				return
			case <-w.StopChan():
				return
			}
		}
	}()
	return w
}

// at returns an event of a config map at a resource version.
func at(t watch.EventType, name string, rv int) watch.Event {
	obj := configMap(name)
	obj.ResourceVersion = fmt.Sprint(rv)
	return watch.Event{Type: t, Object: obj}
}

// TestColdStreamWithoutProgress checks streamed lists that are never whole. The list is
// made in pages once no initial event has come for 30 s, and so are all lists after it.
func TestColdStreamWithoutProgress(t *testing.T) {
	const tick = 10 * time.Second
	burst := make([]time.Duration, 3) // three events at once
	after := func(n int, changes func(i int) watch.Event) func(int) watch.Event {
		return func(i int) watch.Event {
			if i < n {
				return at(watch.Added, fmt.Sprintf("x%d", i), 10+i)
			}
			return changes(i)
		}
	}
	for name, c := range map[string]struct {
		streamed
		after time.Duration // when the list is made in pages; 0: 30 s
	}{
		"nothing":       {},
		"objects":       {streamed: streamed{at: burst, event: after(3, nil)}},
		"bookmarks":     {streamed: streamed{every: tick, event: func(int) watch.Event { return at(watch.Bookmark, "", 20) }}},
		"modifications": {streamed: streamed{every: tick, event: func(i int) watch.Event { return at(watch.Modified, "a", 20+i) }}},
		"deletions":     {streamed: streamed{every: tick, event: func(i int) watch.Event { return at(watch.Deleted, fmt.Sprint("d", i), 20+i) }}},
		"the same additions": {streamed: streamed{at: burst, every: tick, event: func(i int) watch.Event {
			return at(watch.Added, fmt.Sprintf("x%d", i%3), 10+i)
		}}},
		"objects, then bookmarks":     {streamed: streamed{at: burst, every: tick, event: after(3, func(int) watch.Event { return at(watch.Bookmark, "", 20) })}},
		"objects, then modifications": {streamed: streamed{at: burst, every: tick, event: after(3, func(i int) watch.Event { return at(watch.Modified, "x1", 20+i) })}},
		"objects, then an object that comes and goes": {streamed: streamed{at: burst, every: tick, event: after(3, func(i int) watch.Event {
			return at([]watch.EventType{watch.Deleted, watch.Added}[i%2], "x1", 20+i)
		})}},
		"a change, then other objects": {streamed: streamed{at: burst[:1], every: tick, event: func(i int) watch.Event {
			if i == 0 {
				return at(watch.Modified, "x", 20)
			}
			return at(watch.Added, fmt.Sprint("y", i), 20+i)
		}}},
		"a slow object, then changes": {
			streamed: streamed{at: []time.Duration{20 * time.Second}, every: tick, event: after(1, func(i int) watch.Event { return at(watch.Modified, "x0", 20+i) })},
			after:    50 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "", fakeapi.Options{})
				streams := 0
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents == nil {
						return w.server.WatchWithContext(ctx, opts)
					}
					streams++
					return c.open(ctx, opts), nil
				}})
				w.start()
				w.pass(time.Minute)
				want := c.after
				if want == 0 {
					want = 30 * time.Second
				}
				if got := w.caughtUpAfter(); got < want || got > want+time.Second {
					t.Errorf("caught up after %v, want %v at least, and at most a second more", got, want)
				}
				w.wantRequests("list limit=500", "watch 3")
				w.wantErrors(1, "nothing was heard")
				w.wantSame()

				w.server.Send(errorEvent(expired()))
				w.pass(time.Second)
				w.wantRequests("list limit=500", "watch 3")
				if streams != 1 {
					t.Errorf("%d streamed lists, want 1", streams)
				}
			})
		})
	}
}

// leavesUnanswered makes the server neither accept nor refuse the next streamed lists.
// The caller sets how many.
func (w *world) leavesUnanswered() (left *int) {
	left = new(int)
	w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		if opts.SendInitialEvents != nil && *left > 0 {
			*left--
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return w.server.WatchWithContext(ctx, opts)
	}})
	return left
}

// TestColdStreamUnanswered checks a server that neither accepts nor refuses a streamed
// list.
func TestColdStreamUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		*w.leavesUnanswered() = math.MaxInt
		w.start()
		w.pass(31 * time.Second)
		w.wantRequests("list limit=500", "watch 3")
		w.wantErrors(1, "nothing was heard")
		w.wantSame()
	})
}

// TestStreamUnansweredOnce checks that one streamed list without an answer does not end
// streaming: it may have waited in client-go's retries of 429. Two in a row do.
func TestStreamUnansweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		unanswered := w.leavesUnanswered()
		*unanswered = 1
		w.start()
		w.pass(31 * time.Second)
		w.wantRequests("list limit=500", "watch 3")
		relist := func() {
			w.server.Send(errorEvent(expired()))
			w.pass(time.Minute)
		}
		relist()
		w.wantRequests("watch stream")
		*unanswered = 2
		relist()
		w.wantRequests("list limit=500", "watch 3")
		relist()
		w.wantRequests("list limit=500", "watch 3")
		relist()
		if w.wantRequests("list limit=500", "watch 3"); *unanswered != 0 {
			t.Errorf("%d streamed lists were not requested", *unanswered)
		}
		*unanswered = 0
		relist()
		w.wantRequests("list limit=500", "watch 3")
		w.wantSame()
	})
}

// TestWarmUnanswered checks a server that answers lists, but neither accepts nor refuses
// watches.
func TestWarmUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.create("c")
		w.through(between{watch: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		w.start()
		w.pass(10 * time.Minute)
		w.wantSame()
		w.sink.mu.Lock()
		w.sink.errs = nil
		w.sink.mu.Unlock()
	})
}

// TestColdStreamSlow checks that a streamed list is not cut as long as objects come, nor
// a change between them.
func TestColdStreamSlow(t *testing.T) {
	t.Run("objects", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", fakeapi.Options{})
			for i := range 8 {
				w.create(fmt.Sprint("c", i))
			}
			w.server.Slow(25 * time.Second)
			w.start()
			w.pass(274 * time.Second)
			w.wantRequests("watch stream")
			w.pass(time.Second)
			w.wantTrace("relist: nothing stored yet", "listed 10@11", "caught up")
			w.wantRequests()
			w.wantErrors(0, "")
		})
	})
	t.Run("objects and changes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", fakeapi.Options{})
			w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				s := streamed{at: []time.Duration{10 * time.Second, 25 * time.Second}, every: 25 * time.Second, event: func(i int) watch.Event {
					switch i {
					case 0:
						return at(watch.Modified, "b", 3)
					case 1:
						return at(watch.Added, "a", 2)
					}
					e := at(watch.Bookmark, "", 3)
					e.Object.(metav1.Object).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
					return e
				}}
				return s.open(ctx, opts), nil
			}})
			w.start()
			w.pass(time.Minute)
			w.wantTrace("relist: nothing stored yet", "listed 2@3", "caught up")
			w.wantErrors(0, "")
		})
	})
}

// TestColdStreamOfCreations checks that a streamed list to which objects are added
// without end is made in pages at the timeout of the watch, whoever ends it.
func TestColdStreamOfCreations(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"ended": 0, "not ended": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "", fakeapi.Options{})
				streams := 0
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents == nil {
						return w.server.WatchWithContext(ctx, opts)
					}
					if streams++; timeout > 0 {
						*opts.TimeoutSeconds = int64(timeout.Seconds())
					}
					s := streamed{every: 10 * time.Second, event: func(i int) watch.Event { return at(watch.Added, fmt.Sprint("x", i), 10+i) }}
					return s.open(ctx, opts), nil
				}})
				w.start()
				w.until(2)
				if got := time.Since(w.began); got > 11*time.Minute {
					t.Errorf("pages after %v", got)
				}
				w.wantRequests("list limit=500", "watch 3")
				w.server.Send(errorEvent(expired()))
				w.pass(time.Second)
				if streams != 1 {
					t.Errorf("%d streamed lists, want 1", streams)
				}
			})
		})
	}
}

// TestStreamOfAnotherServer checks that lists are streamed again once another cluster
// answers, but not before.
func TestStreamOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		deaf, relist := true, ""
		w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if deaf && opts.SendInitialEvents != nil {
				return silence(ctx, opts, time.Hour), nil
			}
			return w.server.WatchWithContext(ctx, opts)
		}})
		w.opts.Verify = func(context.Context) (string, error) { return relist, nil }
		w.start()
		w.pass(time.Minute)
		w.wantRequests("list limit=500", "watch 3")
		deaf = false
		w.server.Send(errorEvent(expired()))
		w.pass(time.Minute)
		w.wantRequests("list limit=500", "watch 3")
		relist = "another cluster"
		w.server.Send(errorEvent(errors.New("gone away")))
		w.pass(time.Minute)
		w.wantRequests("watch stream")
	})
}

// TestColdStreamOfFake checks that a fake that does not say so, and sends objects but no
// end of a streamed list, is listed in a moment.
func TestColdStreamOfFake(t *testing.T) {
	for name, open := range map[string]func() watch.Interface{
		"FakeWatcher":         func() watch.Interface { return watch.NewFake() },
		"RaceFreeFakeWatcher": func() watch.Interface { return watch.NewRaceFreeFake() },
		"with an object": func() watch.Interface {
			w := watch.NewRaceFreeFake()
			w.Add(configMap("a"))
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "", fakeapi.Options{})
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents == nil {
						return w.server.WatchWithContext(ctx, opts)
					}
					return open(), nil
				}})
				w.start()
				w.pass(2 * time.Second)
				w.wantRequests("list limit=500", "watch 3")
				w.wantErrors(1, "nothing was heard")
				w.wantSame()
			})
		})
	}
}

// TestColdStreamOfStuckServer checks that a streamed list is not given up while the
// server does not answer pages either, and that it is taken if both come at once.
func TestColdStreamOfStuckServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.server.Hold()
		w.start()
		w.pass(3 * time.Minute)
		w.create("c")
		w.wantTrace("relist: nothing stored yet")
		w.server.Release()
		w.pass(0)
		w.wantTrace("listed 2@3", "caught up", "added c@4", "bookmark 4")
		w.wantRequests("watch stream", "list limit=500")
		w.wantErrors(0, "")
		w.wantSame()
		if n := w.server.Watches(); n != 1 {
			t.Errorf("%d watches are open, want 1", n)
		}
	})
}

// TestColdStreamAndPagesFail checks that a list fails if neither the stream comes nor a
// page, and that the stream is not given up for that.
func TestColdStreamAndPagesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.server.Hold()
		w.server.FailList(forbidden())
		w.start()
		w.pass(35 * time.Second)
		w.wantErrors(1, "no role")
		w.wantRequests("watch stream", "list limit=500", "watch stream")
		w.server.Release()
		w.pass(0)
		w.wantTrace("relist: nothing stored yet", "relist: nothing stored yet", "listed 2@3", "caught up")
		w.wantErrors(0, "")
	})
}
