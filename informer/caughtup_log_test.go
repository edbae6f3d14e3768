package informer_test

import (
	"testing"
	"time"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// TestCaughtUpBetween checks that a change that a process catches up on was made after
// the last process had caught up, also if that found no change, in a resumed watch or by
// a list.
func TestCaughtUpBetween(t *testing.T) {
	for name, expired := range map[string]bool{"watch": false, "list": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				w.run(informer.Options{}).sync().end()
				waitFor(time.Hour)
				if expired {
					w.server.Advance()
					if err := w.server.Compact(w.server.RV()); err != nil {
						t.Fatal(err)
					}
				}
				before := time.Now()
				w.run(informer.Options{}).sync().end()
				waitFor(time.Hour)
				after := time.Now()
				w.put("a", "2")
				waitFor(time.Hour)
				w.run(informer.Options{}).sync().end()
				db := w.open()
				defer func() { _ = db.Close() }()
				infos, err := db.Scopes()
				if err != nil {
					t.Fatal(err)
				}
				s, err := db.Open(infos[0].Scope, store.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				changes := 0
				for e, err := range s.Follow(t.Context(), store.Place{}) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Mark != nil && changes > 0 {
						break
					}
					if e.Mark != nil {
						continue
					}
					if changes++; e.Since.Before(before) || e.Since.After(after) {
						t.Errorf("the change was made since %s, want from %s to %s", e.Since, before, after)
					}
				}
			})
		})
	}
}
