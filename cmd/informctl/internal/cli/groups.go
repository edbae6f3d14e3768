package cli

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// printTable prints rows of texts and numbers under their headers.
func printTable(w io.Writer, noHeaders bool, headers []string, rows [][]any) error {
	t := &metav1.Table{}
	for _, name := range headers {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, cells := range rows {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: noHeaders}).PrintObj(t, w)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "    ")
	return enc.Encode(v)
}

// completeGroups checks the formats that --group-by has.
func (f *outputFlags) completeGroups(cmd *cobra.Command) error {
	if f.format != "" && f.format != "table" && f.format != "json" {
		return usagef(cmd, "--group-by prints as table or json, not as %s", f.format)
	}
	return nil
}

// printGroups prints the result of --group-by.
func (f *outputFlags) printGroups(w io.Writer, found []group) error {
	if f.format == "json" {
		return printJSON(w, found)
	}
	rows := make([][]any, 0, len(found))
	for _, g := range found {
		rows = append(rows, []any{g.Value, int64(g.Count)})
	}
	return printTable(w, f.noHeaders, []string{"Value", "Count"}, rows)
}
