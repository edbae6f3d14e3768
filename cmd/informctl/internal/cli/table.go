package cli

import (
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

// tabPadding is the space between columns in cli-runtime's tab writer, and tabMinimum the
// minimal width of a column.
const (
	tabPadding = 3
	tabMinimum = 6
)

// table prints NAMESPACE, NAME and AGE, preceded by KIND if several resources are
// printed.
type table struct {
	columns []metav1.TableColumnDefinition
	kinds   bool
	wide    bool
	events  bool // of a watch: the first column is the event
	now     time.Time
	widths  []int
	printer printers.ResourcePrinter
	tabs    tabWriter
}

// tabWriter is the part of cli-runtime's tab writer that is used here.
type tabWriter interface {
	io.Writer
	Flush() error
}

func newTable(items []item, kinds, wide, noHeaders bool, now time.Time) *table {
	t := &table{kinds: kinds, wide: wide, now: now}
	t.printer = printers.NewTablePrinter(printers.PrintOptions{Wide: wide, NoHeaders: noHeaders})
	// The widths are known before the first row is printed, so rows can be written at
	// once and are still aligned.
	t.add("Kind", kinds, 0, func(i item) string { return i.kind().Kind }, items)
	t.add("Namespace", true, 0, func(i item) string { return i.namespace }, items)
	t.add("Name", true, 0, func(i item) string { return i.name }, items)
	t.add("Age", true, 0, func(item) string { return "9y364d" }, items[:min(1, len(items))])
	t.add("RV", true, 1, func(item) string { return "0123456789" }, items[:min(1, len(items))])
	t.add("Bytes", true, 1, func(item) string { return "0123456" }, items[:min(1, len(items))])
	t.add("UID", true, 1, func(item) string { return "" }, nil)
	return t
}

func (t *table) add(name string, shown bool, priority int32, value func(item) string, items []item) {
	if !shown {
		return
	}
	width := len(name)
	for _, i := range items {
		width = max(width, len(value(i)))
	}
	t.columns = append(t.columns, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority})
	t.widths = append(t.widths, max(width+tabPadding, tabMinimum))
}

// withEvents turns the table into one of changes. Their objects have no size.
func (t *table) withEvents() *table {
	t.events = true
	t.columns = slices.Insert(t.columns, 0, metav1.TableColumnDefinition{Name: "Event", Type: "string"})
	t.widths = slices.Insert(t.widths, 0, len("MODIFIED")+tabPadding)
	return t
}

func (t *table) needs() depth {
	if t.wide {
		return record // for its size
	}
	return header
}

func (t *table) begin(w io.Writer) error {
	tabs := printers.GetNewTabWriter(w)
	t.tabs = tabs.SetRememberedWidths(t.widths)
	return nil
}

func (t *table) render(o object) (piece, error) {
	m, err := meta.Accessor(o.Object)
	if err != nil {
		return piece{}, err
	}
	age := "<unknown>"
	if created := m.GetCreationTimestamp(); !created.IsZero() {
		age = duration.HumanDuration(t.now.Sub(created.Time))
	}
	var cells []any
	var size any = int64(o.bytes)
	if t.events {
		cells, size = append(cells, o.event), noValue
	}
	if t.kinds {
		cells = append(cells, o.kind().Kind)
	}
	cells = append(cells, o.namespace, o.name, age, m.GetResourceVersion(), size, string(m.GetUID()))
	return piece{row: metav1.TableRow{Cells: cells}}, nil
}

func (t *table) emit(_ io.Writer, pieces []piece) error {
	part := &metav1.Table{ColumnDefinitions: t.columns}
	for _, piece := range pieces {
		part.Rows = append(part.Rows, piece.row)
	}
	if err := t.printer.PrintObj(part, t.tabs); err != nil {
		return err
	}
	return t.tabs.Flush()
}

func (t *table) end(io.Writer) error { return nil }
