package cmdutil

import (
	"testing"
	"time"
)

// TestParseMoment parses times as people type them, and as the commands print them.
func TestParseMoment(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	now := time.Date(2026, 11, 25, 15, 30, 0, 0, zone)
	at := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 11, day, hour, minute, second, 0, zone)
	}
	for text, want := range map[string]time.Time{
		"":                          {},
		"10:02":                     at(25, 10, 2, 0),
		"10:02:30":                  at(25, 10, 2, 30),
		"15:31":                     at(24, 15, 31, 0), // today it is to come
		"yesterday":                 at(24, 15, 30, 0),
		"yesterday 10:02":           at(24, 10, 2, 0),
		"yesterday 23:00:01":        at(24, 23, 0, 1),
		"2026-11-20":                at(20, 0, 0, 0),
		"2026-11-20 15:10":          at(20, 15, 10, 0),
		"2026-11-20T15:10":          at(20, 15, 10, 0),
		"2026-11-20 15:10:05":       at(20, 15, 10, 5),
		"2026-11-20T15:10:05":       at(20, 15, 10, 5),
		"2026-11-20T15:10:05Z":      at(20, 17, 10, 5),
		"2026-11-20T15:10:05+02:00": at(20, 15, 10, 5),
		"15m":                       at(25, 15, 15, 0),
		"1d":                        at(24, 15, 30, 0),
		"2w":                        at(11, 15, 30, 0),
	} {
		if got, err := ParseMoment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, want %v: %v", text, got, want, err)
		}
	}
	for _, text := range []string{"tomorrow", "25:00", "10:2", "yesterday 25:00", "2026-13-01", "-5m", "0s", "now", "10"} {
		if got, err := ParseMoment(text, now); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}

// TestParseDuration parses Go's durations, days and weeks, but no mixture of them.
func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "1h30m": 90 * time.Minute, "0s": 0, "-5m": -5 * time.Minute,
		"1d": day, "1.5d": 36 * time.Hour, "-1d": -day, "1w": 7 * day, "0.5w": 84 * time.Hour, "15250w": 15_250 * 7 * day,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is %s, want %s: %v", text, got, want, err)
		}
	}
	for _, text := range []string{"", "d", "w", "1", "1y", "1h2d", "2w1d", "1d12h", "15251w", "-15251w", "one d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %s, want an error", text, got)
		}
	}
}
