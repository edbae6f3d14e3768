package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

func TestColdByStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.start()
		w.wantRequests("watch stream")
		w.wantTrace("relist: nothing stored yet", "listed 2@3", "caught up")

		// The stream continues as the watch.
		w.create("c")
		w.update("a")
		w.delete("b")
		w.pass(time.Second)
		w.wantRequests()
		w.wantTrace("added c@4", "updated a@5", "deleted b@6")
		w.wantSame()
		if got := w.LastSyncResourceVersion(); got != "6" {
			t.Errorf("got resource version %s, want 6", got)
		}

		// It ends like any watch: without a probe.
		w.until(1)
		w.wantRequests("watch 6")
		w.wantErrors(0, "")
	})
}

func TestColdByPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{NoWatchList: true})
		w.opts.PageSize = 2
		w.sink.checkpoint.Reason = "the file was damaged"
		for i := range 3 {
			w.create(fmt.Sprintf("c%d", i))
		}
		w.start()
		w.wantRequests("watch stream", "list limit=2", "list more", "list more", "watch 6")
		w.wantTrace("relist: the file was damaged", "listed 5@6", "caught up")
		w.delete("a")
		w.pass(0)
		w.wantTrace("deleted a@7")
		w.wantSame()
		w.wantErrors(0, "")
		if got := w.Status(); got.Lists != 1 || got.Listed != 5 || got.LastError != "" {
			t.Errorf("got status %+v, want one list of 5 objects", got)
		}
	})
}

// TestColdStreamBreaks checks that a stream that ends without its bookmark is tried
// twice, and that after an error before the first object pages follow at once.
func TestColdStreamBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.server.FailWatch(fakeapi.ErrCloseAtOnce, fakeapi.ErrCloseAtOnce)
		w.start()
		w.pass(10 * time.Second)
		w.wantRequests("watch stream", "watch stream", "list limit=500", "watch 3")
		w.wantErrors(2, "ended before it was whole")
		w.wantSame()
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.server.FailWatch(fakeapi.InStream(forbidden()))
		w.start()
		w.wantRequests("watch stream", "list limit=500", "watch 3")
		w.wantSame()
	})
}

// TestColdStreamRefusedLate checks that objects from a failed stream do not stay if they
// are deleted before the list in pages.
func TestColdStreamRefusedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.server.Slow(time.Second)
		w.start()
		w.pass(1500 * time.Millisecond) // a came, b and the bookmark did not
		w.delete("a")
		w.server.Slow(0)
		w.server.Send(errorEvent(forbidden()))
		w.pass(10 * time.Second)
		w.wantRequests("watch stream", "watch stream")
		w.wantTrace("relist: nothing stored yet", "relist: nothing stored yet", "listed 1@4", "caught up")
		w.wantErrors(1, "no role")
		w.wantSame()
	})
}

// TestColdStreamStalls checks that a silent streamed list is abandoned.
func TestColdStreamStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.opts.ListerWatcher = &deafServer{Server: w.server}
		w.start()
		w.pass(31 * time.Second)
		w.wantErrors(1, "nothing was heard")
		w.wantSame()
	})
}

func TestWarmWithNothingMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		if got := w.caughtUpAfter(); got != 0 {
			t.Errorf("caught up after %v, want at once", got)
		}
		w.wantErrors(0, "")
		w.wantSame()
	})
}

func TestWarmWithMissedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.create("c")
		w.delete("a")
		w.start()
		w.wantRequests("list limit=1", "watch 3 for 3s")
		w.wantTrace("added c@4", "deleted a@5", "caught up")
		w.wantSame()
		w.pass(10 * time.Second)
		w.wantRequests("watch 5") // no probe: the short watch reached its timeout
		w.wantTrace("bookmark 5")
	})
}

// anew is a server that is watched from its present state, whatever is asked for, as by a
// ListerWatcher that sets ResourceVersion to 0, or passes no options on.
type anew struct{ *fakeapi.Server }

func (s anew) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents == nil {
		opts.ResourceVersion = "0"
	}
	return s.Server.WatchWithContext(ctx, opts)
}

// TestWarmFromPresentState checks that a watch which begins with the present state, and
// tells of no deletion before it, is found out: the collection is listed.
func TestWarmFromPresentState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.create("c")
		w.delete("a")
		w.opts.ListerWatcher = anew{w.server}
		w.start()
		w.pass(time.Minute)
		w.wantSame()
		if w.caughtUpAfter() < 0 {
			t.Error("not caught up")
		}
		if status := w.Status(); status.Lists != 1 {
			t.Errorf("%d lists, want one: %+v", status.Lists, status)
		}
	})
}

// TestWarmBookmark checks a start in which the server is ahead without an event, so that
// only the bookmark before the watch's timeout shows that nothing was missed.
func TestWarmBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.server.Advance()
		w.start()
		w.pass(1900 * time.Millisecond)
		w.wantTrace()
		w.pass(10 * time.Second)
		w.wantTrace("bookmark 4", "caught up")
		w.wantRequests("list limit=1", "watch 3 for 3s", "watch 4")
		if got := w.caughtUpAfter(); got != 2*time.Second {
			t.Errorf("caught up after %v, want 2s", got)
		}
	})
}

// TestWarmBelowNow checks that an event or a bookmark below now does not end catching up.
func TestWarmBelowNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
		w.create("c")
		w.server.Advance()
		w.start()
		bookmark := configMap("")
		w.wantTrace("added c@4")
		bookmark.ResourceVersion = "4"
		w.server.Send(watch.Event{Type: watch.Bookmark, Object: bookmark.DeepCopy()})
		w.pass(0)
		w.wantTrace("bookmark 4")
		bookmark.ResourceVersion = "5"
		w.server.Send(watch.Event{Type: watch.Bookmark, Object: bookmark})
		w.pass(0)
		w.wantTrace("bookmark 5", "caught up")
	})
}

// TestWarmOverSlowLink checks that a watch that ends with a part of the missed events and
// without a bookmark is followed by one with twice the timeout.
func TestWarmOverSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		for i := range 60 {
			w.create(fmt.Sprintf("c%d", i))
		}
		w.server.Slow(time.Second * 9 / 10)
		w.start()
		w.pass(53 * time.Second)
		if got := w.caughtUpAfter(); got >= 0 {
			t.Errorf("caught up after %v, with a part of what was missed", got)
		}
		w.server.Slow(0)
		w.pass(time.Second)
		if got := w.caughtUpAfter(); got < 53*time.Second {
			t.Errorf("caught up after %v, want more than 53s", got)
		}
		w.wantRequests("list limit=1", "watch 3 for 3s", "list limit=1", "watch 6 for 6s", "list limit=1", "watch 12 for 12s",
			"list limit=1", "watch 25 for 24s", "list limit=1", "watch 51 for 48s")
		w.wantSame()
	})
}

// TestWarmWatchesCutShort checks that a watch that ends before its timeout is followed by
// a backoff, a probe and a watch with twice the timeout, up to a minute.
func TestWarmWatchesCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
		w.create("c")
		w.server.Advance()
		w.start()
		w.wantRequests("list limit=1", "watch 3 for 3s")
		for _, seconds := range []int{6, 12, 24, 48, 60, 60} {
			w.pass(1500 * time.Millisecond)
			w.server.CloseWatches()
			w.until(2)
			w.wantRequests("list limit=1", fmt.Sprintf("watch 4 for %ds", seconds))
		}
		w.wantTrace("added c@4")
		w.wantErrors(6, "before its timeout")
	})
}

// TestWarmRefusedWatch checks that a watch that the server did not accept does not change
// the timeout.
func TestWarmRefusedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.server.Advance()
		w.server.FailWatch(tooManyRequests(1), tooManyRequests(1))
		w.start()
		w.until(6)
		w.wantRequests("list limit=1", "watch 3 for 3s", "list limit=1", "watch 3 for 3s", "list limit=1", "watch 3 for 3s")
		w.wantErrors(2, "slow down")
	})
}

// TestWarmWithoutBookmarks checks that the reflector lists after two watches that lasted
// to their timeout without a bookmark, the second without any event: a server whose watch
// cache lags is as silent as one without bookmarks.
func TestWarmWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
		w.create("c")
		w.server.Advance()
		w.start()
		w.pass(8900 * time.Millisecond)
		w.wantTrace("added c@4")
		w.pass(200 * time.Millisecond)
		w.wantTrace("relist: the server does not say when a watch has caught up", "listed 3@5", "caught up")
		w.wantRequests("list limit=1", "watch 3 for 3s", "list limit=1", "watch 4 for 6s", "watch stream")
		w.wantErrors(0, "")
		w.wantSame()
	})
}

// TestWarmAfterLastWrite checks a start after which nothing is written for a while, if
// the last write was an event that the watch selects out, such as one in another
// namespace. A server then sends no bookmark: it has replayed that event, and has nothing
// newer. After another write, of any resource, a consistent list brings its watch cache
// up to date.
func TestWarmAfterLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.create("c")
		last, cached := w.server.Advance(), ""
		w.through(between{
			list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				cached = w.server.RV()
				return w.server.ListWithContext(ctx, opts)
			},
			watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				opts.AllowWatchBookmarks = cached != last
				return w.server.WatchWithContext(ctx, opts)
			},
		})
		w.start()
		w.pass(2 * time.Second)
		w.wantTrace("added c@4")
		w.server.Advance()
		w.pass(6500 * time.Millisecond)
		w.wantTrace("bookmark 6", "caught up")
		w.wantRequests("list limit=1", "watch 3 for 3s", "list limit=1", "watch 4 for 6s")
		w.wantErrors(0, "")
	})
}

// TestWarmQuiet checks that after a watch that delivered nothing at all, which was not
// cut short, the next one has the same timeout.
func TestWarmQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
		w.server.Advance()
		w.start()
		w.pass(5900 * time.Millisecond)
		w.wantTrace()
		w.pass(200 * time.Millisecond)
		w.wantTrace("relist: the server does not say when a watch has caught up", "listed 2@4", "caught up")
		w.wantRequests("list limit=1", "watch 3 for 3s", "list limit=1", "watch 3 for 3s", "watch stream")
	})
}

// TestWarmWithEmptyBookmarks checks that bookmarks that say nothing are none: the server
// never says when a watch has caught up.
func TestWarmWithEmptyBookmarks(t *testing.T) {
	for name, rv := range map[string]string{"no resource version": "", "the held one": "3"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
				w.server.Advance()
				bookmark := configMap("")
				bookmark.ResourceVersion = rv
				w.through(between{watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					from, err := w.server.WatchWithContext(ctx, opts)
					if opts.SendInitialEvents == nil {
						w.server.Send(watch.Event{Type: watch.Bookmark, Object: bookmark.DeepCopy()})
					}
					return from, err
				}})
				w.start()
				w.pass(time.Minute)
				if got := w.caughtUpAfter(); got < 0 {
					t.Error("it has not caught up")
				}
				w.wantSame()
			})
		})
	}
}

// TestWarmWithoutBookmarksBusy checks that catching up continues as long as watches that
// last to their timeout deliver events.
func TestWarmWithoutBookmarksBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{NoBookmarks: true})
		for range 100 {
			w.update("a")
		}
		w.server.Slow(2 * time.Second)
		w.start()
		w.pass(40 * time.Second)
		if got := w.caughtUpAfter(); got >= 0 {
			t.Errorf("caught up after %v, with a part of what was missed", got)
		}
	})
}

// TestWarmServerDown checks that the stored objects are kept until the server is back.
func TestWarmServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.create("c")
		w.server.Down()
		w.start()
		w.pass(5 * time.Minute)
		w.wantTrace()
		for _, r := range w.newRequests() {
			if r != "list limit=1" {
				t.Errorf("%s of a server that is down", r)
			}
		}
		if w.Status().LastError == "" {
			t.Error("status has no error of a server that is down")
		}
		w.server.Up()
		w.pass(2 * time.Minute)
		w.wantRequests("list limit=1", "watch 3 for 3s", "watch 4")
		w.wantTrace("added c@4", "caught up", "bookmark 4")
		if got := w.Status().LastError; got != "" {
			t.Errorf("got %q in the status of a server that is up", got)
		}
		w.wantSame()
	})
}

func TestColdServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		w.server.Down()
		w.start()
		w.pass(time.Minute)
		if w.caughtUpAfter() >= 0 {
			t.Error("caught up with a server that is down")
		}
		w.server.Up()
		w.pass(2 * time.Minute)
		w.wantSame()
	})
}

func TestWarmRewound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "5", fakeapi.Options{}) // the server is at 3
		w.start()
		w.wantRequests("list limit=1", "watch stream")
		w.wantTrace("relist: history was rewound", "listed 2@3", "caught up")
		w.create("c")
		w.pass(0)
		w.wantTrace("added c@4")
		w.wantSame()
	})
}

// TestRewoundBeforeAnotherRequest checks that a rewind that was found is not forgotten
// because a list is requested for another reason before it could begin.
func TestRewoundBeforeAnotherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "5", fakeapi.Options{}) // the server is at 3
		verified := 0
		w.opts.Verify = func(context.Context) (string, error) {
			if verified++; verified == 2 { // the probe has been answered
				return "", errors.New("the server restarts")
			}
			return "", nil
		}
		w.start()
		w.Relist("the store is damaged")
		w.pass(time.Minute)
		w.wantTrace("relist: history was rewound", "listed 2@3", "caught up")
		w.wantRequests("list limit=1", "watch stream")
		w.wantSame()
	})
}

func TestWarmExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.delete("a")
		w.compact(w.create("c"))
		w.start()
		w.wantRequests("list limit=1", "watch 3 for 3s", "watch stream")
		w.wantTrace("relist: the server no longer has the history", "listed 2@5", "caught up")
		w.wantSame()
		w.wantErrors(1, "too old")
	})
}

// TestWarmIncomparable checks that a start does not resume from resource versions that
// cannot be compared.
func TestWarmIncomparable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "v/3", fakeapi.Options{RVPrefix: "v/"})
		w.start()
		w.wantRequests("list limit=1", "watch stream")
		w.wantTrace("relist: resource versions of this API cannot be compared", "listed 2@v/3", "caught up")

		// In a running reflector, a watch resumes from them.
		w.server.CloseWatches()
		w.create("c")
		w.pass(5 * time.Second)
		w.wantRequests("list limit=1", "watch v/3")
		w.wantTrace("added c@v/4")
		w.wantSame()
	})
}

// TestSinkClosed checks that Run ends when its sink is closed.
func TestSinkClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.opts.Sink = closedSink{w.sink}
		w.start()
		w.pass(0)
		w.create("c")
		w.pass(time.Hour)
		w.wantRequests("list limit=1", "watch 3")
		w.wantErrors(0, "")
		if n := w.server.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
	})
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{})
		opts := w.opts
		opts.Sink = nil
		checkNew(t, opts, "reflector: Sink is nil")
		opts = w.opts
		opts.ListerWatcher = nil
		checkNew(t, opts, "reflector: ListerWatcher is nil")
	})
}

func checkNew(t *testing.T, opts reflector.Options, want string) {
	t.Helper()
	if _, err := reflector.New(opts); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// closedSink returns ErrClosed.
type closedSink struct{ *sink }

func (closedSink) Push(context.Context, cache.DeltaType, runtime.Object, string) error {
	return fmt.Errorf("push: %w", store.ErrClosed)
}

// TestPagesOfNoSnapshot checks that a list whose pages are of several moments is followed
// from the first one, as in client-go.
func TestPagesOfNoSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{NoWatchList: true})
		w.through(between{list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			second := opts.Continue != ""
			opts.Limit, opts.Continue = 0, ""
			if second {
				w.update("a") // it is on the first page, which was sent
				w.delete("a")
			}
			all, err := w.server.ListWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			list := all.(*v1.ConfigMapList)
			if second {
				list.Items = list.Items[len(list.Items)-1:] // b
			} else {
				list.Items, list.Continue = list.Items[:1], fmt.Sprint("after ", list.Items[0].Name)
			}
			return list, nil
		}})
		w.start()
		w.pass(time.Hour)
		w.wantSame()
	})
}
