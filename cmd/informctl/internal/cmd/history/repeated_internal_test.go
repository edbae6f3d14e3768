package history

import (
	"strconv"
	"testing"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// TestRepeatedOfMany checks that many changes of one object, as of a Lease in a day, are
// not compared each with each other one, whether they are of one scope or of two.
func TestRepeatedOfMany(t *testing.T) {
	const n = 100_000
	var found []*loggedChange
	for id := range 2 {
		scope := &source.View{Info: store.Info{ID: strconv.Itoa(id)}}
		for rv := range n {
			found = append(found, &loggedChange{
				Line:  objectdiff.Line{Change: "updated", Resource: "leases", Name: "a", UID: "1", ResourceVersion: strconv.Itoa(rv + 1)},
				scope: scope, from: strconv.Itoa(rv),
			})
		}
	}
	begun := time.Now()
	if of := withoutRepeated(found[:n]); len(of) != n {
		t.Errorf("%d of %d changes of one scope are left", len(of), n)
	}
	if of := withoutRepeated(found); len(of) != n || of[0].scope != of[n-1].scope {
		t.Errorf("%d changes of two scopes are left, want those of one, which are %d", len(of), n)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
