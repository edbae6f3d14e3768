package audit_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/btree"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/audit"
)

// TestLoop audits a store that lacks an object, after each interval in which no list is
// due.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, batch("100", "a u 7 x"))
		var lists atomic.Int64
		var upToDate atomic.Bool
		var found []string
		ctx, cancel := context.WithCancel(t.Context())
		var loop audit.Loop
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			loop.Run(ctx, audit.LoopOptions{
				Interval: time.Hour, Store: s,
				List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					lists.Add(1)
					return &corev1.ConfigMapList{
						ListMeta: metav1.ListMeta{ResourceVersion: "100"},
						Items:    parse([]string{"a u 7 x", "b v 8 x"}),
					}, nil
				},
				Moment: func() (string, *btree.Set[string], bool) {
					var held btree.Set[string]
					held.Insert("a")
					return "100", &held, upToDate.Load()
				},
				Other:   func(first audit.Finding) { found = append(found, first.String()) },
				Differs: func(audit.Finding) { t.Error("another history was taken for another content") },
			})
		}()
		<-time.After(90 * time.Minute)
		synctest.Wait()
		if got := loop.Tally(); lists.Load() != 0 || got.Count != 0 {
			t.Errorf("%d lists, %d audits while a list is due", lists.Load(), got.Count)
		}
		upToDate.Store(true)
		<-time.After(90 * time.Minute)
		synctest.Wait()
		got := loop.Tally()
		if got.Count != 1 || got.Objects != 2 || got.Findings != 1 || got.First != "missing b" {
			t.Errorf("tally %+v", got)
		}
		cancel()
		<-ended
		if len(found) != 1 || found[0] != "missing b" {
			t.Errorf("found %q", found)
		}
	})
}

// TestLoopOfTheLongestInterval checks that the longest interval, to which nothing can be
// added, is no short one.
func TestLoopOfTheLongestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		var loop audit.Loop
		loop.Run(ctx, audit.LoopOptions{
			Interval: math.MaxInt64,
			Moment: func() (string, *btree.Set[string], bool) {
				t.Error("audited")
				cancel()
				return "", nil, false
			},
		})
	})
}

// TestLoopOfOtherContent audits a store whose object has other content at the same
// resource version, as after a new default of its type: that is no other history.
func TestLoopOfOtherContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, batch("100", "a u 7 x"))
		var found []string
		var breaks atomic.Bool
		breaks.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var loop audit.Loop
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			loop.Run(ctx, audit.LoopOptions{
				Interval: time.Hour, Store: s,
				List: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
					list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: parse([]string{"a u 7 y"})}
					switch {
					case opts.Continue != "":
						return nil, errors.New("the next page fails")
					case breaks.Load(): // what is left may show another history
						list.Continue = "next"
					}
					return list, nil
				},
				Moment: func() (string, *btree.Set[string], bool) {
					var held btree.Set[string]
					held.Insert("a")
					return "100", &held, true
				},
				Other:   func(audit.Finding) { t.Error("another content was taken for another history") },
				Differs: func(first audit.Finding) { found = append(found, first.String()) },
			})
		}()
		<-time.After(90 * time.Minute)
		if synctest.Wait(); len(found) > 0 {
			t.Errorf("an audit that broke has found %q", found)
		}
		breaks.Store(false)
		<-time.After(75 * time.Minute)
		cancel()
		<-ended
		if len(found) != 1 || found[0] != "content a" || loop.Tally().Count != 1 {
			t.Errorf("found %q, tally %+v", found, loop.Tally())
		}
	})
}
