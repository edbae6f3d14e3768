package reflector_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/internal/fakeapi"
)

// cutting returns a watch that delivers n events of another one, each after a delay, and
// then ends. n = 0 is no limit.
func cutting(ctx context.Context, inner watch.Interface, n int, each time.Duration) watch.Interface {
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer inner.Stop()
		for i := 0; n == 0 || i < n; i++ {
			select {
			case e, open := <-inner.ResultChan():
				if !open {
					return
				}
				select {
				case <-time.After(each):
				case <-w.StopChan():
					return
				}
				select {
				case events <- e:
				case <-w.StopChan():
					return
				}
			case <-ctx.Done():
				return
			case <-w.StopChan():
				return
			}
		}
	}()
	return w
}

// TestBehindServerThatCuts checks that a reflector that is many events behind lists if
// the watches close the gap more slowly than a list would, and only then.
func TestBehindServerThatCuts(t *testing.T) {
	for name, c := range map[string]struct {
		behind, perWatch int
		each             time.Duration
		objects          int // that are stored; 0: unknown
		outage           bool
		lists            bool
		within           time.Duration
	}{
		"30 s a watch":                    {behind: 20001, perWatch: 100, each: 300 * time.Millisecond, lists: true, within: 4 * time.Minute},
		"300 ms a watch":                  {behind: 20001, perWatch: 100, each: 3 * time.Millisecond, lists: true, within: 2 * time.Minute},
		"many objects":                    {behind: 20001, perWatch: 100, each: 300 * time.Millisecond, objects: 20001, lists: true, within: 4 * time.Minute},
		"slow, but never cut":             {behind: 20001, each: 300 * time.Millisecond, lists: true, within: 11 * time.Minute},
		"a small gap":                     {behind: 200, perWatch: 100, each: 300 * time.Millisecond, within: 2 * time.Minute},
		"fast watches":                    {behind: 2000, perWatch: 100, each: time.Millisecond, within: time.Minute},
		"a list would take longer":        {behind: 1000, perWatch: 100, each: 300 * time.Millisecond, objects: 100000, within: 10 * time.Minute},
		"fast watches, and a long outage": {behind: 2000, perWatch: 100, each: time.Millisecond, outage: true, within: time.Hour},
	} {
		for _, running := range []bool{false, true} {
			t.Run(strings.TrimSuffix(name+map[bool]string{true: ", running"}[running], " "), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, "3", fakeapi.Options{})
					if c.objects > 0 {
						w.opts.Len = func() int { return c.objects }
					}
					var slow atomic.Bool
					watches := 0
					w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						inner, err := w.server.WatchWithContext(ctx, opts)
						if err != nil || !slow.Load() {
							return inner, err
						}
						if watches++; c.outage && watches == 10 {
							w.server.Down()
							time.AfterFunc(20*time.Minute, w.server.Up)
						}
						return cutting(ctx, inner, c.perWatch, c.each), nil
					}})
					if running {
						w.start()
						w.server.Down()
					}
					last := ""
					for range c.behind {
						last = w.update("a")
					}
					slow.Store(true)
					began := time.Now()
					if running {
						w.server.Up()
					} else {
						w.start()
					}
					for w.LastSyncResourceVersion() != last && time.Since(began) < 2*time.Hour {
						w.pass(time.Second)
					}
					if got := time.Since(began); got > c.within {
						t.Errorf("caught up after %v, want at most %v", got, c.within)
					}
					if w.caughtUpAfter() < 0 {
						t.Error("the sink was not told that the reflector has caught up")
					}
					listed := slices.ContainsFunc(w.sink.trace, func(line string) bool { return strings.HasPrefix(line, "relist: ") })
					if listed != c.lists {
						t.Errorf("listed: %v, want %v", listed, c.lists)
					}
					w.wantSame()
				})
			})
		}
	}
}

// TestBehindWhileListsFail checks that watches go on that catch up more slowly than a
// list would, while the server fails that list.
func TestBehindWhileListsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.through(between{
			list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				if opts.Limit != 1 {
					return nil, failures{}.err()
				}
				return w.server.ListWithContext(ctx, opts)
			},
			watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				if opts.SendInitialEvents != nil {
					return nil, failures{}.err()
				}
				inner, err := w.server.WatchWithContext(ctx, opts)
				if err != nil {
					return inner, err
				}
				return cutting(ctx, inner, 100, 30*time.Millisecond), nil
			},
		})
		last := ""
		for range 20_001 {
			last = w.update("a")
		}
		w.start()
		w.pass(30 * time.Minute)
		if got := w.LastSyncResourceVersion(); got != last {
			t.Errorf("after half an hour at %s of %s", got, last)
		}
	})
}

// TestQuietIsNotBehind checks that the silence after the last event of a watch counts as
// no time spent in catching up.
func TestQuietIsNotBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
		w.start()
		w.pass(time.Minute)
		w.server.Down()
		w.update("a")
		w.server.Advance()
		w.server.Up()
		trace := func() []string {
			w.sink.mu.Lock()
			defer w.sink.mu.Unlock()
			return slices.Clone(w.sink.trace)
		}
		before := len(trace())
		w.pass(20 * time.Minute)
		for _, line := range trace()[before:] {
			if strings.HasPrefix(line, "relist") {
				t.Error(line)
			}
		}
	})
}
