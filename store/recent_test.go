package store_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/informctl/informctl/store"
)

// note notes a change with a resource version.
func note(r *store.Recent, rv int) {
	text := strconv.Itoa(rv)
	r.Note(store.Batch{RV: text}, []store.Event{{Key: "a/" + text, RV: text}}, text)
}

// TestRecentDropsSeldom checks that a full log in memory, which is copied when events are
// dropped, is not copied for each change.
func TestRecentDropsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r store.Recent
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range r.Follow(ctx, store.Place{}, nil) {
		}
		drops, before := 0, uint64(0)
		for i := range 30_000 { // each is an entry and a mark
			if note(&r, i+1); i%100 != 99 {
				continue
			}
			s := r.State()
			if s.Dropped != before {
				drops, before = drops+1, s.Dropped
			}
			if i >= 10_000 && s.Entries < 4096 {
				t.Errorf("%d entries are kept of %d", s.Entries, i+1)
			}
		}
		if drops == 0 || drops > 10 {
			t.Errorf("events were dropped %d times, want a few times", drops)
		}
	})
}
