package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
)

// group is a group in JSON. Its JSON names are stable.
type group struct {
	Value      string            `json:"value,omitempty"`  // of the only key
	Values     map[string]string `json:"values,omitempty"` // of several keys, by path
	Count      int               `json:"count"`
	Aggregates map[string]string `json:"aggregates,omitempty"` // by column
}

// completeGroups checks that the summary supports the format.
func completeGroups(f *printer.Flags, cmd *cobra.Command, s *summary) error {
	if f.Format != "" && f.Format != "table" && f.Format != "json" {
		return cmdutil.Usagef(cmd, "%s prints as table or json, not as %s", s.flag(), f.Format)
	}
	return nil
}

// printGroups prints groups with a column for each key and each aggregate.
func printGroups(f *printer.Flags, w io.Writer, s *summary, tallies []*tally) error {
	var headers []string
	for _, p := range s.by {
		headers = append(headers, p.name())
	}
	headers = append(headers, "Count")
	for _, a := range s.aggregates {
		headers = append(headers, a.name())
	}
	rows := make([][]any, 0, len(tallies))
	groups := make([]group, 0, len(tallies))
	for _, t := range tallies {
		g := group{Values: map[string]string{}, Count: t.count, Aggregates: map[string]string{}}
		var cells []any
		for i, value := range t.values {
			cells = append(cells, value)
			g.Values[s.by[i].name()] = value
		}
		if len(t.values) == 1 {
			g.Value, g.Values = t.values[0], nil
		}
		cells = append(cells, int64(t.count))
		for i, a := range s.aggregates {
			result := t.amounts[i].result(a.verb)
			if result == nil {
				cells = append(cells, cmdutil.NoValue)
				continue
			}
			g.Aggregates[a.name()] = result.String()
			cells = append(cells, result.String())
		}
		rows, groups = append(rows, cells), append(groups, g)
	}
	return printer.TableFlags{Format: f.Format, NoHeaders: f.NoHeaders}.Print(w, groups, headers, rows)
}
