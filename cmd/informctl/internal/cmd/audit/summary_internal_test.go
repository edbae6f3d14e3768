package audit

import "testing"

// TestNothing checks when an audit that has found nothing is an error: what is left out
// may differ.
func TestNothing(t *testing.T) {
	two := make([]compared, 2)
	for name, c := range map[string]struct {
		summary summary
		want    string
	}{
		"all compared":            {summary{compared: two}, ""},
		"none compared":           {summary{leftOut: 3}, "nothing could be compared"},
		"one left out":            {summary{compared: two, leftOut: 1}, "1 of 3 resources could not be compared"},
		"one left out, one found": {summary{compared: two, leftOut: 1, findings: 1}, ""},
		"nothing there":           {summary{}, ""},
	} {
		got := ""
		if err := c.summary.nothing(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
