package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/informctl/informctl/cmd/informctl/internal/health"
)

// column is a column of the table. It is wide enough for its title with an arrow.
type column struct {
	title    string
	width    int // the minimum
	right    bool
	priority int // columns with higher numbers are dropped first if there is no room
	text     func(r row, at time.Time, width int) string
	compare  func(a, b row) int // nil: the table cannot be sorted by it
	falls    bool               // the largest value is sorted first
	meaning  string
}

// columns lists the columns in the order in which they are shown. The first is widened
// until no name is truncated; then the last takes the remaining room.
var columns = []column{
	{
		title: "SCOPE", width: 12, text: func(r row, _ time.Time, w int) string { return middle(r.name, w) },
		compare: func(a, b row) int { return cmp.Compare(a.name, b.name) },
		meaning: "what is held, as run has it; ! where something is wrong",
	},
	{
		title: "STATE", width: 14, text: func(r row, _ time.Time, _ int) string { return r.state },
		compare: func(a, b row) int {
			return cmp.Or(cmp.Compare(min(len(b.wrong), 1), min(len(a.wrong), 1)), cmp.Compare(a.state, b.state))
		},
		meaning: "caught up is well, disconnected is not; wrong ones sort first",
	},
	{
		title: "OBJECTS", width: 8, right: true, priority: 1, text: func(r row, _ time.Time, _ int) string { return strconv.Itoa(r.Objects) },
		compare: func(a, b row) int { return cmp.Compare(a.Objects, b.Objects) }, falls: true,
		meaning: "held, as readers see them",
	},
	{
		title: "EVENTS/S", width: 9, right: true, priority: 4, text: func(r row, _ time.Time, _ int) string { return perSecond(r) },
		compare: func(a, b row) int { return cmp.Compare(a.rate(), b.rate()) }, falls: true,
		meaning: "changes that the watch brings in a second",
	},
	{
		title: "TREND", width: 11, priority: 5, text: func(r row, _ time.Time, w int) string { return spark(r.rates, w) },
		meaning: "the same over the last answers, the newest on the right",
	},
	{
		title: "LAG", width: 6, right: true, priority: 2, text: func(r row, at time.Time, _ int) string { return health.Ago(r.Checkpoint.Time, at) },
		compare: func(a, b row) int { return b.Checkpoint.Time.Compare(a.Checkpoint.Time) }, falls: true,
		meaning: "age of the resource version: the objects are no older",
	},
	{
		title: "PENDING", width: 9, right: true, priority: 6, text: func(r row, _ time.Time, _ int) string { return pending(r) },
		compare: func(a, b row) int { return cmp.Compare(pendingBytes(a), pendingBytes(b)) }, falls: true,
		meaning: "bytes that are not written to the file yet",
	},
	{
		title: "WAITING", width: 8, right: true, priority: 7, text: func(r row, _ time.Time, _ int) string { return strconv.Itoa(health.Waiting(r.Status)) },
		compare: func(a, b row) int { return cmp.Compare(health.Waiting(a.Status), health.Waiting(b.Status)) }, falls: true,
		meaning: "notifications that wait for handlers",
	},
	{
		title: "MEMORY", width: 8, right: true, priority: 9, text: func(r row, _ time.Time, _ int) string { return memory(r) },
		compare: func(a, b row) int { return cmp.Compare(a.MemoryBytes, b.MemoryBytes) }, falls: true,
		meaning: "bytes that it takes, estimated, without indexes",
	},
	{
		title: "EVENT", width: 6, right: true, priority: 8, text: func(r row, at time.Time, _ int) string { return health.Ago(r.LastEvent, at) },
		compare: func(a, b row) int { return b.LastEvent.Compare(a.LastEvent) }, falls: true,
		meaning: "since the last change came",
	},
	{
		title: "BOOKMARK", width: 9, right: true, priority: 10, text: func(r row, at time.Time, _ int) string { return health.Ago(r.LastBookmark, at) },
		compare: func(a, b row) int { return b.LastBookmark.Compare(a.LastBookmark) }, falls: true,
		meaning: "since the last bookmark came",
	},
	{
		title: "COMMIT", width: 7, right: true, priority: 11, text: func(r row, at time.Time, _ int) string { return committed(r, at) },
		meaning: "since the file was last written",
	},
	{
		title: "START", width: 8, priority: 12, text: func(r row, _ time.Time, _ int) string { return cmp.Or(r.Start, "-") },
		compare: func(a, b row) int { return cmp.Compare(a.Start, b.Start) },
		meaning: "resumed the watch of the last process, or listed",
	},
	{
		title: "WRONG", width: 18, priority: 3, text: func(r row, _ time.Time, w int) string { return cmp.Or(cause(r.wrong, w), "-") },
		meaning: "why the scope is not well",
	},
}

func perSecond(r row) string {
	switch rate := r.rate(); {
	case len(r.rates) == 0:
		return "-"
	case rate > 0 && rate < 10:
		return fmt.Sprintf("%.1f", rate)
	default:
		return fmt.Sprintf("%.0f", rate)
	}
}

func pending(r row) string {
	if r.Commits == nil {
		return "-"
	}
	return health.Size(r.Commits.PendingBytes)
}

func pendingBytes(r row) int64 {
	if r.Commits == nil {
		return -1
	}
	return r.Commits.PendingBytes
}

// memory returns "-" for a scope that is held in memory only, whose size is not known.
func memory(r row) string {
	if r.MemoryBytes == 0 {
		return "-"
	}
	return health.Size(r.MemoryBytes)
}

func committed(r row, at time.Time) string {
	if r.Commits == nil {
		return "-"
	}
	return health.Ago(r.Commits.Last, at)
}

// spark draws the newest values as bars. The highest value gets a full bar.
func spark(values []float64, width int) string {
	const bars = "▁▂▃▄▅▆▇█"
	values = values[max(0, len(values)-width):]
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	b := strings.Builder{}
	b.WriteString(strings.Repeat(" ", width-len(values)))
	for _, v := range values {
		level := 0
		if v > 0 { // only 0 has the lowest bar
			level = 1 + int(v/top*6+0.5)
		}
		b.WriteRune([]rune(bars)[level])
	}
	return b.String()
}

// middle cuts a long text in its middle.
func middle(s string, width int) string {
	long := ansi.StringWidth(s)
	if long <= width {
		return s
	}
	left := width / 2
	return ansi.Truncate(s, left, "") + "…" + ansi.TruncateLeft(s, long-(width-left-1), "")
}

// cause returns the end of an error's text that fits, from a colon on: what was done
// comes first in it, and the cause last.
func cause(s string, width int) string {
	for ansi.StringWidth(s) > width {
		_, rest, ok := strings.Cut(s, ": ")
		if !ok {
			break
		}
		s = rest
	}
	return s
}
