package replay_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/informer/internal/delivery/replay"
	"github.com/informctl/informctl/store"
)

func entry(key, rv string) store.Entry {
	return store.Entry{Key: key, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key, ResourceVersion: rv}}}
}

func update(key, rv string) queue.Notification {
	return queue.Notification{Kind: queue.Updated, Key: key, New: entry(key, rv)}
}

func deletion(k queue.Kind, key, rv string) queue.Notification {
	return queue.Notification{Kind: k, Key: key, Old: entry(key, rv)}
}

// log is a Store with a log that a test has written.
type log struct {
	last          store.Place
	stored, above string
	events        []store.Event
}

func (*log) Entry(string) (store.Entry, bool, error) { return store.Entry{}, false, nil }
func (*log) Flush(context.Context) error             { return nil }

func (l *log) History() (store.LogState, error) {
	return store.LogState{Last: l.last, Stored: l.stored, Above: l.above}, nil
}

func (l *log) Follow(context.Context, store.Place) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for _, e := range l.events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func TestFences(t *testing.T) {
	var f replay.Fences
	f.Queue(3)
	fence, ok := f.Fence()
	f.Queue(1)
	f.Take(2)
	f.Return()
	if !ok || f.Passed(fence) || !f.IsBefore(fence, 0) || f.IsBefore(fence, 1) {
		t.Error("a fence is passed before the handler has returned from what is before it")
	}
	f.Take(2)
	f.Return()
	if !f.Passed(fence) {
		t.Error("a fence is not passed")
	}
	f.Queue(5)
	fence, _ = f.Fence()
	f.Drop()
	if !f.Passed(fence) {
		t.Error("a fence is not passed by what was dropped")
	}
	f.End()
	if _, ok := f.Fence(); !ok {
		t.Error("a handler that has returned from everything at its end has no fence")
	}
	f.Queue(1)
	if _, ok := f.Fence(); ok || !f.Passed(fence) {
		t.Error("a handler that has ended has a fence that it will not pass, or has lost one that it has")
	}
	f.Fail()
	if _, ok := f.Fence(); ok || f.Passed(fence) {
		t.Error("a handler that has failed passes fences")
	}
}

// TestHas is what was queued while the log was delivered, and is in the log or not.
func TestHas(t *testing.T) {
	tests := map[string]struct {
		n      queue.Notification
		waited bool
		want   bool
	}{
		"older":          {update("a", "4"), true, true},
		"the same":       {update("a", "5"), true, true},
		"newer":          {update("a", "6"), true, false},
		"queued since":   {update("a", "4"), false, false},
		"not in the log": {update("b", "4"), true, false},
		"deleted":        {deletion(queue.Deleted, "gone", "6"), true, true},
		"vanished":       {deletion(queue.Vanished, "gone", "6"), true, true},
		// Of a later object than the one that the log has.
		"vanished since": {deletion(queue.Vanished, "gone", "7"), true, false},
		"replaced":       {deletion(queue.Vanished, "a", "4"), true, true},
		"gone since":     {deletion(queue.Vanished, "a", "5"), true, false},
		"vanished alone": {deletion(queue.Vanished, "b", "4"), true, false},
	}
	for name, tt := range tests {
		r := resumption(t)
		if got := r.Has(tt.n, tt.waited); got != tt.want {
			t.Errorf("%s: the handler has it: %t, want %t", name, got, tt.want)
		}
	}
}

// resumption has received a from the log, and that gone was deleted.
func resumption(t *testing.T) *replay.Resumption {
	t.Helper()
	var r replay.Resumption
	r.Begin(store.Place{Lineage: "l", Mark: 1}, false)
	if !r.Note("a", replay.State{RV: "5"}) || !r.Note("gone", replay.State{RV: "6", Deleted: true}) {
		t.Fatal("a state of the log is left out")
	}
	return &r
}

// TestHasAgain is a deletion of which nothing but the key is known: the handler receives
// the states after it again, so that it does not end with the deletion.
func TestHasAgain(t *testing.T) {
	r := resumption(t)
	vanished := queue.Notification{Kind: queue.Vanished, Key: "a", Old: store.Entry{Key: "a"}}
	for _, n := range []queue.Notification{vanished, update("a", "5")} {
		if r.Has(n, true) {
			t.Errorf("the handler does not receive %+v", n)
		}
	}
}

// TestSelective is a place with nothing but a resource version, from which the log does
// not lead on.
func TestSelective(t *testing.T) {
	var r replay.Resumption
	r.Begin(store.Place{RV: "5"}, false)
	r.BeginAgain(store.Place{})
	if !r.Everything() || !r.IsSelective() {
		t.Error("a cursor does not bring what is newer")
	}
	if r.Note("a", replay.State{RV: "5"}) || !r.Note("b", replay.State{RV: "6"}) {
		t.Error("states of the log are not those after the place")
	}
	if !r.Note("gone", replay.State{RV: "4", Deleted: true, Found: true}) {
		t.Error("a deletion that a list has found is left out, because its last state is old")
	}
	for rv, want := range map[string]bool{"4": true, "5": true, "6": false} {
		if got := r.Has(r.Add(entry("c", rv)), false); got != want {
			t.Errorf("the handler has a stored object at %s: %t, want %t", rv, got, want)
		}
	}
}

func TestLog(t *testing.T) {
	mark := func(n uint64) store.Place { return store.Place{Lineage: "l", Mark: n, Random: n, RV: "9"} }
	state := func(key, rv string) *store.Version {
		return &store.Version{Entry: entry(key, rv), Header: store.Header{Key: key, RV: rv}}
	}
	l := &log{last: mark(2), events: []store.Event{
		{Key: "a", RV: "7", New: state("a", "7")},
		{Key: "b", RV: "8", Old: state("b", "3")},
		{Key: "short", RV: "9", Short: state("short", "8")},
		{Key: "replaced", Short: state("replaced", "8"), By: state("replaced", "9")},
		{Mark: &store.Mark{Place: mark(2)}},
		{Key: "later", RV: "10", New: state("later", "10")},
	}}
	var got []string
	follow := replay.Log{
		Store: l, Limit: 1, Note: func(string, replay.State) bool { return true },
		Deliver: func(batch []queue.Notification) error {
			for _, n := range batch {
				got = append(got, n.Key)
			}
			return nil
		},
	}
	if err := follow.Follow(t.Context(), mark(1)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "short"}, got); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

// TestLogOfResourceVersion checks a place that has only a resource version, as one of
// another process has: what only bookmarks have come after is told nothing, and a
// resource version that a history before a rewind had is no place.
func TestLogOfResourceVersion(t *testing.T) {
	for name, c := range map[string]struct {
		stored, above string
		want          error
	}{
		"at the last mark":                    {},
		"behind the last mark":                {stored: "450"},
		"ahead":                               {stored: "449", want: store.ErrLineage},
		"of the history before":               {stored: "470", above: "460", want: store.ErrTrimmed},
		"of this history":                     {stored: "470", above: "440"},
		"ahead, and of the history before it": {stored: "449", above: "460", want: store.ErrLineage},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rv := "300"
				if c.stored == "" {
					rv = "450"
				}
				synced := make(chan struct{})
				close(synced)
				follow := replay.Log{
					Store:  &log{last: store.Place{Lineage: "l", Mark: 2, Random: 2, RV: rv}, stored: c.stored, above: c.above},
					Synced: synced, Lags: func() {}, Limit: 1,
					Note:    func(string, replay.State) bool { return true },
					Deliver: func([]queue.Notification) error { return nil },
				}
				if err := follow.Follow(t.Context(), store.Place{RV: "450"}); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}

// departed is a store.Departer.
type departed struct {
	store.Departer
	gone    []store.Departed
	settled bool
}

func (d *departed) Departed(after uint64, limit int) (some []store.Departed, err error) {
	for _, one := range d.gone {
		if one.Number > after && len(some) < limit {
			some = append(some, one)
		}
	}
	return some, nil
}

func (*departed) Compares() bool { return false }
func (d *departed) Settle()      { d.settled = true }
func (d *departed) Unsettle()    { d.settled = false }

// TestDepartures are three objects: of one, the key was taken by another one that has
// departed since, and of one by a stored one.
func TestDepartures(t *testing.T) {
	s := &departed{gone: []store.Departed{
		{Number: 1, Before: entry("a", "1")}, {Number: 2, Before: entry("b", "2")}, {Number: 3, Before: entry("a", "3")},
	}}
	var d replay.Departures
	d.Open(s)
	if !d.Find(func(key string) bool { return key == "b" }) {
		t.Error("nothing has departed")
	}
	var r replay.Receipt
	some, more, err := d.Next(&r)
	if err != nil || more || len(some) != 2 || some[0].Kind != queue.Added || some[1].Kind != queue.Vanished || some[0].New.Object != s.gone[2].Before.Object {
		t.Errorf("got %v, more %t, %v", some, more, err)
	}
	if r.After != 3 || r.Deletions != 1 {
		t.Errorf("receipt %v", r)
	}
	last := d.Last()
	if d.Settle(last, last, false); !s.settled {
		t.Error("what all handlers have confirmed is not settled")
	}
	d.Delete()
	if d.Settle(last, d.Last(), false); s.settled {
		t.Error("a deletion that nobody has confirmed is settled")
	}
}

// settler is a store.PartSettler that notes up to where it is settled.
type settler struct {
	store.PartSettler
	upTo uint64
}

func (s *settler) SettleUpTo(number uint64) { s.upTo = number }

// TestSettleWhileOwed checks that nothing more is settled while a handler is owed, and
// that what was settled can be taken back then.
func TestSettleWhileOwed(t *testing.T) {
	var d replay.Departures
	var s settler
	d.Open(&s)
	settle := func(upTo uint64, waits bool, want uint64) {
		t.Helper()
		if d.Settle(upTo, 9, waits); s.upTo != want {
			t.Errorf("settled up to %d, want %d", s.upTo, want)
		}
	}
	settle(5, false, 5)
	settle(6, true, 5)
	for _, goesOn := range []bool{true, false} {
		d.Owe(goesOn)
		settle(7, false, 5)
		d.Repay(!goesOn)
		settle(7, false, 5)
		settle(3, false, 3) // one was added that has confirmed less
		d.Repay(goesOn)
		settle(5, false, 5)
	}
	settle(9, false, 9)
}
