package delivery_test

import (
	"context"
	"iter"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

// trimmed is a shelf whose log does not lead on from any place.
type trimmed struct{ *shelf }

func (trimmed) Flush(context.Context) error { return nil }
func (trimmed) History() (store.LogState, error) {
	return store.LogState{Last: store.Place{Lineage: "l", Mark: 1, RV: "1001"}}, nil
}

func (trimmed) Follow(context.Context, store.Place) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) { yield(store.Event{}, store.ErrTrimmed) }
}

type resumed struct {
	cache.ResourceEventHandler
	from store.Place
}

func (r *resumed) Opened(f resume.Feed)  { f.Begin(r.from, false) }
func (*resumed) Lost(resume.Feed, error) {}
func (*resumed) Removed(resume.Feed)     {}

// TestNewerIsSpilled checks that a handler which goes on from a resource version does not
// receive objects that are not newer, although their adds were spilled.
func TestNewerIsSpilled(t *testing.T) {
	for _, small := range []bool{false, true} {
		t.Run(strconv.FormatBool(small), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1000) // RV 1 to 1000
				if small {
					w.hub.Limits = delivery.Limits{First: 4 << 10, Chunk: 4 << 10, Files: 1 << 30}
				}
				w.shelf.objects.Set(keyOf(0), w.object(keyOf(0))) // RV 1001
				gate := make(chan struct{})
				var mu sync.Mutex
				older := 0
				w.hub.Add(&resumed{ResourceEventHandler: cache.ResourceEventHandlerFuncs{
					AddFunc: func(obj any) {
						<-gate
						mu.Lock()
						defer mu.Unlock()
						if rv, _ := strconv.Atoi(obj.(*object).ResourceVersion); rv <= 1000 {
							older++
						}
					},
				}, from: store.Place{RV: "1000"}}, delivery.Options{})
				w.whole = true
				w.hub.Begin()
				if _, err := w.hub.Open(trimmed{&w.shelf}, true); err != nil {
					t.Fatal(err)
				}
				w.hub.MarkSynced()
				synctest.Wait()
				for i := range 500 {
					w.set(keyOf(500+i), false)
				}
				close(gate)
				synctest.Wait()
				mu.Lock()
				if older > 0 {
					t.Errorf("added %d objects that are not newer than the handler's place", older)
				}
				mu.Unlock()
				w.hub.End()
				w.hub.Wait()
			})
		})
	}
}

// departs is a shelf whose departed objects cannot be read at first, and whose log does
// not lead on.
type departs struct {
	trimmed
	mended chan struct{}
}

func (d departs) Departed(after uint64, _ int) ([]store.Departed, error) {
	select {
	case <-d.mended:
	default:
		return nil, errBroken
	}
	if after > 0 {
		return nil, nil
	}
	gone := &object{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	return []store.Departed{{Number: 1, Before: store.Entry{Key: "gone", Object: gone}}}, nil
}

func (departs) Settle()                         {}
func (departs) Unsettle()                       {}
func (departs) Compares() bool                  { return false }
func (departs) Departures() (kept, dropped int) { return 1, 0 }

// TestNewerWithoutLog checks a handler that goes on from a resource version where there
// is no log: it receives what has departed, and what is deleted until that can be read.
func TestNewerWithoutLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		c := &noted{begin: func(f resume.Feed) { f.Begin(store.Place{RV: "1"}, false) }}
		w.hub.Add(goesOn{c}, delivery.Options{})
		w.whole = true
		w.hub.Begin()
		shelf := departs{trimmed{&w.shelf}, make(chan struct{})}
		if _, err := w.hub.Open(shelf, true); err != nil {
			t.Fatal(err)
		}
		w.hub.MarkSynced()
		synctest.Wait()
		w.set(keyOf(5), false)
		w.set(keyOf(5), true)
		c.want(t, "while it cannot be read", "delete o-0005")
		close(shelf.mended)
		w.hub.Urge()()
		c.want(t, "after that", "add gone", "delete gone", "add o-0001")
		w.end()
	})
}

// full is a shelf on a disk that is full. Its log ends before what was applied last.
type full struct {
	*shelf
	log []store.Event
}

func (full) Flush(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (f full) History() (store.LogState, error) {
	return store.LogState{Last: f.log[len(f.log)-1].Mark.Place}, nil
}

func (f full) Follow(context.Context, store.Place) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for _, e := range f.log {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// TestGoesOnWithoutWrites checks a handler that goes on from the log while nothing can be
// written: it receives what the log has, with the present states, and then everything. It
// has no new place, since a deletion may be missing.
func TestGoesOnWithoutWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		at := func(n uint64) store.Place { return store.Place{Lineage: "l", Mark: n, Random: n, RV: "1"} }
		state := func(key string) *store.Version {
			obj := &object{ObjectMeta: metav1.ObjectMeta{Name: key, ResourceVersion: "1"}}
			return &store.Version{Header: store.Header{Key: key, RV: "1"}, Entry: store.Entry{Key: key, Object: obj}}
		}
		shelf := full{&w.shelf, []store.Event{
			{Key: keyOf(1), RV: "1", Old: state(keyOf(1)), New: state(keyOf(1))},
			{Key: "deleted", RV: "1", Old: state("deleted")},
			{Key: "came", RV: "1", New: state("came")},                     // it is gone
			{Key: "gone", RV: "1", Old: state("gone"), New: state("gone")}, // it is, too
			{Key: "gone", RV: "1", Old: state("gone"), New: state("gone")}, // once more
			{Key: "came", RV: "1", Old: state("came"), New: state("came")}, // once more
			{Mark: &store.Mark{Place: at(2)}},
		}}
		c := &noted{begin: func(f resume.Feed) { f.Begin(at(1), false) }}
		w.hub.Add(goesOn{c}, delivery.Options{})
		w.whole = true
		w.hub.Begin()
		if _, err := w.hub.Open(shelf, true); err != nil {
			t.Fatal(err)
		}
		w.hub.MarkSynced()
		c.want(t, "while it may be written yet")
		<-time.After(time.Minute)
		c.want(t, "then", "update o-0001", "delete deleted", "delete gone", "add o-0000", "add o-0001")
		w.set(keyOf(0), true)
		c.want(t, "after that", "delete o-0000")
		if _, _, ok := c.feed.Mark(); ok {
			t.Error("it has a new place")
		}
		w.end()
	})
}
