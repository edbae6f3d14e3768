package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/informer"
)

// field is a line of a page, or several lines if its text is long.
type field struct{ label, text string }

// labelWidth has room for every label and a gap.
const labelWidth = 18

// pageLines returns all lines of the current page, wrapped to the width of the screen.
func (m *model) pageLines() []string {
	var fields []field
	switch m.page {
	case pageDetails:
		rows := m.shown()
		if len(rows) == 0 {
			return nil
		}
		fields = details(rows[m.selection(rows)], m.at)
	case pageHelp:
		fields = help()
	case pageTable:
		return nil
	}
	var lines []string
	for _, f := range fields {
		label := f.label
		for text := range strings.SplitSeq(ansi.Wrap(f.text, max(8, m.width-labelWidth), ""), "\n") {
			lines = append(lines, fmt.Sprintf("%-*s%s", labelWidth, label, text))
			label = ""
		}
	}
	return lines
}

// details returns everything that is known about a scope.
func details(r row, at time.Time) []field {
	fields := []field{
		{"Scope", r.name},
		{"Kind", strings.TrimSpace(r.Scope.APIVersion+" "+r.Scope.Kind) + ", " + r.Scope.Form},
		{"State", r.state},
		{"Wrong", cmp.Or(r.wrong, "nothing")},
		{"Start", start(r.Status)},
		{"Objects", fmt.Sprint(r.Objects)},
		{"Resource version", checkpoint(r.Status, at)},
		{"Events", fmt.Sprintf("%d since the start, %s a second, the last %s", r.Events, perSecond(r), since(r.LastEvent, at))},
		{"Trend", spark(r.rates, len(r.rates))},
		{"Bookmark", since(r.LastBookmark, at)},
		{"Lists", lists(r.Status)},
		{"Watches resumed", fmt.Sprint(r.Resumes)},
		{"Errors", failures(r.Status, at)},
	}
	if c := r.Commits; c != nil && r.Memory == "" {
		fields = append(fields,
			field{"Commit", fmt.Sprintf("%s, took %s; %d so far", since(c.Last, at), seconds(c.LastSeconds), c.Count)},
			field{"Pending", health.Size(c.PendingBytes)},
			field{"File", fmt.Sprintf("%s, %s", r.File, health.Size(r.FileBytes))})
	}
	memory := health.Size(r.ProcessBytes) + " of the process"
	if r.MemoryBytes > 0 {
		memory += ", " + health.Size(r.MemoryBytes) + " of them the scope's"
	}
	fields = append(fields, field{"Memory", memory})
	for i, h := range r.Handlers {
		label := ""
		if i == 0 {
			label = "Handlers"
		}
		fields = append(fields, field{label, fmt.Sprintf("%s: %d waiting, %s of them in files", h.Type, h.Waiting, health.Size(h.BytesInFile))})
	}
	for i := range fields {
		fields[i].text = clean(fields[i].text)
	}
	return fields
}

func start(s informer.Status) string {
	switch {
	case s.Start == "":
		return "not known yet"
	case s.StartReason == "":
		return s.Start
	}
	return s.Start + ": " + s.StartReason
}

func checkpoint(s informer.Status, at time.Time) string {
	switch {
	case s.Checkpoint.RV != "":
		return s.Checkpoint.RV + ", set " + since(s.Checkpoint.Time, at)
	case s.Checkpoint.Reason != "":
		return "none: " + s.Checkpoint.Reason
	}
	return "none"
}

func lists(s informer.Status) string {
	parts := []string{fmt.Sprint(s.Lists)}
	for _, reason := range slices.Sorted(maps.Keys(s.ListsByReason)) {
		parts = append(parts, fmt.Sprintf("%d because %s", s.ListsByReason[reason], reason))
	}
	if s.Listing != "" {
		parts = append(parts, fmt.Sprintf("one under way because %s, %s so far", s.Listing, counted(s.Listed, "object")))
	}
	return strings.Join(parts, "; ")
}

func failures(s informer.Status, at time.Time) string {
	if s.Errors == 0 {
		return "0"
	}
	text := fmt.Sprintf("%d, the last %s", s.Errors, since(s.LastErrorTime, at))
	if s.LastError == "" {
		return text + ", over since"
	}
	return text + ": " + s.LastError
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond).String()
}

func help() []field {
	fields := []field{
		{"Keys", ""},
		{"q, Ctrl-C", "quit; so does Esc in the table"},
		{"j k, arrows", "move; also PgUp PgDn g G Home End"},
		{"Enter", "all that is known of the selected scope; Esc goes back"},
		{"s, > and <", "sort by the next column, or the one before"},
		{"r", "reverse the order"},
		{"/", "show only scopes whose name contains a text; Esc ends that"},
		{"Space, p", "pause, and go on"},
		{"", ""},
		{"Columns", ""},
	}
	for _, c := range columns {
		fields = append(fields, field{c.title, c.meaning})
	}
	return fields
}
