package printer

import (
	"io"
	"slices"

	"github.com/informctl/informctl/durable"
)

// Consumers prints a line for each consumer. None of the handlers of one that has
// stopped is missing.
func Consumers(w io.Writer, table TableFlags, found []durable.Status) error {
	rows := make([][]any, 0, len(found))
	found = slices.Clone(found)
	for i, c := range found {
		if c.State != durable.Stopped {
			continue
		}
		found[i].Scopes = slices.Clone(c.Scopes)
		for n := range found[i].Scopes {
			found[i].Scopes[n].Missing = 0
		}
	}
	for _, c := range found {
		var missing, behind int64
		for _, s := range c.Scopes {
			missing += int64(s.Missing)
			behind = max(behind, int64(s.Behind)) //nolint:gosec // a number of commits
		}
		rows = append(rows, []any{
			c.Name, c.State, c.Version, int64(len(c.Scopes)), missing, behind,
			int64(c.Waiting + c.InWork), int64(c.Delayed), int64(c.Failed), int64(c.Unresolved),
		})
	}
	columns := []string{"Name", "State", "Version", "Scopes", "Missing", "Behind", "Waiting", "Delayed", "Failed", "Unresolved"}
	return table.Print(w, found, columns, rows)
}
