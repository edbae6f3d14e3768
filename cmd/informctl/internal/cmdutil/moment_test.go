package cmdutil

import (
	"testing"
	"time"
	_ "time/tzdata" // for a machine without zones
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
		"12h ago":                   at(25, 3, 30, 0),
		"1d ago":                    at(24, 15, 30, 0),
		"2w":                        at(11, 15, 30, 0),
	} {
		if got, err := ParseMoment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, want %v: %v", text, got, want, err)
		}
	}
	for _, text := range []string{"tomorrow", "25:00", "10:2", "yesterday 25:00", "2026-13-01", "-5m", "0s", "now", "10", " ago", "-5m ago", "10:02 ago", "0001-01-01T00:00:00Z"} {
		if got, err := ParseMoment(text, now); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}

// TestParseEnd checks that a time of day ends the span that begins before it.
func TestParseEnd(t *testing.T) {
	now := time.Date(2026, 11, 25, 10, 30, 0, 0, time.UTC)
	at := func(day, hour int) time.Time { return time.Date(2026, 11, day, hour, 0, 0, 0, time.UTC) }
	for _, tt := range []struct {
		from time.Time
		text string
		want time.Time
	}{
		{at(25, 9), "11:00", at(25, 11)},
		{at(25, 9), "10:00:00", at(25, 10)},
		{at(24, 22), "23:00", at(24, 23)},
		{at(24, 23), "01:00", at(25, 1)},
		{at(20, 0), "11:00", at(24, 11)},
		{at(25, 10), "09:00", at(25, 9)},
		{time.Time{}, "11:00", at(24, 11)},
		{at(25, 9), "2026-11-24 11:00", at(24, 11)},
		{at(25, 9), "", time.Time{}},
	} {
		if got, err := ParseEnd(tt.text, tt.from, now); err != nil || !got.Equal(tt.want) {
			t.Errorf("%q after %v is %v, want %v: %v", tt.text, tt.from, got, tt.want, err)
		}
	}
}

// TestParseMomentTwice checks times of day of the hour that there is twice when summer
// time ends: the last one is meant that is not after now. When it begins, yesterday has
// the hour that today has not.
func TestParseMomentTwice(t *testing.T) {
	for _, test := range []struct{ zone, now, text, want string }{
		{"Europe/Berlin", "2026-10-25T00:10:00Z", "02:05", "2026-10-25T00:05:00Z"},
		{"Europe/Berlin", "2026-10-25T01:10:00Z", "02:05", "2026-10-25T01:05:00Z"},
		{"Europe/Berlin", "2026-10-25T00:10:00Z", "02:15", "2026-10-24T00:15:00Z"},
		{"America/New_York", "2026-11-01T06:40:00Z", "01:30", "2026-11-01T06:30:00Z"},
		{"America/New_York", "2026-11-01T06:20:00Z", "01:30", "2026-11-01T05:30:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T16:00:00Z", "01:45", "2026-04-04T15:15:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T15:10:00Z", "01:45", "2026-04-04T14:45:00Z"},
		{"Europe/Berlin", "2026-03-29T10:00:00Z", "yesterday 02:30", "2026-03-28T01:30:00Z"},
		{"Europe/Berlin", "2026-03-29T10:00:00Z", "02:30", "2026-03-28T01:30:00Z"},
	} {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(time.RFC3339, test.now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseMoment(test.text, now.In(zone))
		if is := got.UTC().Format(time.RFC3339); err != nil || is != test.want {
			t.Errorf("%s at %s in %s is %s, want %s: %v", test.text, test.now, test.zone, is, test.want, err)
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
