package cmdutil

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/store"
)

// yesterday is a day before now, or a time of that day.
const yesterday = "yesterday"

// clocks are the layouts of a time of day.
var clocks = []string{"15:04", time.TimeOnly}

// ParseMoment parses a time as people write it, in the zone of now unless it names one: a
// time of day, which is the last one that is not after now, a date and a time, yesterday
// with or without a time, or a duration before now, with or without ago. An empty text is
// the zero time. What the commands print as a time it parses.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		if t.IsZero() { // which programs write for no time at all
			return t, fmt.Errorf("%q is no moment", text)
		}
		return t, nil
	}
	for _, layout := range []string{time.DateOnly + "T15:04", time.DateOnly + " 15:04", time.DateOnly + "T15:04:05", time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if text == yesterday {
		return now.AddDate(0, 0, -1), nil
	}
	clock, ofYesterday := strings.CutPrefix(text, yesterday+" ")
	for _, layout := range clocks {
		t, err := time.Parse(layout, clock)
		if err != nil {
			continue
		}
		// Each day has its own hours: a clock of today may not show a time of yesterday.
		on := func(day int) time.Time {
			return time.Date(now.Year(), now.Month(), day, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		}
		if at := on(now.Day()); !ofYesterday && at.Hour() == t.Hour() && at.Minute() == t.Minute() {
			if at, ok := lastToday(at, now); ok {
				return at, nil
			}
		}
		return on(now.Day() - 1), nil
	}
	ago, err := ParseSince(strings.TrimSuffix(text, " ago"))
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a duration, as 30m, 12h or 7d, nor a time, as 10:02, yesterday 10:02 or 2026-01-02 15:04", text)
	}
	return now.Add(-ago), nil
}

// ParseEnd parses the end of a span that begins at from, as ParseMoment does. A time of
// day that was before from is that of today, if it is still to come.
func ParseEnd(text string, from, now time.Time) (time.Time, error) {
	end, err := ParseMoment(text, now)
	if err == nil && end.Before(from) && isClock(text) {
		next, err := ParseMoment(text, end.AddDate(0, 0, 1))
		if err == nil && next.After(now) && next.Format(time.DateOnly) == now.Format(time.DateOnly) {
			return next, nil
		}
	}
	return end, err
}

// isClock reports whether a text is a time of day.
func isClock(text string) bool {
	return slices.ContainsFunc(clocks, func(layout string) bool {
		_, err := time.Parse(layout, text)
		return err == nil
	})
}

// LastOf returns the end of the second of a moment that was written without fractions of
// one, as times are printed: what happened in it is up to then.
func LastOf(moment time.Time) time.Time {
	if moment.IsZero() || moment.Nanosecond() != 0 {
		return moment
	}
	return moment.Add(time.Second - 1)
}

// lastToday returns the last time with the clock of at that is not after now.
func lastToday(at, now time.Time) (last time.Time, ok bool) {
	for _, t := range alike(at) {
		if !t.After(now) {
			last, ok = t, true
		}
	}
	return last, ok
}

// IsShownTwice reports whether a clock shows the date and the time of t in its zone
// twice, as when summer time ends. RFC 3339 tells which of the two it is.
func IsShownTwice(t time.Time) bool { return len(alike(t)) > 1 }

// alike returns the times at which a clock shows what it shows at t, in order: when
// summer time ends, it is set back by an hour, and on Lord Howe Island by half of one.
func alike(t time.Time) (times []time.Time) {
	for _, shift := range []time.Duration{-time.Hour, -time.Hour / 2, 0, time.Hour / 2, time.Hour} {
		if shifted := t.Add(shift); shifted.Format(time.DateTime) == t.Format(time.DateTime) {
			times = append(times, shifted)
		}
	}
	return times
}

// ParseSince parses a duration before now, as ParseDuration does; it must be positive.
func ParseSince(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d <= 0 {
		err = noDuration(text)
	}
	return d, err
}

// Durations are examples of what ParseDuration parses, for messages.
const Durations = "30m, 12h, 7d or 2w"

// ParseDuration parses Go's durations, and days of 24 hours and weeks of 7 days, such as
// 90m, 36h, 7d and 2w.
func ParseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	for suffix, hours := range map[string]time.Duration{"d": 24, "w": 7 * 24} {
		number, ok := strings.CutSuffix(text, suffix)
		if !ok || strings.Trim(number, "+-.0123456789") != "" { // such as 1h2d
			continue
		}
		if d, err := time.ParseDuration(number + "h"); err == nil && d.Abs() <= math.MaxInt64/hours {
			return hours * d, nil
		}
	}
	return 0, noDuration(text)
}

func noDuration(text string) error {
	return fmt.Errorf("%q is no duration; write %s", text, Durations)
}

// ParsePlace parses a moment of the log. An empty text is the zero Place.
func ParsePlace(text string, now time.Time) (store.Place, error) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return store.Place{RV: text}, nil
	}
	if p, err := store.ParsePlace(text); err == nil {
		return p, nil
	}
	t, err := ParseMoment(text, now)
	if err != nil {
		return store.Place{}, fmt.Errorf("%q is neither a duration, as 30m, 12h or 7d, nor a time, as 10:02, yesterday 10:02 or 2026-01-02 15:04, nor a resource version", text)
	}
	return store.Place{Time: t}, nil
}

// CheckMoments returns an error if a flag of a moment is given without one, as by a shell
// whose variable is not set: that would mean another moment.
func CheckMoments(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return Usagef(cmd, "--%s names no moment", name)
		}
	}
	return nil
}

// IsOver returns an error if a moment, as the user wrote it, is to come.
func (e Env) IsOver(moment time.Time, text string) error {
	if now := e.Now(); moment.After(now) {
		return fmt.Errorf("%s is in the future; it is %s", text, now.UTC().Format(time.RFC3339))
	}
	return nil
}
