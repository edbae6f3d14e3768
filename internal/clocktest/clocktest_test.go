package clocktest_test

import (
	"testing"
	"time"

	"github.com/informctl/informctl/internal/clocktest"
)

func TestStepped(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		then, now := clocktest.Stepped(step), time.Now()
		if ago := now.Sub(then); ago < 0 || ago > time.Minute {
			t.Errorf("the monotonic clock has gone on for %s", ago)
		}
		if ago := now.Round(0).Sub(then); ago < step || ago > step+time.Minute {
			t.Errorf("the wall clock has gone on for %s, want %s", ago, step)
		}
	}
}
