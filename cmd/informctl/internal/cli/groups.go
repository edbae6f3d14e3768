package cli

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// print prints rows of texts and numbers below their headers, or v as JSON.
func (f tableFlags) print(w io.Writer, v any, headers []string, rows [][]any) error {
	if f.format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "    ")
		return enc.Encode(v)
	}
	t := &metav1.Table{}
	for _, name := range headers {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, cells := range rows {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: f.noHeaders}).PrintObj(t, w)
}

// group is a group in JSON. Its JSON names are stable.
type group struct {
	Value      string            `json:"value,omitempty"`  // of the only key
	Values     map[string]string `json:"values,omitempty"` // of several keys, by path
	Count      int               `json:"count"`
	Aggregates map[string]string `json:"aggregates,omitempty"` // by column
}

// completeGroups checks that the summary supports the format.
func completeGroups(f *outputFlags, cmd *cobra.Command, s *summary) error {
	if f.format != "" && f.format != "table" && f.format != "json" {
		return cmdutil.Usagef(cmd, "%s prints as table or json, not as %s", s.flag(), f.format)
	}
	return nil
}

// printGroups prints groups with a column for each key and each aggregate.
func printGroups(f *outputFlags, w io.Writer, s *summary, tallies []*tally) error {
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
	return tableFlags{f.format, f.noHeaders}.print(w, groups, headers, rows)
}
