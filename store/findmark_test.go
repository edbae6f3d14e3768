package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTimesOf checks when commits count as made, of which the clock said what is not so.
func TestTimesOf(t *testing.T) {
	const now = 1000
	for name, test := range map[string]struct{ said, want []int64 }{
		"none":                        {nil, nil},
		"in order":                    {[]int64{1, 2, 2, 3}, []int64{1, 2, 2, 3}},
		"one ahead":                   {[]int64{1, 2, 900, 3, 4}, []int64{1, 2, 2, 3, 4}},
		"the one before the last":     {[]int64{1, 2, 900, 3}, []int64{1, 2, 2, 3}},
		"the first":                   {[]int64{900, 2, 3}, []int64{2, 2, 3}},
		"the last, after now":         {[]int64{1, 2, 2000}, []int64{1, 2, 2}},
		"many, after now":             {[]int64{1, 2000, 2001, 2002, 2003, 4}, []int64{1, 1, 1, 1, 1, 4}},
		"several ahead, not any more": {[]int64{1, 900, 901, 2, 3, 4}, []int64{1, 1, 1, 2, 3, 4}},
		"one behind":                  {[]int64{500, 501, 7, 502, 503}, []int64{500, 501, 501, 502, 503}},
		"the last behind":             {[]int64{500, 501, 502, 7}, []int64{500, 501, 502, 502}},
		"all after now":               {[]int64{2000, 2001}, []int64{2000, 2001}},
	} {
		var said, want []time.Time
		for i := range test.said {
			said, want = append(said, time.Unix(test.said[i], 0)), append(want, time.Unix(test.want[i], 0))
		}
		if diff := cmp.Diff(want, timesOf(said, time.Unix(now, 0))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFindMarkByTime checks that a mark of a clock that was ahead hides no other one.
func TestFindMarkByTime(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var marks []Mark
	for _, ago := range []time.Duration{time.Hour, 50 * time.Minute, -1000 * time.Hour, 40 * time.Minute, 30 * time.Minute} {
		marks = append(marks, Mark{Place: Place{Time: now.Add(-ago)}})
	}
	for ago, want := range map[time.Duration]int{
		0: 4, 30 * time.Minute: 4, 31 * time.Minute: 3, 45 * time.Minute: 2, 51 * time.Minute: 0, 2 * time.Hour: -1, -2000 * time.Hour: 4,
	} {
		got, _, err := FindMark(marks, "", Place{Time: now.Add(-ago)}, true)
		if want < 0 && !errors.Is(err, ErrTrimmed) || want >= 0 && (got != want || err != nil) {
			t.Errorf("%s ago it is mark %d, %v, want %d", ago, got, err, want)
		}
	}
}
