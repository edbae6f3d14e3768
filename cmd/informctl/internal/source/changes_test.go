package source_test

import (
	"context"
	"testing"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// TestChangesSinceNothing asks a process for the changes since a time after which there
// are none: they end.
func TestChangesSinceNothing(t *testing.T) {
	path, _ := hold(t, asIs)
	v := &source.View{Reader: readerOf(t, path, true)}
	state, err := v.History()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, err := range v.Changes(ctx, state, store.Place{}, time.Now(), store.LogFilter{}, false) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("they have not ended: %v", err)
	}
}

// TestChangesOfTwoNames asks a process for the changes of two objects.
func TestChangesOfTwoNames(t *testing.T) {
	path, _ := hold(t, asIs)
	v := &source.View{Reader: readerOf(t, path, true)}
	state, err := v.History()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range v.Changes(t.Context(), state, store.Place{}, time.Time{}, store.LogFilter{Names: []string{"s-000", "s-001"}}, false) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n < 3 {
		t.Errorf("%d changes", n)
	}
}
