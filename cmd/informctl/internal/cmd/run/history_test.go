package run

import (
	"math"
	"testing"
	"time"

	"github.com/informctl/informctl/store"
)

func TestParseHistory(t *testing.T) {
	day := 24 * time.Hour
	for text, want := range map[string]history{
		"":          {},
		"off":       {each: store.History{Bytes: -1}},
		"24h":       {each: store.History{Age: day}},
		"7d":        {each: store.History{Age: 7 * day}},
		"24h,1GiB":  {each: store.History{Age: day, Bytes: math.MaxInt64}, all: 1 << 30},
		"30m,500Mi": {each: store.History{Age: 30 * time.Minute, Bytes: math.MaxInt64}, all: 500 << 20},
		"1h,2GB":    {each: store.History{Age: time.Hour, Bytes: math.MaxInt64}, all: 2e9},
	} {
		if got, err := parseHistory(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"1GiB", ",", "24h,", "24h,many", "24h,0", "24h,-1GiB", "24h,10", "-1h", "0s", "24h,1GiB,1", "on"} {
		if got, err := parseHistory(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, got)
		}
	}
}
