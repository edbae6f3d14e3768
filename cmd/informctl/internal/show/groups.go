package show

import (
	"cmp"
	"io"
	"slices"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
)

// group is a group in JSON. Its JSON names are stable.
type group struct {
	Value      string            `json:"value,omitempty"`  // of one key without AS
	Values     map[string]string `json:"values,omitempty"` // of other keys, by name
	Count      int               `json:"count"`
	Aggregates map[string]string `json:"aggregates,omitempty"` // by column
}

// printGroups prints groups with a column for each key and each aggregate.
func printGroups(w io.Writer, f *printer.Flags, s *selection.Summary, tallies []*selection.Tally) error {
	keys, columns := s.Keys(), s.Columns()
	headers := slices.Concat(keys, []string{selection.CountHeader}, columns)
	rows := make([][]any, 0, len(tallies))
	groups := make([]group, 0, len(tallies))
	results := s.Results(tallies)
	for n, t := range tallies {
		g := group{Values: map[string]string{}, Count: t.Count, Aggregates: map[string]string{}}
		var cells []any
		for i, value := range t.Values {
			cells = append(cells, value)
			g.Values[keys[i]] = value
		}
		if s.IsOfOneKey() {
			g.Value, g.Values = t.Values[0], nil
		}
		cells = append(cells, int64(t.Count))
		for i, result := range results[n] {
			cells = append(cells, cmp.Or(result, cmdutil.NoValue))
			if result != "" {
				g.Aggregates[columns[i]] = result
			}
		}
		rows, groups = append(rows, cells), append(groups, g)
	}
	return printer.TableFlags{Format: f.Format, NoHeaders: f.NoHeaders}.Print(w, groups, headers, rows)
}
