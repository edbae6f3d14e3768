package printer

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// TableFlags are the flags of commands that print their own table.
type TableFlags struct {
	Format    string
	NoHeaders bool
}

// Add adds the flags.
func (f *TableFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.Format, "output", "o", "table", "How to print, one of: table, json.")
	cmdutil.CompleteWords(cmd, "output", "table", "json")
	cmd.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "With a table: no line of headers.")
}

// Check refuses an unknown format.
func (f *TableFlags) Check(cmd *cobra.Command) error {
	if f.Format != "table" && f.Format != "json" {
		return cmdutil.Usagef(cmd, "unknown output format %q; there are table, json", f.Format)
	}
	return nil
}

// Print prints rows of texts and numbers below their headers, or v as JSON.
func (f TableFlags) Print(w io.Writer, v any, headers []string, rows [][]any) error {
	if f.Format == "json" {
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
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: f.NoHeaders}).PrintObj(t, w)
}
