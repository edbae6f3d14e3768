package reflector_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/internal/fakeapi"
)

// storeReadError is the error that an API server sends for the deletion of an object that
// it could not decode (KEP-3926).
func storeReadError() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonStoreReadError, Message: "corrupt object has been deleted",
	}}
}

// TestLosingTheWatch checks the table in the package documentation, starting with a watch
// at resource version 3. In each case an object is created afterwards, and in the end the
// sink holds it.
func TestLosingTheWatch(t *testing.T) {
	resumes := []string{"list limit=1", "watch 3"}
	relists := []string{"watch stream"}
	// next closes the watch and makes the next ones fail.
	next := func(errs ...error) func(*world) {
		return func(w *world) {
			w.server.FailWatch(errs...)
			w.server.CloseWatches()
		}
	}
	send := func(err error) func(*world) {
		return func(w *world) { w.server.Send(errorEvent(err)) }
	}
	below := func(e watch.EventType) func(*world) {
		return func(w *world) {
			obj := configMap("a")
			obj.ResourceVersion = "2"
			w.server.Send(watch.Event{Type: e, Object: obj})
		}
	}
	for _, row := range []struct {
		name   string
		happen func(*world)
		want   [][]string // the requests that follow
		errs   int        // how often OnError is called
		err    string
		atOnce bool // there is no backoff
	}{
		{name: "closed at its timeout, in silence", happen: func(w *world) { w.until(1) }, want: [][]string{resumes}, atOnce: true},
		{name: "closed at its timeout, after an event", happen: func(w *world) {
			w.update("a")
			w.until(1)
		}, want: [][]string{{"watch 4"}}, atOnce: true},
		{name: "closed earlier", happen: func(w *world) {
			w.pass(time.Minute)
			w.server.CloseWatches()
		}, want: [][]string{resumes}, errs: 1, err: "before its timeout"},
		{name: "EOF", happen: next(io.EOF), want: [][]string{resumes, resumes}, errs: 2, err: "EOF"},
		{name: "refused", happen: func(w *world) {
			w.server.Down()
			w.pass(1800 * time.Millisecond)
			w.server.Up()
		}, want: [][]string{{"list limit=1"}, resumes}, errs: 2, err: "connection refused"},
		{name: "5xx", happen: next(apierrors.NewInternalError(errors.New("etcd"))), want: [][]string{resumes, resumes}, errs: 2, err: "etcd"},
		{name: "429", happen: next(tooManyRequests(1)), want: [][]string{resumes, resumes}, errs: 2, err: "slow down"},
		{name: "in-stream error", happen: send(errors.New("etcd")), want: [][]string{resumes}, errs: 1, err: "etcd"},
		{name: "in-stream error, again and again", happen: next(fakeapi.InStream(errors.New("x")), fakeapi.InStream(errors.New("x")), fakeapi.InStream(errors.New("x"))), want: [][]string{resumes, resumes, resumes, relists}, errs: 4, err: "x"},
		{name: "5xx, again and again", happen: next(apierrors.NewInternalError(errors.New("x")), apierrors.NewInternalError(errors.New("x")), apierrors.NewInternalError(errors.New("x"))), want: [][]string{resumes, resumes, resumes, relists}, errs: 4, err: "x"},
		{name: "object that etcd could not read", happen: send(storeReadError()), want: [][]string{relists}, errs: 1, err: "corrupt", atOnce: true},
		{name: "connection lost, again and again", happen: next(fakeapi.InStream(decoding("http2: client connection lost")), fakeapi.InStream(decoding("http2: client connection lost"))), want: [][]string{resumes, resumes, resumes}, errs: 3, err: "lost"},
		{name: "429, again and again", happen: next(tooManyRequests(1), tooManyRequests(1), tooManyRequests(1)), want: [][]string{resumes, resumes, resumes, resumes}, errs: 4, err: "slow down"},
		{name: "empty and closed at once, once", happen: func(w *world) {
			w.server.FailWatch(fakeapi.ErrCloseAtOnce)
			w.pass(time.Second)
			w.server.CloseWatches()
		}, want: [][]string{resumes, resumes}, errs: 2, err: "at once"},
		{name: "empty and closed at once, twice", happen: func(w *world) {
			w.pass(time.Second)
			next(fakeapi.ErrCloseAtOnce, fakeapi.ErrCloseAtOnce)(w)
		}, want: [][]string{resumes, resumes, relists}, errs: 3, err: "at once"},
		{name: "410 as status", happen: next(expired()), want: [][]string{resumes, relists}, errs: 2, err: "too old"},
		{name: "410 Gone as status", happen: next(gone()), want: [][]string{resumes, relists}, errs: 2},
		{name: "410 as event", happen: send(expired()), want: [][]string{relists}, errs: 1, err: "too old", atOnce: true},
		{name: "410 Gone as event", happen: send(gone()), want: [][]string{relists}, errs: 1, atOnce: true},
		{name: "504 ResourceVersionTooLarge, twice", happen: next(tooLarge(), fakeapi.InStream(tooLarge())), want: [][]string{resumes, resumes, resumes}, errs: 3, err: "Too large"},
		{name: "504 ResourceVersionTooLarge, three times", happen: next(tooLarge(), tooLarge(), fakeapi.InStream(tooLarge())), want: [][]string{resumes, resumes, resumes, relists}, errs: 4, err: "Too large"},
		{name: "401", happen: next(apierrors.NewUnauthorized("who")), want: [][]string{resumes, resumes}, errs: 2, err: "who"},
		{name: "403", happen: next(forbidden(), forbidden(), forbidden()), want: [][]string{resumes, resumes, resumes, resumes}, errs: 4, err: "no role"},
		{name: "403 of watches only, again and again", happen: next(forbidden(), forbidden(), forbidden(), forbidden(), forbidden(), forbidden()), want: [][]string{resumes, resumes, resumes, resumes, resumes, resumes, relists}, errs: 7, err: "no role"},
		{name: "object that cannot be read, once", happen: send(decoding("unable to decode watch event: proto")), want: [][]string{resumes}, errs: 1, err: "proto"},
		{name: "object that cannot be read, twice", happen: func(w *world) {
			w.server.FailWatch(fakeapi.InStream(decoding("unable to decode watch event: proto")))
			send(decoding("unable to decode watch event: proto"))(w)
		}, want: [][]string{resumes, relists}, errs: 2, err: "proto"},
		{name: "resource version below the held one, event", happen: below(watch.Modified), want: [][]string{{"list limit=1"}}, atOnce: true},
		{name: "resource version below the held one, bookmark", happen: below(watch.Bookmark), want: [][]string{{"list limit=1"}}, atOnce: true},
		{name: "resource version below the held one, probe", happen: func(w *world) { w.rewind("2") }, want: [][]string{{"list limit=1", "watch stream"}}, errs: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watching(t)
				begin := time.Now()
				row.happen(w)
				synctest.Wait()
				lasted := time.Since(begin)
				var want []string
				for _, requests := range row.want {
					want = append(want, requests...)
				}
				w.until(len(want))
				if waits := time.Since(begin) > lasted; waits == row.atOnce {
					t.Errorf("went on after %v, want at once: %t", time.Since(begin)-lasted, row.atOnce)
				}
				w.wantRequests(want...)
				w.wantErrors(row.errs, row.err)
				w.create("c")
				w.pass(time.Second)
				w.wantRequests()
				w.wantSame()
			})
		})
	}
}

// TestExpiredTwice checks that the second list in a row comes after a backoff.
func TestExpiredTwice(t *testing.T) {
	for name, lost := range map[string]func(*fakeapi.Server){
		"410":        func(s *fakeapi.Server) { s.Send(errorEvent(expired())) },
		"unreadable": func(s *fakeapi.Server) { s.Send(errorEvent(storeReadError())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watching(t)
				lost(w.server)
				synctest.Wait()
				w.wantRequests("watch stream")
				lost(w.server)
				synctest.Wait()
				w.wantRequests()
				w.until(1)
				w.wantRequests("watch stream")
				if got := w.waited(0); got < 800*time.Millisecond {
					t.Errorf("listed again after %v, want 0.8s at least", got)
				}
				w.wantErrors(2, "")
				w.wantSame()
			})
		})
	}
}

// TestRewoundUnderWatch checks a server that was restored to a state below the held
// resource version and no longer has the later changes.
func TestRewoundUnderWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		w.create("c")
		w.delete("a")
		w.pass(time.Second)
		w.rewind("3")
		w.pass(10 * time.Second)
		w.wantRequests("list limit=1", "watch stream")
		w.wantTrace("added c@4", "deleted a@5", "relist: history was rewound", "listed 2@3")
		w.wantSame()
	})
}

// TestRetryAfter checks that the server's Retry-After is used if it is longer than the
// backoff.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		w.server.FailWatch(tooManyRequests(40))
		w.server.CloseWatches()
		w.until(4)
		w.wantRequests("list limit=1", "watch 3", "list limit=1", "watch 3")
		if got := w.waited(1); got != 40*time.Second {
			t.Errorf("waited for %v, want 40s", got)
		}
	})
}

// TestBackoff checks that the backoff grows with each failure in a row, to a minute at
// most, and that a watch that lasted resets it.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		var errs []error
		for range 10 {
			errs = append(errs, tooManyRequests(0))
		}
		w.server.FailList(errs...)
		w.server.CloseWatches()
		w.until(12)
		w.wantErrors(11, "slow down")
		all := w.server.Requests()
		least, most := 1600*time.Millisecond, 3200*time.Millisecond
		for i := 3; i <= 12; i++ {
			got := all[i].Time.Sub(all[i-1].Time)
			if got < least || got > most {
				t.Errorf("request %d came after %v, want %v to %v", i, got, least, most)
			}
			least, most = min(2*least, 30*time.Second), min(2*most, time.Minute)
		}
		w.newRequests()
		w.pass(3 * time.Minute)
		w.server.CloseWatches()
		closed := time.Now()
		w.until(2)
		all = w.server.Requests()
		if got := all[len(all)-2].Time.Sub(closed); got > 1600*time.Millisecond {
			t.Errorf("a watch that lasted was followed by a wait of %v", got)
		}
	})
}

// TestClosedWithEvents checks that there is no tight loop of requests if the server
// closes each watch after an event.
func TestClosedWithEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		for range 20 {
			w.update("a")
			synctest.Wait()
			w.server.CloseWatches()
			w.pass(100 * time.Millisecond)
		}
		if n := len(w.newRequests()); n > 6 {
			t.Errorf("%d requests in two seconds", n)
		}
		w.pass(time.Minute)
		w.wantSame()
	})
}

// TestStalled checks that a watch that is neither closed nor sends anything is abandoned.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "3", fakeapi.Options{})
		w.opts.ListerWatcher = &deafServer{Server: w.server}
		w.start()
		w.create("c")
		w.pass(5 * time.Minute)
		w.wantErrors(0, "")
		w.until(3)
		w.pass(0)
		w.wantErrors(1, "nothing was heard")
		w.wantRequests("list limit=1", "list limit=1", "watch 3")
		w.wantSame()
	})
}

// TestRefusedObject checks that an object that the sink refuses is requested once more
// and then relisted. If the list does not repair it, it is rejected and the watch
// continues.
func TestRefusedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		w.sink.refuse = "bad"
		w.create("bad")
		w.pass(10 * time.Second)
		w.wantRequests("list limit=1", "watch 3", "watch stream")
		w.wantTrace("relist: an object of the watch cannot be read", "reject bad", "listed 2@4")
		w.wantErrors(2, "unreadable")
		w.update("bad")
		w.create("good")
		w.pass(10 * time.Second)
		w.wantRequests()
		w.wantErrors(0, "")
		w.wantTrace("reject bad", "added good@6")
	})
}

// TestRefusedObjectsApart checks that objects that are refused once each, at different
// resource versions, do not cause a list.
func TestRefusedObjectsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		for i := range 5 {
			w.server.Send(errorEvent(decoding("unable to decode watch event: proto")))
			w.pass(time.Minute)
			w.wantRequests("list limit=1", fmt.Sprintf("watch %d", 3+i))
			w.update("a")
			w.pass(time.Second)
		}
		w.wantErrors(5, "proto")
		w.wantSame()
	})
}

func TestWrongType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		wrong := &v1.Secret{}
		wrong.Name, wrong.ResourceVersion = "s", "4"
		send := func() {
			w.server.Send(watch.Event{Type: watch.Added, Object: wrong})
			w.pass(10 * time.Second)
		}
		send()
		w.wantRequests("list limit=1", "watch 3")
		send()
		w.wantRequests("watch stream")
		w.wantTrace("relist: an object of the watch cannot be read", "listed 2@3")
		send()
		w.wantRequests()
		w.wantTrace("reject s")
		w.wantErrors(2, "*v1.Secret where a *v1.ConfigMap was expected")
	})
}

// TestListExpires checks that a list whose continue token has expired starts again
// without pages.
func TestListExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", fakeapi.Options{NoWatchList: true})
		w.opts.PageSize = 1
		w.server.FailList(nil, expired())
		w.start()
		w.pass(10 * time.Second)
		w.wantRequests("watch stream", "list limit=1", "list more", "list limit=0", "watch 3")
		w.wantErrors(0, "")
		w.wantSame()
	})
}

// TestRelistFails checks that a failed list is retried, and that there is no watch before
// a list is complete.
func TestRelistFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t)
		w.compact(w.create("c"))
		w.pass(time.Second)
		w.server.FailWatch(expired(), tooManyRequests(1))
		w.server.CloseWatches()
		w.pass(20 * time.Second)
		w.wantRequests("list limit=1", "watch 4", "watch stream", "watch stream")
		w.wantErrors(3, "slow down")
		w.wantSame()
	})
}
