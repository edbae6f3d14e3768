package cli

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
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

// completeGroups checks that --group-by supports the format.
func (f *outputFlags) completeGroups(cmd *cobra.Command) error {
	if f.format != "" && f.format != "table" && f.format != "json" {
		return usagef(cmd, "--group-by prints as table or json, not as %s", f.format)
	}
	return nil
}

// printGroups prints the result of --group-by.
func (f *outputFlags) printGroups(w io.Writer, found []group) error {
	rows := make([][]any, 0, len(found))
	for _, g := range found {
		rows = append(rows, []any{g.Value, int64(g.Count)})
	}
	return tableFlags{f.format, f.noHeaders}.print(w, found, []string{"Value", "Count"}, rows)
}
