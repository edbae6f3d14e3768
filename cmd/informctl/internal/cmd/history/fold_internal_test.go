package history

import (
	"encoding/json"
	"fmt"
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
	update := func(second int, name, uid, part, from, to string, managers ...string) loggedChange {
		fields := []objectdiff.ChangedField{{Path: part + ".n", Old: json.RawMessage(from), New: json.RawMessage(to)}}
		return loggedChange{
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
	for _, c := range folded([]loggedChange{
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
