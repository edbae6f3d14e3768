package informer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// TestDeletedWhileDown checks that objects that were deleted while the process was down
// also reach handlers that are added after HasSynced, as controller-runtime's are: after
// a resumed watch, and after a list because history was lost.
func TestDeletedWhileDown(t *testing.T) {
	for name, expired := range map[string]bool{"watch": false, "list": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				w.put("b", "1")
				w.put("c", "1")
				w.run(informer.Options{}).sync().end()
				w.drop("a")
				w.put("b", "2")
				w.drop("c")
				w.put("c", "again") // re-created under a new UID
				gone, again := "delete a@5=1", "delete c@7=1"
				if expired {
					gone, again = "delete tombstone a@2=1", "delete tombstone c@4=1"
					if err := w.server.Compact(w.server.RV()); err != nil {
						t.Fatal(err)
					}
				}
				first, soon, late := &log{}, &log{}, &log{}
				r := w.run(informer.Options{}, handle(w, first)).sync()
				handle(w, soon)(r.inf)
				want := []string{"initial a@2=1", gone, "initial c@4=1", again, "initial b@6=2", "initial c@8=again"}
				w.want(soon, want...)
				w.put("d", "1")
				w.want(soon, "add d@9=1")
				w.drop("d") // not departed: created and deleted in this process
				w.want(soon, "delete d@10=1")
				waitFor(3 * time.Minute)
				handle(w, late)(r.inf)
				w.want(late, want...)
				r.end()

				r = w.run(informer.Options{}, handle(w, late)).sync()
				// The previous process has sent the rest.
				w.want(late, "initial b@6=2", "initial c@8=again")
				r.end()
			})
		})
	}
}

// TestNotifyUnchanged checks that with the option every relist of a running informer ends
// with an update for each object.
func TestNotifyUnchanged(t *testing.T) {
	for _, notify := range []bool{false, true} {
		inBubble(t, func(w *world) {
			w.put("a", "1")
			w.put("b", "1")
			l := &log{}
			r := w.run(informer.Options{NotifyUnchanged: notify}, handle(w, l)).sync()
			w.want(l, "initial a@2=1", "initial b@3=1")
			w.server.Advance()
			if err := w.server.Compact(w.server.RV()); err != nil {
				t.Fatal(err)
			}
			w.server.Advance()
			w.server.CloseWatches()
			waitFor(2 * time.Minute)
			if notify {
				w.want(l, "update a@2=1 a@2=1", "update b@3=1 b@3=1")
			} else {
				w.want(l)
			}
			r.end()
		})
	}
}

// TestDeletedWhileDownLoaded checks the same with Loaded, where the informer syncs before
// it has caught up.
func TestDeletedWhileDownLoaded(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		w.drop("a")
		r := w.run(informer.Options{SyncWhen: informer.Loaded}).sync()
		waitFor(10 * time.Second)
		late := &log{}
		handle(w, late)(r.inf)
		w.want(late, "initial a@2=1", "delete a@4=1", "initial b@3=1")
		r.end()
	})
}

// TestDeletedBeforeHandler checks that a handler that is added when its process becomes
// the leader receives the objects that were deleted since the start, however late it is
// added. If no handler was added before the process ended, a handler of the next process
// receives them.
func TestDeletedBeforeHandler(t *testing.T) {
	for name, backend := range map[string]store.Backend{"bolt": nil, "mem": mem.New()} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				opts := informer.Options{Backend: backend}
				w.put("a", "1")
				w.put("b", "1")
				w.put("c", "1")
				w.run(opts).sync().end()
				w.drop("a") // 5
				r := w.run(opts).sync()
				w.drop("b")     // 6
				w.put("b", "2") // 7
				w.put("d", "1") // 8
				w.drop("d")     // 9: created and deleted
				waitFor(time.Hour)
				r.end()

				w.drop("c") // 10
				r = w.run(opts).sync()
				waitFor(150 * time.Second)
				first, late := &log{}, &log{}
				handle(w, first)(r.inf)
				// The second b had replaced the first when this process started.
				want := []string{"initial a@2=1", "delete a@5=1", "initial c@4=1", "delete c@10=1", "initial b@7=2"}
				w.want(first, want...)
				w.drop("b") // 11
				w.want(first, "delete b@11=2")
				handle(w, late)(r.inf)
				w.want(late, append(want[:4:4], "initial b@7=2", "delete b@11=2")...)
				r.end()

				next := &log{}
				r = w.run(opts, handle(w, next)).sync()
				w.want(next) // everything was received
				r.end()
			})
		})
	}
}

// TestDeletionNotTold checks that a deletion that a slow handler has not received when
// the process ends is sent by the next process.
func TestDeletionNotTold(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		gate := make(chan struct{})
		slow := &log{hook: func(line string) {
			if line == "update a@2=1 a@4=2" {
				<-gate
			}
		}}
		r := w.run(informer.Options{}, handle(w, slow)).sync()
		w.put("a", "2")
		w.drop("b")
		waitFor(time.Minute) // until it is in the file
		r.stop()
		synctest.Wait()
		close(gate)
		r.end()
		if contains(slow.take(), "delete") {
			t.Fatal("the handler was told of the deletion")
		}
		l := &log{}
		r = w.run(informer.Options{}, handle(w, l)).sync()
		w.want(l, "initial b@3=1", "delete b@5=1", "initial a@4=2")
		r.end()
	})
}

// TestRemovedBeforeTold checks that a deletion that a handler has not received when it is
// removed is sent by the next process, although all other handlers have received it,
// unless a handler that was added later has received it, too.
func TestRemovedBeforeTold(t *testing.T) {
	type process struct {
		*run
		slow   cache.ResourceEventHandlerRegistration
		remove func(cache.ResourceEventHandlerRegistration)
		free   func() // ends the call in which the slow handler is
	}
	stop := func(p process) {
		p.stop()
		synctest.Wait()
		p.free()
		<-p.done
	}
	add := func(p process, l *log) cache.ResourceEventHandlerRegistration {
		handle, err := p.inf.AddEventHandler(l)
		if err != nil {
			t.Error(err)
		}
		return handle
	}
	for name, test := range map[string]struct {
		inUpdate bool // the slow handler is in an update before the deletion, else in it
		do       func(process)
		settled  bool // the next process is not told of the deletion
	}{
		"before the end": {inUpdate: true, do: func(p process) {
			p.remove(p.slow)
			p.free()
			waitFor(time.Minute)
		}},
		"after the end": {inUpdate: true, do: func(p process) {
			stop(p)
			p.remove(p.slow)
		}},
		"another one is added": {inUpdate: true, settled: true, do: func(p process) {
			p.remove(p.slow)
			p.free()
			add(p, &log{})
			waitFor(time.Minute)
		}},
		"another one is added, and removed": {inUpdate: true, do: func(p process) {
			p.remove(p.slow)
			gate := make(chan struct{})
			other := add(p, &log{hook: func(string) { <-gate }})
			synctest.Wait()
			p.remove(other)
			close(gate)
			p.free()
			waitFor(time.Minute)
		}},
		"another one of two is added": {inUpdate: true, do: func(p process) {
			gate := make(chan struct{})
			second := add(p, &log{hook: func(string) { <-gate }})
			synctest.Wait()
			p.remove(p.slow)
			p.remove(second)
			close(gate)
			p.free()
			add(p, &log{})
			waitFor(time.Minute)
		}},
		"in its deletion, another one is added, and a second removed": {do: func(p process) {
			gate := make(chan struct{})
			second := add(p, &log{hook: func(string) { <-gate }})
			synctest.Wait()
			p.remove(p.slow)
			add(p, &log{})
			p.remove(second)
			close(gate)
			p.free()
			waitFor(time.Minute)
		}},
		"in its deletion": {settled: true, do: func(p process) {
			p.remove(p.slow)
			p.free()
			waitFor(time.Minute)
		}},
		"in its deletion, which does not end before the informer": {do: func(p process) {
			p.remove(p.slow)
			stop(p)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				w.put("b", "1")
				w.run(informer.Options{}).sync().end()
				in := "delete b@5=1"
				if test.inUpdate {
					in = "update a@2=1 a@4=2"
				}
				gate := make(chan struct{})
				slow := &log{hook: func(line string) {
					if line == in {
						<-gate
					}
				}}
				p := process{run: w.run(informer.Options{}, handle(w, &log{})), free: func() { close(gate) }}
				p.remove = func(h cache.ResourceEventHandlerRegistration) {
					if err := p.inf.RemoveEventHandler(h); err != nil {
						t.Error(err)
					}
				}
				p.slow = add(p, slow)
				p.sync()
				w.put("a", "2")
				w.drop("b")
				waitFor(time.Minute) // until it is in the file
				test.do(p)
				p.end()

				l := &log{}
				next := w.run(informer.Options{}, handle(w, l)).sync()
				want := []string{"initial b@3=1", "delete b@5=1", "initial a@4=2"}
				if test.settled {
					want = want[2:]
				}
				w.want(l, want...)
				next.end()
				// What a removed handler is owed ends with its process.
				next = w.run(informer.Options{}, handle(w, l)).sync()
				w.want(l, "initial a@4=2")
				next.end()
			})
		})
	}
}
