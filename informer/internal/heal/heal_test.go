package heal_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/store"
)

// lists are the lists that a State has requested.
type lists struct{ atomic.Int64 }

func (l *lists) request(string) { l.Add(1) }

// opened returns the State of an informer that has opened a store without a list.
func opened(t *testing.T) (*heal.State, *lists) {
	t.Helper()
	s := heal.New(func() func() { return func() {} })
	requested := &lists{}
	if !s.Claim() || s.Claim() {
		t.Fatal("an informer is not started once")
	}
	s.Open(t.Context(), heal.Opened{Show: func() {}, Relist: requested.request})
	return s, requested
}

// changes returns a batch that changes objects.
func changes(keys ...string) store.Batch {
	var b store.Batch
	for _, key := range keys {
		b.Changes = append(b.Changes, store.Change{Key: key})
	}
	return b
}

func TestPhases(t *testing.T) {
	s, _ := opened(t)
	want := func(p heal.Phase) {
		t.Helper()
		if got := s.Life().Phase(); got != p {
			t.Errorf("phase %d, want %d", got, p)
		}
	}
	want(heal.Loading)
	s.Begin()
	s.Listed("1")
	want(heal.CatchingUp)
	if err := s.CatchUp(t.Context()); err != nil {
		t.Error(err)
	}
	want(heal.Current)
	s.End()
	want(heal.Ended)
	if !s.Life().IsOpened() || !s.Life().IsCaughtUp() {
		t.Error("the end has changed what was reached")
	}
}

// TestRejected is an object that keeps the resource version back until it is stored, also
// over a list that breaks.
func TestRejected(t *testing.T) {
	s, _ := opened(t)
	bad := map[string]error{"a": errors.New("bad")}
	if !s.Store(t.Context(), changes("b"), bad) {
		t.Error("a rejected object does not freeze the resource version")
	}
	l := s.Begin()
	if s.Store(t.Context(), changes("b"), nil) {
		t.Error("a list begins frozen")
	}
	l.Break()
	if got := s.Report().Rejected; !cmp.Equal(got, []string{"a"}) {
		t.Errorf("after a broken list %q are rejected", got)
	}
	l = s.Begin()
	s.Store(t.Context(), changes("a"), bad)
	l.Stored(changes("a"))
	if why := s.Listed("2"); why == "" {
		t.Error("a list with a rejected object may be stored with its resource version")
	}
	if s.Store(t.Context(), changes("a"), nil) {
		t.Error("an object that can be stored freezes the resource version")
	}
}

// TestOneListAMinute is damage that lists do not repair.
func TestOneListAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, requested := opened(t)
		for range 3 {
			s.Lose(t.Context(), store.ErrCorrupt)
		}
		if n := requested.Load(); n != 1 {
			t.Errorf("%d lists are requested at once", n)
		}
		<-time.After(61 * time.Second)
		synctest.Wait()
		if n := requested.Load(); n != 2 {
			t.Errorf("%d lists are requested in a minute", n)
		}
		s.Begin()
		s.Listed("1")
		<-time.After(2 * time.Minute)
		if n := requested.Load(); n != 2 {
			t.Errorf("%d lists are requested, though nothing is missing", n)
		}
		s.End()
	})
}

// TestWhole is a read that waits until a list has repaired the store.
func TestWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, requested := opened(t)
		var repaired atomic.Bool
		done := make(chan error, 1)
		go func() {
			done <- s.Whole(func() error {
				if repaired.Load() {
					return nil
				}
				return store.ErrCorrupt
			})
		}()
		synctest.Wait()
		if n := requested.Load(); n != 1 {
			t.Fatalf("%d lists are requested", n)
		}
		repaired.Store(true)
		s.Begin()
		s.Listed("1")
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.End()
		if err := s.Whole(func() error { return store.ErrCorrupt }); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := opened(t)
		wait := func(ctx context.Context, rv string) chan error {
			done := make(chan error, 1)
			go func() { done <- s.Await(ctx, rv) }()
			synctest.Wait()
			return done
		}
		reached := wait(t.Context(), "5")
		s.Begin()
		s.Listed("4")
		s.Applied("5")
		if err := <-reached; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		canceled := wait(ctx, "6")
		cancel()
		if err := <-canceled; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		stopped := wait(t.Context(), "6")
		s.SetForeign("another cluster")
		s.Applied("6") // of another cluster
		s.End()
		if err := <-stopped; !errors.Is(err, heal.ErrStopped) {
			t.Errorf("got %v", err)
		}
	})
}
