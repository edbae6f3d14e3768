package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestHandlers checks several handlers of one scope, as of For and Owns of one kind: each
// receives what was changed, and the place does not move while one of them is missing.
func TestHandlers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(2).begin()
		l.want("at first", "owner-a")
		l.end()
		w.put("b", "owner-b")
		l = w.start(1).begin()
		l.wantCalls("the one", "add b of owner-b")
		l.want("the one", "owner-b")
		w.pass(time.Minute)
		if s := l.consumer.Status(); s.Scopes[0].Missing != 1 || s.Scopes[0].Everything != "" {
			t.Errorf("status %+v", s)
		}
		l.end()
		l = w.start(2).begin()
		l.wantCalls("both", "add b of owner-b", "add b of owner-b")
		l.want("both", "owner-b")
		// One that is added late, as by a reconcile, has the same place as the others.
		w.put("c", "owner-c")
		w.pass(time.Minute)
		l.end()
		w.put("d", "owner-d")
		l = w.start(1).begin()
		w.pass(time.Minute)
		l.want("before the late one", "owner-d")
		l.addHandler(enqueue{l})
		l.wantCalls("the late one", "add d of owner-d")
		l.want("the late one", "owner-d")
		l.end()
		l = w.start(2).begin()
		l.want("after all")
		l.end()
	})
}

// TestLostWithFewerHandlers checks a place that is lost and knows a handler that is
// missing: the one that is there receives everything, in one process.
func TestLostWithFewerHandlers(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"another transform": func(w *world) { w.transform = "2" },
		"a trimmed log": func(w *world) {
			l := w.start(0)
			for range 5 {
				w.pass(time.Hour)
				w.put("a", "owner-a")
			}
			w.pass(time.Minute)
			l.end()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "owner-a")
				w.put("b", "owner-b")
				l := w.start(2).begin()
				w.pass(time.Minute)
				l.end()
				lose(w)
				l = w.start(1).begin()
				l.want("of a lost place", "owner-a", "owner-b")
				w.pass(time.Minute)
				l.end()
				l = w.start(1).begin()
				l.wantCalls("in the next process")
				w.pass(time.Minute)
				l.end()
				l = w.start(2).begin()
				l.want("with both again", "owner-a", "owner-b")
				l.end()
			})
		})
	}
}

// TestFewerHandlers checks a program that has fewer handlers than the one before: when
// the log does not reach back to the place of those that are missing, the place moves
// without them.
func TestFewerHandlers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		l := w.start(2).begin()
		w.pass(time.Minute)
		l.end()
		w.put("c", "owner-c")
		l = w.start(1).begin()
		w.pass(30 * time.Minute)
		l.want("of the change", "owner-c")
		if s := l.consumer.Status(); s.Scopes[0].Missing != 1 {
			t.Errorf("after half an hour: %+v", s)
		}
		l.end()
		l = w.start(1).begin()
		l.want("while the log reaches back", "owner-c")
		for range 5 {
			w.pass(time.Hour)
			w.put("a", "owner-a")
		}
		w.pass(time.Minute)
		l.want("of the changes", "owner-a", "owner-a", "owner-a", "owner-a", "owner-a")
		if s := l.consumer.Status(); s.Scopes[0].Missing != 0 {
			t.Errorf("after five hours: %+v", s)
		}
		l.end()
		w.put("d", "owner-d")
		l = w.start(1).begin()
		l.wantCalls("in the next process", "add d of owner-d")
		w.pass(time.Minute)
		l.end()
		l = w.start(2).begin()
		l.want("with both again", "owner-a", "owner-b", "owner-c", "owner-d")
		l.end()
	})
}

// TestFewerHandlersElsewhere checks the same of a place of which only the resource
// version is known, and of one of a history that is no more.
func TestFewerHandlersElsewhere(t *testing.T) {
	successor := func(w *world) *life {
		shared := w.shared()
		l := w.start(2).begin()
		second, elected := w.replica().standby()
		w.pass(time.Minute)
		l.dies(shared)
		close(elected)
		return second
	}
	for name, row := range map[string]struct {
		begin   func(w *world) *life // with one handler, in the place of two
		reaches bool                 // the log reaches back to the place at first
	}{
		"a successor without a file": {begin: func(w *world) *life {
			shared := w.shared()
			l := w.start(2).begin()
			w.pass(time.Minute)
			l.dies(shared)
			w.put("c", "owner-c") // so that the list is after the place
			return w.replica().start(1).begin()
		}},
		"a standby": {reaches: true, begin: successor},
		"a rewound server": {begin: func(w *world) *life {
			past := w.server.RV()
			w.put("b", "owner-b")
			l := w.start(2).begin()
			w.pass(time.Minute)
			l.end()
			l = w.start(1).begin()
			w.pass(time.Minute)
			if err := w.server.Rewind(past); err != nil {
				w.Fatal(err)
			}
			return l
		}},
		"a rewound server of a standby": {begin: func(w *world) *life {
			past := w.server.RV()
			w.put("b", "owner-b")
			second := successor(w)
			w.pass(time.Minute)
			if err := w.server.Rewind(past); err != nil {
				w.Fatal(err)
			}
			return second
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				// Of what Skip leaves out where a log begins later.
				w.opts.Every = 1000 * time.Hour
				w.put("a", "owner-a")
				l := row.begin(w)
				wantMissing := func(when string, want int) {
					t.Helper()
					if s := l.consumer.Status().Scopes[0]; s.Missing != want {
						t.Errorf("%s: status %+v, want %d missing", when, s, want)
					}
				}
				w.pass(5 * time.Minute)
				wantMissing("at first", 1)
				w.pass(10 * time.Minute)
				if row.reaches {
					wantMissing("while the log reaches back", 1)
					for range 5 {
						w.pass(time.Hour)
						w.put("a", "owner-a")
					}
					w.pass(time.Minute)
				}
				wantMissing("at last", 0)
				l.end()
				w.put("d", "owner-d")
				l = l.w.start(1).begin()
				l.wantCalls("in the next process", "add d of owner-d")
				l.end()
			})
		})
	}
}

// TestPanic checks that a handler that panics, where panics do not end the process, keeps
// the place: the change comes again in the next process.
func TestPanic(t *testing.T) {
	crash := utilruntime.ReallyCrash
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = crash }()
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		l.want("at first", "owner-a")
		l.end()
		w.put("b", "owner-b")
		l = w.open()
		l.addHandler(panics{enqueue{l}})
		l.run()
		l.begin()
		w.pass(time.Minute)
		w.put("c", "owner-c")
		w.pass(time.Minute)
		l.want("with a panic", "owner-c")
		l.end()
		l = w.start(1).begin()
		l.want("after it", "owner-b", "owner-c")
		l.end()
	})
}

// TestTrickleAfterPanic checks that each object comes also after a handler has panicked,
// which keeps the place where it is.
func TestTrickleAfterPanic(t *testing.T) {
	crash := utilruntime.ReallyCrash
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = crash }()
	inBubble(t, func(w *world) {
		w.opts = durable.Options{Every: time.Hour}
		w.putNumbered(60)
		l := w.open()
		l.addHandler(panics{enqueue{l}})
		l.run()
		synctest.Wait() // so that the worker finds one key of 60 objects
		l.begin()
		w.put("b", "owner-b")
		w.pass(10 * time.Second)
		before := l.consumer.Status().Scopes[0].ResourceVersion
		l.want("at first", "owner")
		w.pass(2*time.Hour + time.Minute)
		seen := map[string]bool{}
		for _, call := range l.received() {
			seen[call] = true
		}
		if len(seen) != 60 {
			t.Errorf("%d objects of 60 have come", len(seen))
		}
		if rv := l.consumer.Status().Scopes[0].ResourceVersion; rv != before {
			t.Errorf("the place has moved from %s to %s", before, rv)
		}
		l.end()
	})
}

// panics panics for the object b.
type panics struct{ enqueue }

func (p panics) OnAdd(obj any, initial bool) {
	if name, _ := cache.ObjectToName(obj); name.Name == "b" {
		panic("b")
	}
	p.enqueue.OnAdd(obj, initial)
}

// TestShortLived checks that a standby that is elected reconciles the owner of an object
// that was created and deleted within one commit.
func TestShortLived(t *testing.T) {
	inBubble(t, func(w *world) {
		elected := make(chan struct{})
		w.put("a", "owner-a")
		l := w.start(1).begin()
		l.want("at first", "owner-a")
		l.end()
		w.opts.Elected = elected
		l = w.start(1).begin()
		w.pass(time.Second)
		w.put("x", "owner-x")
		w.drop("x")
		w.pass(time.Minute)
		close(elected)
		l.want("of what was there meanwhile", "owner-x")
		l.end()
	})
}

// TestTwoQueues checks that a second queue of a consumer panics.
func TestTwoQueues(t *testing.T) {
	inBubble(t, func(w *world) {
		l := w.start(1)
		defer l.end()
		defer func() {
			if recover() == nil {
				t.Error("a second queue was made")
			}
		}()
		durable.NewQueue(l.consumer, nil, durable.ObjectNames)
	})
}

// TestInMemory checks an informer whose objects are not stored, because another one has
// its scope: its handler receives everything.
func TestInMemory(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		for _, calls := range [][]string{
			// both informers are new
			{"initial add a of owner-a", "initial add a of owner-a"},
			{"initial add a of owner-a"},
		} {
			l := w.start(1)
			second := w.informer(l.db)
			if _, err := second.AddEventHandler(l.consumer.Handler(enqueue{l})); err != nil {
				t.Fatal(err)
			}
			l.also(second)
			l.begin()
			l.wantCalls("with one in memory", calls...)
			w.pass(time.Minute)
			l.end()
		}
	})
}

// TestInMemoryBeforeElection checks that a handler on an informer whose objects are not
// stored waits for the election, too, and that one that is removed before receives
// nothing.
func TestInMemoryBeforeElection(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		elected := make(chan struct{})
		w.opts.Elected = elected
		l := w.open()
		l.run()
		<-l.inf.HasSyncedChecker().Done()
		second := w.informer(l.db)
		var removed []cache.ResourceEventHandlerRegistration
		for range 2 {
			r, err := second.AddEventHandler(l.consumer.Handler(enqueue{l}))
			if err != nil {
				t.Fatal(err)
			}
			removed = append(removed, r)
		}
		l.also(second)
		l.begin()
		w.pass(time.Minute)
		w.put("b", "owner-b")
		w.pass(time.Minute)
		l.wantCalls("before the election")
		for _, r := range removed {
			if !r.HasSynced() {
				t.Error("a handler that waits for the election has not synced")
			}
		}
		if err := second.RemoveEventHandler(removed[0]); err != nil {
			t.Error(err)
		}
		close(elected)
		w.pass(time.Minute)
		l.wantCalls("after the election", "initial add a of owner-a", "initial add b of owner-b")
		w.put("c", "owner-c")
		w.pass(time.Minute)
		l.want("after the election", "owner-a", "owner-b", "owner-c")
		l.end()
	})
}

// TestRelist checks a restart after which the history is lost: the handler receives the
// differences from the list.
func TestRelist(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			w.put(name, "owner-"+name)
		}
		l := w.start(1).begin()
		l.want("at first", "owner-a", "owner-b", "owner-c", "owner-d", "owner-e", "owner-f")
		l.end()
		w.put("a", "owner-x")
		w.drop("b")
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		l = w.start(1).begin()
		l.want("after a list", "owner-a", "owner-x", "owner-b")
		l.kill()
		l = w.start(1).begin()
		w.pass(time.Minute)
		if got := l.received(); len(got) > 2 {
			t.Errorf("after a kill: received %q, want at most the two changes again", got)
		}
		l.end()
	})
}

// TestListedMeanwhile checks what a list and the watch find while a handler reads the
// log, which has it, too.
func TestListedMeanwhile(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		w.put("c", "owner-c")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		w.put("a", "owner-x")
		w.drop("b")
		w.drop("c")
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		l = w.open()
		release := make(chan struct{})
		h := l.consumer.Handler(enqueue{l}).(resume.Handler)
		if _, err := l.inf.AddEventHandler(opensLate{h, release}); err != nil {
			t.Fatal(err)
		}
		l.run()
		w.pass(5 * time.Second)
		w.put("b", "owner-y")
		w.pass(5 * time.Second)
		close(release)
		l.begin()
		w.pass(5 * time.Second)
		l.wantCalls("after the log",
			"delete b of owner-b", "delete c of owner-c", "update a of owner-a,owner-x", "add b of owner-y")
		l.end()
	})
}

// opensLate has begun when its informer goes on, and reads the log when it is released.
type opensLate struct {
	resume.Handler
	release <-chan struct{}
}

func (h opensLate) Opened(feed resume.Feed) {
	h.Handler.Opened(feed)
	<-h.release
}

// TestRemoved checks that the place does not pass what a handler that was removed has not
// received, and that one that is added in its stead goes on.
func TestRemoved(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.open()
		r, err := l.inf.AddEventHandler(l.consumer.Handler(enqueue{l}))
		if err != nil {
			t.Fatal(err)
		}
		l.run()
		l.begin()
		w.pass(5 * time.Second)
		l.want("at first", "owner-a")
		if err := l.inf.RemoveEventHandler(r); err != nil {
			t.Fatal(err)
		}
		w.put("b", "owner-b")
		w.pass(5 * time.Second)
		l.end()
		l = w.start(1).begin()
		l.want("after a restart", "owner-b")
		if s := l.consumer.Status(); s.Scopes[0].Missing != 0 {
			t.Errorf("status %+v", s)
		}
		l.end()
		l = w.start(1).begin()
		l.want("after another")
		l.end()
	})
}

// TestMissingOfRemoved checks that a handler that was removed is missing in the same
// process, too, until another one takes its place.
func TestMissingOfRemoved(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.open()
		l.addHandler(enqueue{l})
		r, err := l.inf.AddEventHandler(l.consumer.Handler(enqueue{l}))
		if err != nil {
			t.Fatal(err)
		}
		l.run()
		l.begin()
		wantMissing := func(when string, want int) {
			t.Helper()
			w.pass(5 * time.Second)
			if s := l.consumer.Status().Scopes[0]; s.Missing != want {
				t.Errorf("%s: status %+v, want %d missing", when, s, want)
			}
		}
		wantMissing("at first", 0)
		if err := l.inf.RemoveEventHandler(r); err != nil {
			t.Fatal(err)
		}
		w.put("b", "owner-b")
		wantMissing("with one removed", 1)
		l.addHandler(enqueue{l})
		wantMissing("with another in its place", 0)
		l.end()
	})
}

// restored has a process write changes that its handler has not returned from when the
// process ends, and restores the server to a resource version before them.
func (w *world) restored(past string, change func()) {
	w.Helper()
	block := make(chan struct{})
	l := w.open()
	l.addHandler(slowly{enqueue{l}, func() { <-block }})
	l.run()
	w.pass(5 * time.Second)
	change()
	w.pass(5 * time.Second) // it is in the file, and not behind the place
	next := l.image()
	close(block)
	l.end()
	w.path = next
	if err := w.server.Rewind(past); err != nil {
		w.Fatal(err)
	}
}

// TestRewound checks a server that was restored from a backup while no process ran: the
// handler receives the older state after the newer one that the log has.
func TestRewound(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-x")
		past := w.server.RV()
		l := w.start(1).begin()
		l.want("at first", "owner-x")
		l.end()
		w.restored(past, func() { w.put("a", "owner-y") })
		w.server.Hold() // the list that finds it comes after the log
		l = w.open()
		l.addHandler(enqueue{l})
		l.run()
		l.begin()
		w.pass(5 * time.Second)
		w.server.Release()
		w.pass(time.Minute)
		l.wantCalls("after the restore", "update a of owner-x,owner-y", "update a of owner-y,owner-x")
		l.end()
	})
}

// TestRewoundWhileLogIsReceived checks the same for a list that comes while the handler
// still works on what the log has.
func TestRewoundWhileLogIsReceived(t *testing.T) {
	inBubble(t, func(w *world) {
		w.opts = durable.Options{Unchanged: durable.Skip, Version: "1"}
		w.put("a", "owner-x")
		w.put("b", "owner-z")
		past := w.server.RV()
		l := w.start(1).begin()
		l.want("at first", "owner-x", "owner-z")
		l.end()
		w.restored(past, func() { w.put("a", "owner-y"); w.drop("b") })
		l = w.open()
		block := make(chan struct{})
		l.addHandler(slowly{enqueue{l}, func() { <-block }})
		l.run()
		l.begin()
		w.pass(time.Minute) // the list has ended
		close(block)
		w.pass(time.Minute)
		l.wantCalls("after the restore", "update a of owner-x,owner-y", "delete b of owner-z", "update a of owner-y,owner-x", "add b of owner-z")
		l.end()
	})
}

// TestTrickleOfFewer checks that a sweep goes on when objects that it has delivered are
// deleted.
func TestTrickleOfFewer(t *testing.T) {
	inBubble(t, func(w *world) {
		w.opts = durable.Options{Every: time.Hour}
		w.putNumbered(60)
		l := w.start(1).begin()
		w.pass(40 * time.Minute)
		for i := range 30 {
			w.drop(fmt.Sprintf("%02d", i))
		}
		w.pass(time.Second)
		before := len(l.received())
		w.pass(10 * time.Hour)
		if n := len(l.received()) - before; n < 280 || n > 320 {
			t.Errorf("%d objects came in ten hours, want each of 30 ten times", n)
		}
		l.end()
	})
}

// TestBusy checks that everything comes to a handler that is slower than the watch.
func TestBusy(t *testing.T) {
	inBubble(t, func(w *world) {
		w.putNumbered(20)
		l := w.start(1).begin()
		w.pass(5 * time.Second)
		l.end()
		w.opts.Version = "2"
		elected := make(chan struct{})
		w.opts.Elected = elected
		l = w.open()
		l.addHandler(slowly{enqueue{l}, func() { <-time.After(60 * time.Millisecond) }})
		l.run()
		for i := range 1200 {
			if i == 300 {
				close(elected)
			}
			w.put("00", "owner")
			w.pass(100 * time.Millisecond)
		}
		initial := 0
		for _, call := range l.received() {
			if strings.HasPrefix(call, "initial") {
				initial++
			}
		}
		if initial < 20 {
			t.Errorf("%d initial adds, want 20", initial)
		}
		l.end()
	})
}

// TestDiesAtFirst checks a consumer whose first processes die before it has written
// anything by itself: what they have received, and what has replaced it since, is worked
// on.
func TestDiesAtFirst(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commits = 10 * time.Millisecond
		soon := time.Second / 3 // before the consumer commits
		w.put("listed", "listed-1")
		for _, n := range []string{"2", "3"} {
			l := w.start(1)
			w.put("watched", "watched-"+n)
			w.pass(soon)
			w.put("listed", "listed-"+n)
			w.pass(soon)
			l.kill()
		}
		l := w.start(1).begin()
		l.want("at last", "listed-1", "listed-2", "listed-3", "watched-2", "watched-3")
		l.end()
	})
}

// TestWeekend checks that a place is valid after a weekend, in which nothing is trimmed
// because nothing is written.
func TestWeekend(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		l.want("at first", "owner-a")
		w.pass(time.Minute)
		l.end()
		w.put("b", "owner-b")
		w.drop("a")
		w.pass(60 * time.Hour)
		l = w.start(1).begin()
		l.wantCalls("after a weekend", "add b of owner-b", "delete a of owner-a")
		l.want("after a weekend", "owner-a", "owner-b")
		l.end()
	})
}

// TestClockGoesBack checks that a key is not delayed for longer than was asked for, on a
// machine whose clock is ten days behind, also over another restart.
func TestClockGoesBack(t *testing.T) {
	var path string
	for _, ahead := range []time.Duration{240 * time.Hour, 0} {
		inBubble(t, func(w *world) { // each bubble begins at the same time
			w.put("later", "later")
			if path != "" {
				w.path = path
			}
			w.pass(ahead)
			l := w.start(1)
			l.work = func(string) outcome { return outcome{after: time.Hour} }
			if ahead == 0 {
				l.work = nil
				l.begin()
				w.pass(40 * time.Minute)
				l.end()
				l = w.start(1).begin() // which goes on with what is left of it
				w.pass(19 * time.Minute)
				l.want("before the hour is over")
				w.pass(2 * time.Minute)
				l.want("after it", "later")
				l.end()
				return
			}
			l.begin()
			l.want("at first", "later")
			w.pass(time.Minute)
			l.end()
			path = w.path
		})
	}
}

// TestReadByAnother checks that the place of a handler whose informer has ended does not
// move over what another informer of the scope brings, which has no handler.
func TestReadByAnother(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.want("at first", "owner-a")
		l.stop()
		w.pass(time.Second)
		ctx, cancel := context.WithCancel(w.Context())
		inf := w.informer(l.db)
		l.running.Go(func() { inf.RunWithContext(ctx) })
		<-inf.HasSyncedChecker().Done()
		w.drop("a")
		w.pass(time.Minute)
		cancel()
		l.end()
		w.wantDeletion("an informer without a handler has read it")
	})
}

// TestFreeze checks that the next process receives once more what handlers have received
// since the places were frozen, and nothing from before.
func TestFreeze(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.consumer.Freeze()
		w.put("b", "owner-b")
		l.want("frozen", "owner-a", "owner-b")
		w.pass(time.Minute)
		l.end()
		l = w.start(1).begin()
		l.wantCalls("after a restart", "add b of owner-b")
		l.end()
	})
}

// TestGivenUp checks that a scope for which the program has no handlers any more is not
// reported for ever.
func TestGivenUp(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		l = w.open()
		inf, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{
			Backend: l.db, Scope: store.Scope{Resource: "configmaps", Namespace: "default", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		})
		if err != nil {
			t.Fatal(err)
		}
		l.inf = inf
		l.addHandler(enqueue{l})
		l.run()
		l.begin()
		missing := func() (n int) {
			for _, s := range l.consumer.Status().Scopes {
				n += s.Missing
			}
			return n
		}
		if w.pass(time.Minute); missing() != 1 {
			t.Errorf("%d handlers are missing, want 1: it may come: %+v", missing(), l.consumer.Status())
		}
		if w.pass(10 * time.Minute); missing() != 0 {
			t.Errorf("%d handlers are missing of a scope that the program has given up", missing())
		}
		l.end()
	})
}

// inFile calls f with the file, which no process has.
func (w *world) inFile(f func(*bolt.DB) error) {
	w.Helper()
	db, err := bolt.Open(w.path, bolt.Options{})
	if err == nil {
		err = errors.Join(f(db), db.Close())
	}
	if err != nil {
		w.Fatal(err)
	}
}

// wasBuiltFrom makes the file one of a program that was built from another revision.
func (w *world) wasBuiltFrom(revision string) {
	w.Helper()
	w.inFile(func(db *bolt.DB) error {
		state := fmt.Appendf(nil, `{"version":"","revision":%q}`, revision)
		return db.SetLedger(w.Context(), "consumer/test", map[string][]byte{"state": state})
	})
}

// TestSweepAnewOfStandby checks that the sweep of another revision begins anew also if a
// standby has stored the new revision and ended.
func TestSweepAnewOfStandby(t *testing.T) {
	inBubble(t, func(w *world) {
		w.opts = durable.Options{Every: time.Hour}
		w.putNumbered(60)
		l := w.start(1).begin()
		w.pass(30 * time.Minute)
		l.end()
		w.wasBuiltFrom("before")
		w.opts.Elected = make(chan struct{})
		l = w.start(1).begin()
		w.pass(5 * time.Second)
		l.kill()
		w.inFile(func(db *bolt.DB) error {
			values, err := db.Ledger(t.Context(), "consumer/test")
			for key, value := range values {
				if strings.HasPrefix(key, "place/") && strings.Contains(string(value), `"swept"`) {
					t.Errorf("the sweep goes on: %s", value)
				}
			}
			return err
		})
	})
}

// TestSweepOfManyRevisions checks that each object comes although each sweep is followed
// by that of another revision before it ends, and after that once in each sweep.
func TestSweepOfManyRevisions(t *testing.T) {
	inBubble(t, func(w *world) {
		w.opts = durable.Options{Every: time.Hour}
		w.putNumbered(60)
		l := w.start(1).begin()
		w.pass(5 * time.Second)
		l.end()
		seen := map[string]bool{}
		for i := range 6 {
			w.wasBuiltFrom(fmt.Sprint("before-", i))
			l = w.start(1).begin()
			w.pass(20 * time.Minute)
			for _, call := range l.received() {
				seen[call] = true
			}
			l.end()
		}
		if len(seen) != 60 {
			t.Errorf("%d of 60 objects came in two hours", len(seen))
		}
		w.wasBuiltFrom("at last")
		l = w.start(1).begin()
		w.pass(10 * time.Hour)
		times := map[string]int{}
		for _, call := range l.received() {
			times[call]++
		}
		for call, n := range times {
			if n < 9 || n > 11 {
				t.Errorf("%s: %d times in ten hours, want ten", call, n)
			}
		}
		if len(times) != 60 {
			t.Errorf("%d of 60 objects came in ten hours", len(times))
		}
		l.end()
	})
}
