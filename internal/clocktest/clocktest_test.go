package clocktest_test

import (
	"testing"
	"time"

	"github.com/informctl/informctl/internal/clocktest"
)

func TestSlept(t *testing.T) {
	then, now := clocktest.Slept(time.Hour), time.Now()
	if ago := now.Sub(then); ago < 0 || ago > time.Minute {
		t.Errorf("the monotonic clock has gone on for %s", ago)
	}
	if ago := now.Round(0).Sub(then); ago < time.Hour || ago > time.Hour+time.Minute {
		t.Errorf("the wall clock has gone on for %s", ago)
	}
}
