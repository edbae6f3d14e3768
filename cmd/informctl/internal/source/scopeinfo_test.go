package source_test

import (
	"testing"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// TestAgeOfClockAhead checks that no age is negative where the clock was ahead.
func TestAgeOfClockAhead(t *testing.T) {
	now := time.Now()
	info := store.Info{Checkpoint: store.Checkpoint{RV: "1", Time: now.Add(24 * time.Hour)}}
	if got := source.DescribeScope(info, now); *got.AgeSeconds != 0 {
		t.Errorf("the age is %d seconds", *got.AgeSeconds)
	}
}
