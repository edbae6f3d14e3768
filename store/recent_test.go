package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/informctl/informctl/internal/clocktest"
	"github.com/informctl/informctl/store"
)

// note notes a change with a resource version.
func note(r *store.Recent, rv int) {
	text := strconv.Itoa(rv)
	r.Note(store.Batch{RV: text}, []store.Event{{Key: "a/" + text, RV: text}}, text)
}

// followed returns a log that has been followed, so that it notes changes.
func followed(t *testing.T) *store.Recent {
	t.Helper()
	var r store.Recent
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range r.Follow(ctx, store.Place{}, nil) {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("follow: %v", err)
		}
	}
	return &r
}

// TestRecentDropsSeldom checks that a full log in memory, which is copied when events are
// dropped, is not copied for each change.
func TestRecentDropsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := followed(t)
		drops, before := 0, uint64(0)
		for i := range 30_000 { // each is an entry and a mark
			if note(r, i+1); i%100 != 99 {
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

// TestRecentAhead checks that who follows a log in memory from a resource version that is
// not reached waits for it, with changes or without.
func TestRecentAhead(t *testing.T) {
	for name, rv := range map[string]int{"a change": 0, "a bookmark": 1, "never": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r store.Recent
				r.Note(store.Batch{RV: "10"}, nil, "10")
				ctx, cancel := context.WithCancel(t.Context())
				var got []string
				var last error
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for e, err := range r.Follow(ctx, store.Place{RV: "12"}, nil) {
						if last = err; err == nil && e.Mark == nil {
							got = append(got, e.Key)
						}
					}
				}()
				<-time.After(time.Minute)
				note(&r, 11)
				synctest.Wait()
				switch rv {
				case 0:
					note(&r, 12)
				case 1:
					r.Note(store.Batch{RV: "12"}, nil, "12")
				}
				synctest.Wait()
				if rv < 2 {
					note(&r, 13)
				}
				synctest.Wait()
				cancel()
				<-ended
				if want := "[a/13]"; rv < 2 && fmt.Sprint(got) != want {
					t.Errorf("followed %v, want %s", got, want)
				}
				if errors.Is(last, store.ErrAhead) != (rv == 2) || !errors.Is(last, context.Canceled) {
					t.Errorf("it has ended with %v", last)
				}
			})
		})
	}
}

// TestClockSetBack checks that nothing is said to be as of a time to come after the clock
// was set back under a process: neither a checkpoint nor what a list has found.
func TestClockSetBack(t *testing.T) {
	before := clocktest.Stepped(-time.Hour)
	c := store.Batch{Reason: "expired"}.Checkpoint(store.Checkpoint{RV: "10", Time: before})
	if c.Time.Round(0).After(time.Now()) {
		t.Errorf("the checkpoint is of %s", c.Time)
	}
	r := followed(t)
	r.Note(store.Batch{RV: "10", Time: before}, []store.Event{{Key: "a/one", RV: "10"}}, "10")
	place := r.State().Last
	r.ListBegun()
	r.Note(store.Batch{RV: "11"}, []store.Event{{Key: "a/one", RV: "11"}}, "11")
	for e, err := range r.Follow(t.Context(), place, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Since.Round(0).After(e.Time) {
			t.Errorf("an event of %s was made since %s", e.Time, e.Since)
		}
		if e.Mark == nil && e.Since.IsZero() {
			t.Error("an event of a list does not say since when")
		}
		if e.Mark != nil {
			break
		}
	}
}
