package durable_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
)

// lineages are what begins another lineage while no process runs, or makes handlers
// receive everything: a place tells nothing then, so a deletion is known only as one of
// an object that has departed. The object is a, and its owner is owner-a.
var lineages = map[string]func(w *world, before string){
	"another transform": func(w *world, _ string) {
		w.drop("a")
		w.transform = "2"
	},
	"a restored server": func(w *world, before string) {
		if err := w.server.Rewind(before); err != nil {
			w.Fatal(err)
		}
	},
	"another version": func(w *world, _ string) {
		w.drop("a")
		w.opts.Version = "2"
	},
}

// inLineages calls f for each of lineages, when a process has worked on a and b and the
// lineage has changed. Commits take no time.
func inLineages(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	for name, begin := range lineages {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("b", "owner-b")
				before := w.server.RV()
				w.put("a", "owner-a")
				l := w.start(1).begin()
				l.want("the first leader", "owner-a", "owner-b")
				w.pass(time.Minute)
				l.end()
				begin(w, before)
				w.commits = 10 * time.Millisecond
				f(t, w)
			})
		})
	}
}

// hasWorked reports whether an owner was worked on.
func (l *life) hasWorked(owner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.worked[owner] > 0
}

// wantDeletion checks that the next leader works on owner-a.
func (w *world) wantDeletion(what string) {
	w.Helper()
	l := w.start(1).begin()
	w.pass(time.Minute)
	if !l.hasWorked("owner-a") {
		w.Errorf("%s: the deletion of a was never worked on", what)
	}
	l.end()
}

// TestKilledBeforeLedger checks a process that dies when its handler has returned from a
// deletion, before and after the key is written: the next one works on it.
func TestKilledBeforeLedger(t *testing.T) {
	for _, after := range []time.Duration{20 * time.Millisecond, 900 * time.Millisecond, 3 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			inLineages(t, func(_ *testing.T, w *world) {
				l := w.start(1) // its worker has not begun
				w.pass(after)
				l.kill()
				w.wantDeletion("after the kill")
			})
		})
	}
}

// TestKilledBeforeFirstLedger checks the same at the first start of a consumer.
func TestKilledBeforeFirstLedger(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(0)
		w.pass(time.Minute)
		l.end()
		w.drop("a")
		w.commits = 10 * time.Millisecond
		l = w.start(1)
		w.pass(300 * time.Millisecond)
		l.kill()
		w.wantDeletion("after the kill")
	})
}

// TestStandbyConfirmsNothing checks processes that never lead: whatever handlers they
// have, the next leader receives the deletions that they have seen.
func TestStandbyConfirmsNothing(t *testing.T) {
	standbys := map[string]func(l *life){
		"no handler":  func(*life) {},
		"one handler": func(l *life) { l.addHandler(enqueue{l}) },
		"beside another one that does not wait": func(l *life) {
			l.addHandler(enqueue{l})
			l.other(func(string) {})
		},
		"none yet beside another one": func(l *life) { l.other(func(string) {}) },
		"removed beside another one": func(l *life) {
			r, err := l.inf.AddEventHandler(l.consumer.Handler(enqueue{l}))
			if err != nil {
				l.w.Fatal(err)
			}
			l.other(func(string) {})
			l.w.pass(time.Second)
			if err := l.inf.RemoveEventHandler(r); err != nil {
				l.w.Fatal(err)
			}
		},
	}
	for name, prepare := range standbys {
		t.Run(name, func(t *testing.T) {
			inLineages(t, func(_ *testing.T, w *world) {
				w.opts.Elected = make(chan struct{})
				l := w.start(0)
				prepare(l)
				l.begin()
				w.pass(time.Minute)
				l.want("a standby")
				l.end()
				w.opts.Elected = nil
				w.wantDeletion("after the standby")
			})
			t.Run("trimmed", func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.put("a", "owner-a")
					l := w.start(1).begin()
					w.pass(time.Minute)
					l.end()
					w.drop("a")
					w.opts.Elected = make(chan struct{})
					l = w.start(0)
					prepare(l)
					l.begin()
					for range 10 { // until the log does not reach back to the place
						w.pass(20 * time.Minute)
						w.put("c", "owner-c")
					}
					w.pass(time.Minute)
					l.want("a standby")
					l.end()
					w.opts.Elected = nil
					w.wantDeletion("after the standby")
				})
			})
		})
	}
}

// TestConfirmed checks that what the ledger has is not kept: neither when deletions never
// end, nor those of a process before.
func TestConfirmed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commits = 10 * time.Millisecond
		for i := range 60 {
			w.put(fmt.Sprint("o", i), "owner")
		}
		l := w.start(1).begin()
		w.pass(5 * time.Second)
		l.end()
		l = w.start(1).begin()
		for i := range 40 {
			w.drop(fmt.Sprint("o", i))
			w.pass(300 * time.Millisecond)
		}
		l.kill()
		l = w.start(1).begin()
		if n := l.inf.Status().Departed; n == 0 || n > 10 {
			t.Errorf("%d objects are kept after the kill, want those of the last two or three seconds", n)
		}
		w.pass(5 * time.Second)
		l.kill()
		l = w.start(0)
		if n := l.inf.Status().Departed; n > 0 {
			t.Errorf("%d objects are kept after a quiet process, want none", n)
		}
		l.end()
	})
}

// TestDeposedConfirmsNothing checks that a process that writes nothing any more confirms
// nothing, however long it goes on.
func TestDeposedConfirmsNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		l = w.start(1).begin()
		w.pass(time.Minute)
		other, elected := w.replica().standby()
		close(elected)
		w.put("c", "owner-c") // what it shares then shows that it is deposed
		w.pass(time.Minute)
		if s := l.consumer.Status(); s.State != durable.Deposed {
			t.Errorf("the state is %s", s.State)
		}
		w.drop("a")
		w.pass(time.Minute)
		other.dies(shared)
		l.kill()
		l = w.start(0)
		if n := l.inf.Status().Departed; n != 1 {
			t.Errorf("%d objects are kept, want the one that was deleted", n)
		}
		l.end()
	})
}

// TestLostAfterDeparted checks that a handler which receives everything anyway receives
// what has departed once, although its place turns out to be lost after that.
func TestLostAfterDeparted(t *testing.T) {
	inLineages(t, func(_ *testing.T, w *world) {
		w.opts.Version, w.transform = "3", "3"
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.wantCalls("after an upgrade", "initial add a of owner-a", "delete a of owner-a", "initial add b of owner-b")
		l.end()
	})
}

// TestTakeOverAfterUpgrade checks a successor whose log does not reach back to the place
// of the leader: it receives what its own file knows to be deleted.
func TestTakeOverAfterUpgrade(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		other := w.replica()
		standby, _ := other.standby()
		l := w.start(1).begin()
		l.want("the leader", "owner-a", "owner-b")
		w.pass(time.Minute)
		standby.end()
		l.dies(shared)
		w.drop("a") // while no process runs
		other.transform, other.opts.Elected = "2", nil
		l = other.start(1).begin()
		w.pass(time.Minute)
		l.wantCalls("the successor", "initial add a of owner-a", "delete a of owner-a")
		l.want("the successor", "owner-a")
		l.end()
	})
}

// told notes the calls of a handler beside those of the consumer.
func (l *life) told() (calls func() []string) {
	var mu sync.Mutex
	var all []string
	l.other(func(call string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, call)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestGracefulEnd checks that what a consumer confirms when it is closed, after its
// informers have ended, is told to no handler again.
func TestGracefulEnd(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		for i := range 3 {
			l := w.open()
			l.addHandler(enqueue{l})
			calls := l.told()
			l.run()
			l.begin()
			w.pass(time.Minute)
			if i == 0 {
				w.drop("a")
				w.pass(500 * time.Millisecond)
			} else if got := calls(); len(got) != 1 {
				t.Errorf("start %d: %q, want one add", i, got)
			}
			l.end()
		}
	})
}

// TestDroppedAtEnd checks that a deletion which a slow handler has not received when the
// informer ends is told to the next process.
func TestDroppedAtEnd(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()

		l = w.open()
		l.addHandler(enqueue{l})
		deleted := 0
		updates := 0
		for _, h := range []cache.ResourceEventHandlerFuncs{
			{UpdateFunc: func(_, _ any) { <-time.After(10 * time.Second) }, DeleteFunc: func(any) { deleted++ }},
			{UpdateFunc: func(_, _ any) {
				if updates++; updates == 2 {
					<-time.After(30 * time.Second) // so that the end takes long
				}
			}},
		} {
			if _, err := l.inf.AddEventHandler(h); err != nil {
				t.Fatal(err)
			}
		}
		l.run()
		l.begin()
		w.pass(time.Minute)
		w.put("b", "owner-b") // the first is slow
		w.pass(time.Second)
		w.drop("a")
		w.pass(time.Second)
		w.put("b", "owner-b") // the second, too
		w.pass(time.Second)
		l.end()

		l = w.open()
		l.addHandler(enqueue{l})
		calls := l.told()
		l.run()
		l.begin()
		w.pass(time.Minute)
		if got := calls(); deleted+strings.Count(strings.Join(got, " "), "delete") == 0 {
			t.Errorf("the deletion was told to nobody; the next process: %q", got)
		}
		l.end()
	})
}

// TestKindWithoutHandler checks that what has departed is not kept for ever for a kind
// that the elected program has a place of, and no handler any more.
func TestKindWithoutHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		for i := range 3 {
			elected := make(chan struct{})
			close(elected)
			w.opts.Elected = elected
			l := w.open()
			calls := l.told()
			l.run()
			w.pass(15 * time.Minute)
			if i == 0 {
				w.drop("a")
				w.pass(time.Minute)
			} else if got := calls(); len(got) != 1 {
				t.Errorf("start %d: %q, want one add", i, got)
			}
			l.begin()
			l.end()
		}
	})
}
