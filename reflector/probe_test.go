package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/reflector"
)

// limited makes the lists of a world wait for a limit of one request per minute, whose
// first one is used up. streams, which may be nil, is called with streamed lists.
func (w *world) limited(streams func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
	limiter := flowcontrol.NewTokenBucketRateLimiter(1.0/60, 1)
	limiter.Accept()
	w.through(between{
		list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if err := limiter.Wait(ctx); err != nil {
				return nil, fmt.Errorf("client rate limiter Wait returned an error: %w", err)
			}
			return w.server.ListWithContext(ctx, opts)
		},
		watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil && streams != nil {
				return streams(ctx, opts)
			}
			return w.server.WatchWithContext(ctx, opts)
		},
	})
}

// TestProbeBehindRateLimit checks that the probe does not wait for the client's limit of
// requests per second, if the server has streamed lists, and finds out the same.
func TestProbeBehindRateLimit(t *testing.T) {
	const stream = "watch stream"
	silent := func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		return silence(ctx, opts, time.Hour), nil
	}
	for name, c := range map[string]struct {
		server  fakeapi.Options
		while   func(*world)
		streams func(*world) func(context.Context, metav1.ListOptions) (watch.Interface, error)
		want    []string
		after   time.Duration // when it has caught up
	}{
		"nothing has changed": {want: []string{stream, "watch 3"}},
		"changes": {
			while: func(w *world) { w.update("a") },
			want:  []string{stream, "watch 3 for 3s", "watch 4"},
		},
		"only the resource version has changed": {
			while: func(w *world) { w.server.Advance() },
			want:  []string{stream, "watch 3 for 3s", "watch 4"},
			after: 2 * time.Second,
		},
		"rewound": {
			while: func(w *world) { w.rewind("2") },
			want:  []string{stream, stream},
		},
		"no streamed lists": {
			server: fakeapi.Options{NoWatchList: true},
			want:   []string{stream, "list limit=1", "watch 3"},
			after:  time.Minute,
		},
		"streamed lists that send nothing": {
			streams: func(*world) func(context.Context, metav1.ListOptions) (watch.Interface, error) { return silent },
			want:    []string{"list limit=1", "watch 3"},
			after:   time.Minute,
		},
		"streamed lists that fail": {
			streams: func(w *world) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					w.server.FailWatch(fakeapi.InStream(apierrors.NewInternalError(errors.New("x"))))
					return w.server.WatchWithContext(ctx, opts)
				}
			},
			want:  []string{stream, "list limit=1", "watch 3"},
			after: time.Minute,
		},
		"a ListerWatcher with a selector of its own": {
			streams: func(w *world) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					opts.LabelSelector = ""
					return w.server.WatchWithContext(ctx, opts)
				}
			},
			want:  []string{stream, "list limit=1", "watch 3"},
			after: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", c.server)
				if c.while != nil {
					c.while(w)
				}
				if c.streams != nil {
					w.limited(c.streams(w))
				} else {
					w.limited(nil)
				}
				w.start()
				w.pass(90 * time.Second)
				w.wantRequests(c.want...)
				if got := w.caughtUpAfter().Round(time.Second); got != c.after {
					t.Errorf("caught up after %v, want %v", got, c.after)
				}
				w.wantErrors(0, "")
				w.wantSame()
			})
		})
	}
}

// TestProbeShowsNoContent checks that no log has what client-go's stream decoder says of
// an object that it cannot decode: it may be a part of the object.
func TestProbeShowsNoContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.limited(func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w.server.FailWatch(fakeapi.InStream(decoding("unable to decode watch event: secret is no number")))
			return w.server.WatchWithContext(ctx, opts)
		})
		var mu sync.Mutex
		var lines []string
		w.logger = funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}, funcr.Options{Verbosity: 10})
		w.start()
		w.pass(90 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		all := strings.Join(lines, "\n")
		if !strings.Contains(all, "unable to decode watch event") || strings.Contains(all, "secret") {
			t.Errorf("logged\n%s", all)
		}
	})
}

// TestProbeStreamsNoMore checks that a server whose streamed lists fail is not asked for
// one before each watch.
func TestProbeStreamsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoWatchList: true})
		w.limited(nil)
		w.start()
		for range 10 {
			w.pass(30 * time.Second)
			w.server.CloseWatches()
		}
		streams, requests := 0, w.newRequests()
		for i, request := range requests[1:] {
			if requests[i] == "watch stream" && request == "list limit=1" {
				streams++
			}
		}
		if streams != 2 {
			t.Errorf("%d probes by a streamed list, want 2: %q", streams, requests)
		}
	})
}

// TestSmallBehindRateLimit checks that a small collection is compared whole although its
// list would wait, unless it has grown. Where nothing differs, the streamed list is also
// the first watch; where something does, a watch from the stored resource version brings
// all that has happened.
func TestSmallBehindRateLimit(t *testing.T) {
	const stream = "watch stream"
	for name, c := range map[string]struct {
		while    func(*world)
		compared int // objects; -1: not compared
		want     []string
		after    time.Duration // when it has caught up
	}{
		"nothing has changed": {compared: -1, want: []string{stream, "watch 3"}},
		"only the resource version has changed": {
			while: func(w *world) { w.server.Advance() }, compared: 2, want: []string{stream, "watch 4"},
		},
		"changed": {
			while: func(w *world) { w.update("a"); w.server.Advance() }, compared: 2,
			want: []string{stream, "watch 3 for 3s", "watch 5"}, after: 2 * time.Second,
		},
		"grown": {
			while: func(w *world) {
				for i := range 500 {
					w.create(fmt.Sprint("c", i))
				}
			},
			compared: -1, want: []string{stream, fmt.Sprint("list limit=", reflector.WholeLimit), "watch 3 for 3s", "watch 503"}, after: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", fakeapi.Options{})
				if c.while != nil {
					c.while(w)
				}
				w.limited(nil)
				w.opts.IsSmall = func() bool { return true }
				compared := -1
				w.opts.Compare = func(_ context.Context, list runtime.Object) (bool, string, error) {
					compared = meta.LenList(list)
					return name != "changed", "", nil
				}
				w.start()
				w.pass(2 * time.Minute)
				if compared != c.compared {
					t.Errorf("compared %d objects, want %d", compared, c.compared)
				}
				w.wantRequests(c.want...)
				if got := w.caughtUpAfter().Round(time.Second); got != c.after {
					t.Errorf("caught up after %v, want %v", got, c.after)
				}
				w.update("b")
				w.pass(time.Second)
				w.wantRequests()
				w.wantErrors(0, "")
				w.wantSame()
			})
		})
	}
}
