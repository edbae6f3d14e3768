package informer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/informctl/informctl/informer"
)

// TestDeletedWhileDown: what was deleted while the process was down is told to
// handlers that come after HasSynced, too, as controller-runtime's do: by a watch
// that goes on, and by a list where history was lost.
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
				gone, again := "delete a@5=1", []string{"delete c@7=1", "initial c@8=again"}
				if expired {
					gone, again = "delete tombstone a@2=1", nil
					if err := w.server.Compact(w.server.RV()); err != nil {
						t.Fatal(err)
					}
				}
				first, soon, late := &log{}, &log{}, &log{}
				r := w.run(informer.Options{}, handle(w, first)).sync()
				handle(w, soon)(r.inf)
				want := []string{"initial a@2=1", gone}
				if !expired {
					want = append(want, "initial c@4=1", again[0])
				}
				want = append(want, "initial b@6=2", "initial c@8=again")
				w.want(soon, want...)
				w.put("d", "1")
				w.want(soon, "add d@9=1")
				w.drop("d") // no departure: the informer has synced
				synctest.Wait()
				waitFor(3 * time.Minute)
				handle(w, late)(r.inf)
				w.want(late, "initial b@6=2", "initial c@8=again")
				r.end()
			})
		})
	}
}

// TestNotifyUnchanged: with the option every new list of a running informer ends
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

// TestDeletedWhileDownLoaded: with Loaded a late handler is told, too, though the
// informer has synced before it caught up.
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
