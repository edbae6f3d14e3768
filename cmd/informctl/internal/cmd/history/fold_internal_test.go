package history

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// TestFolded checks where the line is that is made of several updates, from when on it is
// and what it has of them.
func TestFolded(t *testing.T) {
	begin := time.Date(2026, 1, 11, 10, 0, 0, 0, time.Local)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	scope := &source.View{}
	update := func(second int, name, uid, part, from, to string, managers ...string) *loggedChange {
		fields := []objectdiff.ChangedField{{Path: part + ".n", Old: json.RawMessage(from), New: json.RawMessage(to)}}
		return &loggedChange{
			Line: objectdiff.Line{
				Time: at(second), Change: "updated", Resource: "pods", Name: name, UID: uid, Managers: managers, Fields: fields,
			},
			scope: scope, count: 1, part: objectdiff.PartOf("pods", fields),
		}
	}
	since := at(-5)
	caughtUp := update(1, "a", "1", "status", "1", "2", "kubelet")
	caughtUp.Since = &since
	var got []string
	for _, c := range folded([]*loggedChange{
		caughtUp,
		update(2, "b", "2", "status", "1", "2"),
		update(3, "a", "1", "status", "2", "3", "kubectl"),
		update(4, "a", "1", "status", "3", "4", "kubelet"),
		update(5, "a", "1", "spec", "1", "2"),
		update(6, "a", "1", "status", "4", "5"),
		update(6, "a", "1", "status", "5", "6"),
		update(7, "a", "other", "status", "6", "7"),
	}) {
		cells := c.cells(false, begin)
		got = append(got, fmt.Sprintf("%s %s, %s: %s", cells[0], cells[2], cells[3], cells[4]))
	}
	want := []string{
		"10:00:02 pods b, <none>: status.n: 1 -> 2",
		"09:59:55-10:00:04 pods a, kubectl,kubelet: 3 updates of status: status.n: 1 -> 4",
		"10:00:05 pods a, <none>: spec.n: 1 -> 2",
		"10:00:06 pods a, <none>: 2 updates of status: status.n: 4 -> 6",
		"10:00:07 pods a, <none>: status.n: 6 -> 7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTailOf checks that so many lines are left of random changes, and that one change
// more would be one line more.
func TestTailOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	scope := &source.View{}
	for range 2000 {
		var all []*loggedChange
		for range rng.IntN(30) {
			c := &loggedChange{Line: objectdiff.Line{Change: "updated", Name: fmt.Sprint(rng.IntN(3)), UID: fmt.Sprint(rng.IntN(2))}, scope: scope, count: 1}
			if rng.IntN(3) > 0 {
				c.part = "status"
			}
			all = append(all, c)
		}
		o := &options{output: "table", tail: 1 + rng.IntN(8)}
		begin := o.tailOf(all)
		lines := len(folded(all[begin:]))
		if begin > 0 && (lines != o.tail || len(folded(all[begin-1:])) != o.tail+1) || lines > o.tail {
			t.Fatalf("%d lines of %d changes behind %d, want %d", lines, len(all), begin, o.tail)
		}
		if o.output = "json"; o.tailOf(all) != max(0, len(all)-o.tail) {
			t.Fatalf("json begins at %d of %d, want %d left", o.tailOf(all), len(all), o.tail)
		}
	}
}
