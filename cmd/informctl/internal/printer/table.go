package printer

import (
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/table"
)

// Table prints objects of one resource in the same way as kubectl. The texts of all rows
// are held until the end, because they determine the widths.
type Table struct {
	kind    table.Kind
	depth   source.Depth
	columns []metav1.TableColumnDefinition
	name    int  // the column of names
	kinds   bool // names have their kind in front
	cluster bool // the cluster is the first cell
	now     func() time.Time
	printer printers.ResourcePrinter
	tabs    tabWriter
}

// tabWriter is the part of cli-runtime's tab writer that is used here.
type tabWriter interface {
	io.Writer
	Flush() error
}

// TableOptions are what a table has beside the columns of its kind.
type TableOptions struct {
	Namespaces bool // a column for namespaces
	Clusters   bool // a column for clusters
	Kinds      bool // names have their kind in front, since several resources are printed
	Now        func() time.Time
}

// Table returns the printer of a table. d is the part of an object that its columns need.
func (f *Flags) Table(kind table.Kind, d source.Depth, o TableOptions) *Table {
	t := &Table{kind: kind, depth: d, kinds: o.Kinds, cluster: o.Clusters, now: o.Now, name: -1}
	if f.showsLabels() {
		t.depth = source.Record
	}
	if o.Clusters {
		t.columns = append(t.columns, metav1.TableColumnDefinition{Name: "Cluster", Type: "string"})
	}
	for i, c := range kind.Columns() {
		if c.Name == "Name" && t.name < 0 { // a custom resource may have another one
			t.name = i
		}
		t.columns = append(t.columns, metav1.TableColumnDefinition{Name: c.Name, Type: "string", Priority: c.Priority})
	}
	t.printer = printers.NewTablePrinter(printers.PrintOptions{
		Wide: f.Format == "wide", NoHeaders: f.NoHeaders, WithNamespace: o.Namespaces,
		ShowLabels: f.showLabels, ColumnLabels: f.labelColumns,
	})
	return t
}

// Needs implements Printer.
func (t *Table) Needs() source.Depth { return t.depth }

// Begin implements Printer.
func (t *Table) Begin(w io.Writer) error {
	t.tabs = printers.GetNewTabWriter(w)
	return nil
}

// Render implements Printer.
func (t *Table) Render(o Object) (Piece, error) {
	cells, err := t.kind.Cells(o.Object, t.now())
	if err != nil {
		cells, err = t.named(o)
	}
	if err != nil {
		return Piece{}, err
	}
	cells = cells[:min(len(cells), len(t.kind.Columns()))] // the server may have more
	if t.kinds && t.name >= 0 {
		kind := o.Kind().GroupKind()
		if u, ok := o.Object.(*unstructured.Unstructured); ok {
			// The scope of a dynamic client has no kind.
			kind = u.GroupVersionKind().GroupKind()
		}
		cells[t.name] = strings.ToLower(kind.String()) + "/" + o.Name
	}
	if t.cluster {
		cells = slices.Insert(cells, 0, any(source.ClusterOf(o.View.Info)))
	}
	shown := &metav1.PartialObjectMetadata{}
	shown.Namespace = o.Namespace
	if m, err := meta.Accessor(o.Object); err == nil {
		shown.Labels = m.GetLabels()
	}
	row := metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: shown}}
	return Piece{row: row, event: o.Event}, nil
}

// named returns the cells of an object that is not of the shape of its kind: what all
// objects have, and nothing else.
func (t *Table) named(o Object) ([]any, error) {
	of, err := table.Named().Cells(o.Object, t.now())
	if err != nil {
		return nil, err
	}
	cells := make([]any, len(t.kind.Columns()))
	for i, c := range t.kind.Columns() {
		cells[i] = cmdutil.NoValue
		for n, named := range table.Named().Columns() {
			if named.Name == c.Name {
				cells[i] = of[n]
			}
		}
	}
	return cells, nil
}

// Emit implements Printer.
func (t *Table) Emit(_ io.Writer, pieces []Piece) error {
	var rows []metav1.TableRow
	for _, piece := range pieces {
		if piece.event != "" {
			if err := t.emitEvent(piece); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, piece.row)
	}
	for rows := range slices.Chunk(rows, rowsAtOnce) {
		if err := t.printer.PrintObj(&metav1.Table{ColumnDefinitions: t.columns, Rows: rows}, t.tabs); err != nil {
			return err
		}
	}
	return nil
}

// rowsAtOnce is so small that cli-runtime does not flush within them: widths that it has
// printed do not change.
const rowsAtOnce = 99

func (t *Table) emitEvent(p Piece) error {
	row := &metav1.Table{ColumnDefinitions: t.columns, Rows: []metav1.TableRow{p.row}}
	return t.printer.PrintObj(&metav1.WatchEvent{Type: p.event, Object: runtime.RawExtension{Object: row}}, t.tabs)
}

// End implements Printer.
func (t *Table) End(io.Writer) error { return t.tabs.Flush() }
