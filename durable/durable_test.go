package durable_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// TestSkip checks that after a restart only what was changed is worked on: also an owner
// that an object had before, and the owner of one that was deleted.
func TestSkip(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			w.put(name, "owner-"+name)
		}
		l := w.start(1).begin()
		l.wantCalls("at first", "initial add a of owner-a", "initial add b of owner-b", "initial add c of owner-c",
			"initial add d of owner-d", "initial add e of owner-e")
		l.want("at first", "owner-a", "owner-b", "owner-c", "owner-d", "owner-e")
		l.end()
		w.put("a", "owner-a")
		w.put("b", "owner-x") // moved
		w.drop("c")
		w.put("f", "owner-f")
		l = w.start(1).begin()
		l.wantCalls("after a restart", "update a of owner-a", "update b of owner-b,owner-x", "delete c of owner-c", "add f of owner-f")
		l.want("after a restart", "owner-a", "owner-b", "owner-x", "owner-c", "owner-f")
		w.put("d", "owner-d")
		l.want("live", "owner-d")
		w.pass(time.Minute)
		l.kill()
		w.put("e", "owner-e")
		l = w.start(1).begin()
		l.want("after a crash", "owner-e")
		l.end()
		l = w.start(1).begin()
		l.want("after nothing")
		if s := l.consumer.Status(); len(s.Scopes) != 1 || s.Scopes[0].Everything != "" || s.Scopes[0].Missing != 0 || s.State != durable.Active {
			t.Errorf("status %+v", s)
		}
		l.end()
	})
}

// TestQueue checks that the next process has what waits, is in work, is delayed or has
// failed.
func TestQueue(t *testing.T) {
	for name, kill := range map[string]bool{"stopped": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				for _, name := range []string{"fails", "later", "lost", "works", "done"} {
					w.put(name, name)
				}
				release := make(chan struct{})
				l := w.start(1)
				l.work = func(name string) outcome {
					switch name {
					case "fails":
						return outcome{err: true}
					case "later":
						return outcome{after: time.Hour}
					case "lost":
						return outcome{lost: true}
					case "works":
						<-release
					}
					return outcome{}
				}
				l.begin()
				// The worker takes the keys in order: done, fails, later, lost and works.
				w.pass(10 * time.Second)
				want := durable.Status{Name: "test", Version: "1", State: durable.Active, InWork: 1, Waiting: 1, Delayed: 1, Failed: 1, Unresolved: 1}
				got := l.consumer.Status()
				got.Scopes = nil
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				l.want("before", "done", "fails", "later", "lost", "works")
				failures := 1
				if kill {
					next := l.image()
					close(release)
					l.end()
					w.path = next
				} else {
					l.queue.ShutDown()
					w.drop("works") // an event between ShutDown and Close
					w.pass(time.Second)
					close(release)
					w.pass(time.Second)
					failures++ // the queue hands out what waits before it ends
					l.end()
				}
				// Nobody works for ten minutes.
				w.pass(10 * time.Minute)
				l = w.start(1)
				if n := l.queue.NumRequeues(cache.ObjectName{Namespace: "default", Name: "fails"}); n != failures {
					t.Errorf("fails has failed %d times, want %d", n, failures)
				}
				l.begin()
				l.want("after the start", "fails", "lost", "works")
				l.wantDelayed(48*time.Minute, 2*time.Minute)
			})
		})
	}
}

// TestBackendWithoutFile checks that a consumer of a backend without a file goes on in
// the same process, as a test of a user needs it.
func TestBackendWithoutFile(t *testing.T) {
	inBubble(t, func(w *world) {
		w.memory = mem.New()
		for _, name := range []string{"a", "b", "c"} {
			w.put(name, "owner-"+name)
		}
		l := w.start(1).begin()
		l.want("at first", "owner-a", "owner-b", "owner-c")
		l.end()
		w.put("a", "owner-x")
		w.drop("b")
		l = w.start(1).begin()
		l.wantCalls("after a restart", "update a of owner-a,owner-x", "delete b of owner-b")
		l.want("after a restart", "owner-a", "owner-x", "owner-b")
		l.end()
		w.opts.Version = "2"
		l = w.start(1).begin()
		l.want("of another version", "owner-x", "owner-c")
		l.end()
	})
}

// backend is a backend that is nothing else.
type backend struct{ store.Backend }

// TestOpen checks what Open refuses.
func TestOpen(t *testing.T) {
	inBubble(t, func(w *world) {
		db, err := bolt.Open(w.path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := durable.Open(db, "a", durable.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := durable.Open(db, "a", durable.Options{}); !errors.Is(err, durable.ErrInUse) {
			t.Errorf("twice: %v", err)
		}
		if _, err := durable.Open(db, "b", durable.Options{Unchanged: durable.Skip}); err == nil {
			t.Error("Skip without a version was accepted")
		}
		if _, err := durable.Open(&backend{db}, "a", durable.Options{}); !errors.Is(err, durable.ErrUnsupported) {
			t.Errorf("without a ledger: %v", err)
		}
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		if c, err = durable.Open(db, "a", durable.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestEverything checks when handlers receive everything although there was a place, and
// that Status says why.
func TestEverything(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(w *world)
		handlers int
		why      string
	}{
		"another version": {func(w *world) { w.opts.Version = "2" }, 1, `the version was "1" and is "2"`},
		"more handlers":   {func(*world) {}, 2, "there are more handlers than the 1 before"},
		"a lost file":     {func(w *world) { w.path += "-new" }, 1, "there is no place"},
		"the policy":      {func(w *world) { w.opts.Unchanged = durable.All }, 1, ""},
		"a wiped file":    {func(w *world) { w.wipe() }, 1, "there is no place"},
		"a dropped scope": {func(w *world) { w.transform = "2" }, 1, store.ErrLineage.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "owner-a")
				w.put("b", "owner-b")
				l := w.start(1).begin()
				l.want("at first", "owner-a", "owner-b")
				l.end()
				tt.change(w)
				l = w.start(tt.handlers).begin()
				l.want("after "+name, "owner-a", "owner-b")
				if s := l.consumer.Status(); len(s.Scopes) != 1 || !strings.Contains(s.Scopes[0].Everything, tt.why) {
					t.Errorf("status: %+v", s)
				}
				l.end()
				w.opts.Unchanged = durable.Skip
				l = w.start(tt.handlers).begin()
				l.want("and then")
				l.end()
			})
		})
	}
}

// TestElected checks that a process that is not elected receives nothing but counts as
// synced, and that it goes on from its place when it is.
func TestElected(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		l.want("the first leader", "owner-a")
		l.end()
		w.put("b", "owner-b")
		elected := make(chan struct{})
		w.opts.Elected = elected
		l = w.start(1).begin()
		w.put("c", "owner-c")
		w.drop("a")
		w.pass(time.Minute)
		l.want("before the election")
		close(elected)
		w.pass(time.Minute)
		l.wantCalls("after the election", "add b of owner-b", "add c of owner-c", "delete a of owner-a")
		l.want("after the election", "owner-a", "owner-b", "owner-c")
		w.put("c", "owner-d")
		l.want("live", "owner-c", "owner-d")
		l.end()
		l = w.start(1).begin() // the channel is closed
		l.want("after a restart")
		l.end()
	})
}

// TestTrickle checks that each unchanged object comes once in the time that is set, over
// restarts, and what was changed at once.
func TestTrickle(t *testing.T) {
	inBubble(t, func(w *world) {
		w.opts = durable.Options{Every: time.Hour}
		w.putNumbered(60)
		l := w.start(1)
		synctest.Wait() // so that the worker finds one key of 60 objects
		l.begin()
		l.want("at first", "owner")
		l.end()
		w.put("05", "other")
		l = w.start(1).begin()
		l.wantCalls("what was changed", "update 05 of owner,other")
		l.want("what was changed", "owner", "other")
		w.pass(20 * time.Minute)
		first := len(l.received())
		l.end()
		l = w.start(1).begin()
		w.pass(40*time.Minute - 10*time.Second)
		second := len(l.received())
		if first < 15 || first > 21 || first+second < 58 || first+second > 60 {
			t.Errorf("%d objects in 20 minutes and %d in 40, want each of 60 once in an hour", first, second)
		}
		w.pass(time.Minute)
		l.end()
	})
}

// TestKilledBeforeEverything checks a process that dies before its handlers have received
// everything once: a deletion that they have not received comes in the next one.
func TestKilledBeforeEverything(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		block := make(chan struct{})
		l := w.open()
		l.addHandler(slowly{enqueue{l}, func() {
			if len(l.received()) > 0 {
				<-block
			}
		}})
		l.run()
		l.begin()
		w.pass(time.Minute)
		l.want("before", "owner-a")
		w.drop("a")
		w.pass(time.Minute)
		next := l.image()
		close(block)
		l.end()
		w.path = next
		l = w.start(1).begin()
		l.want("after the kill", "owner-a", "owner-b")
		l.end()
	})
}

// TestResetOfShared checks that a reset also forgets what was shared: for this process,
// for another one that takes over next, and if this one dies before that.
func TestResetOfShared(t *testing.T) {
	for name, failing := range map[string]bool{"at once": false, "in the second process": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				shared := w.shared()
				w.put("a", "owner-a")
				w.put("b", "owner-b")
				l := w.start(1).begin()
				l.want("at first", "owner-a", "owner-b")
				l.end()
				l = w.replica().start(1).begin()
				other := l.w
				l.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: "later"}, 10*time.Hour)
				w.pass(time.Minute)
				l.end()
				w.inFile(func(db *bolt.DB) error { return durable.Reset(t.Context(), db, "test") })
				if failing {
					shared.fail(errors.New("forbidden"))
					l = w.start(1).begin()
					w.pass(time.Minute)
					l.end()
					shared.fail(nil)
				}
				shared.with(func() { shared.lost = true })
				l = w.start(1).begin()
				w.pass(5 * time.Second)
				l.want("after a reset", "owner-a", "owner-b")
				if s := l.consumer.Status(); s.Delayed != 0 || s.Term != 4 || strings.Contains(shared.document(), "later") {
					t.Errorf("after a reset: %+v, and shared: %s", s, shared.document())
				}
				l.dies(shared)
				l = other.start(1).begin()
				w.pass(5 * time.Second)
				if s := l.consumer.Status(); s.Delayed != 0 {
					t.Errorf("on another node: %+v", s)
				}
				l.end()
			})
		})
	}
}

// TestStored checks what is said of consumers without a process, and that a reset makes
// handlers receive everything.
func TestStored(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		l := w.start(1)
		l.work = func(name string) outcome { return outcome{err: name == "owner-b"} }
		l.begin()
		l.end()
		db, err := bolt.Open(w.path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		found, err := durable.Stored(t.Context(), db)
		if err != nil || len(found) != 1 || found[0].Name != "test" || found[0].Version != "1" ||
			found[0].Delayed != 1 || found[0].Failed != 1 || len(found[0].Scopes) != 1 || found[0].Scopes[0].ResourceVersion != "3" {
			t.Errorf("stored: %+v, %v", found, err)
		}
		if err := durable.Reset(t.Context(), db, "none"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("reset of none: %v", err)
		}
		if err := durable.Reset(t.Context(), db, "test"); err != nil {
			t.Error(err)
		}
		if found, err = durable.Stored(t.Context(), db); err != nil || len(found) != 0 {
			t.Errorf("stored after a reset: %+v, %v", found, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		l = w.start(1).begin()
		l.want("after a reset", "owner-a", "owner-b")
		l.end()
	})
}
