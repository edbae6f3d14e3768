// Package printer prints objects as kubectl does: as tables, JSON, YAML and names, and
// with the templates of a user.
package printer

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// Object is one selected object. Object is nil if the printer does not need it decoded.
type Object struct {
	source.Item
	runtime.Object
	Event string // of a watch: ADDED, MODIFIED, DELETED
}

// Piece is the result of rendering one object.
type Piece struct {
	text  []byte
	row   metav1.TableRow
	event string // of a row of a watch
	value map[string]any
}

// Printer writes a list of objects: Begin, what Emit is given of Render, End. Render must
// be safe for concurrent use; the other methods are called from one goroutine. The pieces
// arrive in the order of the list.
type Printer interface {
	Needs() source.Depth
	Begin(io.Writer) error
	Render(Object) (Piece, error)
	Emit(io.Writer, []Piece) error
	End(io.Writer) error
}

// Flags are the flags that define how objects are printed. Complete must be called before
// anything is printed.
type Flags struct {
	Format       string
	Count        bool
	NoHeaders    bool
	showLabels   bool
	labelColumns []string
	objects      *genericclioptions.JSONYamlPrintFlags

	path     *jsonPath   // of -o jsonpath
	template *goTemplate // of -o go-template
	columns  *columns    // of -o custom-columns
}

// PlainFormats are the formats without a template.
var PlainFormats = []string{"table", "wide", "json", "yaml", "kyaml", "name"}

// ObjectFormats are what a shell completes -o to, for commands that print objects.
var ObjectFormats = slices.Concat(PlainFormats, []string{
	"jsonpath=", "jsonpath-as-json=", "jsonpath-file=", "go-template=", "go-template-file=", "custom-columns=", "custom-columns-file=",
})

const formats = "table, wide, json, yaml, kyaml, name, jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE, jsonpath-file=FILE, " +
	"go-template=TEMPLATE, go-template-file=FILE, custom-columns=HEADER:PATH,..., custom-columns-file=FILE"

// Add adds all flags.
func (f *Flags) Add(cmd *cobra.Command) {
	f.AddForms(cmd)
	cmd.Flags().BoolVar(&f.Count, "count", false, "Print the number of objects only.")
}

// AddForms does what Add does, without --count.
func (f *Flags) AddForms(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.Format, "output", "o", "table", "How to print, one of: "+formats+".")
	flags.BoolVar(&f.NoHeaders, "no-headers", false, "With a table: no line of headers.")
	flags.BoolVar(&f.showLabels, "show-labels", false, "With a table: all labels in the last column.")
	flags.StringSliceVarP(&f.labelColumns, "label-columns", "L", nil, "With a table: a column for each of these labels, separated by commas.")
	f.objects = genericclioptions.NewJSONYamlPrintFlags()
	f.objects.AddFlags(cmd)
}

// Complete checks the format. A template is applied to the List, as in kubectl.
func (f *Flags) Complete(cmd *cobra.Command) error {
	form, argument, hasArgument := strings.Cut(f.Format, "=")
	known, err := f.Format == "" || slices.Contains(PlainFormats, f.Format), error(nil)
	if hasArgument {
		known, err = f.parse(form, argument)
	}
	switch {
	case err != nil:
		return cmdutil.Usagef(cmd, "--output %s: %w", f.Format, err)
	case !known:
		known, _ := cmdutil.Listed(f.Format, ObjectFormats)
		return cmdutil.Usagef(cmd, "unknown output format %q; there are %s", f.Format, known)
	case f.Count && f.Format != "" && f.Format != "table":
		return cmdutil.Usagef(cmd, "--count prints a number, which -o %s does not change; leave one of them out", form)
	}
	return nil
}

// parse parses the argument of a format that has one, or what is in the file that it
// names. It returns false for an unknown format.
func (f *Flags) parse(form, argument string) (known bool, err error) {
	text := argument
	if slices.Contains([]string{"jsonpath-file", "go-template-file", "custom-columns-file"}, form) {
		content, err := os.ReadFile(argument)
		if err != nil {
			return true, err
		}
		text = string(content)
	}
	switch form {
	case "jsonpath", "jsonpath-file":
		f.path, err = parseJSONPath(text)
	case "jsonpath-as-json":
		if f.path, err = parseJSONPath(text); err == nil {
			f.path = &jsonPath{text: text, template: text, asJSON: true}
		}
	case "go-template", "go-template-file":
		f.template, err = parseGoTemplate(text)
	case "custom-columns":
		f.columns, err = parseColumns(text)
	case "custom-columns-file":
		f.columns, err = parseColumnsFile(text)
	default:
		return false, nil
	}
	return true, err
}

// Whole reports whether the format prints more of an object than its metadata.
func (f *Flags) Whole() bool { return f.HasTemplate() || f.isDocument() }

// HasTemplate reports whether a user says what is printed of an object.
func (f *Flags) HasTemplate() bool { return f.path != nil || f.template != nil || f.columns != nil }

// isDocument reports whether the format is JSON or YAML.
func (f *Flags) isDocument() bool {
	return slices.Contains([]string{"json", "yaml", "kyaml"}, f.Format)
}

// IsTable reports whether the format is a table.
func (f *Flags) IsTable() bool {
	return !f.Whole() && f.Format != "name" && !f.Count
}

// showsLabels reports whether labels are in the table. A process sends headers without
// them.
func (f *Flags) showsLabels() bool { return f.showLabels || len(f.labelColumns) > 0 }

// ShowsManagedFields reports whether objects are printed with their managedFields.
func (f *Flags) ShowsManagedFields() bool { return f.objects.ShowManagedFields }

// Printer returns the printer of a format that is no table. one is set for the object of
// one NAME, which is printed by itself, as in kubectl.
func (f *Flags) Printer(one bool) Printer {
	switch {
	case f.path != nil:
		return f.path.printer(one)
	case f.template != nil:
		return f.template.printer(one)
	case f.columns != nil:
		f.columns.noHeaders = f.NoHeaders
		return f.columns
	case one && f.isDocument():
		return oneObject{objectRenderer{f.objects, f.Format}}
	case f.Format == "json":
		return &objectList{objectRenderer: objectRenderer{f.objects, "json"}, listTexts: jsonTexts}
	case f.Format == "yaml":
		return &objectList{objectRenderer: objectRenderer{f.objects, "yaml"}, listTexts: yamlTexts}
	case f.Format == "kyaml":
		return &objectList{objectRenderer: objectRenderer{f.objects, "kyaml"}, listTexts: kyamlTexts}
	}
	return nameList{}
}

// listOf returns the List that a template is applied to.
func listOf(items []any) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "List", "items": items,
		"metadata": map[string]any{"resourceVersion": ""},
	}
}

// objectRenderer prints single objects in the same way as kubectl.
type objectRenderer struct {
	flags  *genericclioptions.JSONYamlPrintFlags
	format string
}

func (objectRenderer) Needs() source.Depth { return source.Record }

// text prints one object with prefix before every line except the first line and empty
// lines. The objects of a List are part of a larger document. This indentation does not
// change strings: a JSON or YAML string contains line breaks only where indentation is
// not part of it. YAML breaks long strings depending on where they stand, so an object of
// a List is printed inside of one, which is then cut off.
func (r objectRenderer) text(o Object, prefix string) ([]byte, error) {
	// A YAML printer writes separators between the documents it prints, so each object
	// has its own printer.
	p, err := r.flags.ToPrinter(r.format)
	if err != nil {
		return nil, err
	}
	if m, err := meta.Accessor(o.Object); err == nil && !r.flags.ShowManagedFields {
		m.SetManagedFields(nil)
	}
	// The printer of JSON takes the fields of a Go type in the order of the type.
	content, err := Content(o.Object)
	if err != nil {
		return nil, err
	}
	inList := prefix != "" && r.format == "yaml"
	if inList {
		content = map[string]any{"apiVersion": "v1", "items": []any{content}, "kind": "List"}
	}
	var buf bytes.Buffer
	if err := p.PrintObj(&unstructured.Unstructured{Object: content}, &buf); err != nil {
		return nil, err
	}
	if inList {
		text := bytes.TrimPrefix(buf.Bytes(), []byte(yamlTexts.begin+yamlTexts.first))
		return bytes.TrimSuffix(text, []byte("\nkind: List\n")), nil
	}
	text := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	out := make([]byte, 0, len(text)+bytes.Count(text, []byte("\n"))*len(prefix))
	for line := range bytes.Lines(text) { // the last string may end in line breaks
		if len(out) > 0 && line[0] != '\n' {
			out = append(out, prefix...)
		}
		out = append(out, line...)
	}
	return out, nil
}

// oneObject prints the only object in the same way as kubectl.
type oneObject struct{ objectRenderer }

func (oneObject) Begin(io.Writer) error { return nil }
func (oneObject) End(io.Writer) error   { return nil }

func (p oneObject) Render(o Object) (Piece, error) {
	text, err := p.text(o, "")
	return Piece{text: append(text, '\n')}, err
}

func (oneObject) Emit(w io.Writer, pieces []Piece) error { return writeTexts(w, pieces) }

// writeTexts writes the texts of pieces.
func writeTexts(w io.Writer, pieces []Piece) error {
	for _, piece := range pieces {
		if _, err := w.Write(piece.text); err != nil {
			return err
		}
	}
	return nil
}

// listTexts are the texts around the elements of a v1 List.
type listTexts struct {
	begin, indent string
	head          string // of an element on its own, which it does not have in a List
	first, next   string // before an element
	empty, end    string // if there was no element, and behind the last one
}

// The texts of kubectl.
var (
	jsonTexts = listTexts{
		begin: "{\n    \"apiVersion\": \"v1\",\n    \"items\": [", indent: "        ",
		first: "\n        ", next: ",\n        ",
		empty: "]" + jsonEnd, end: "\n    ]" + jsonEnd,
	}
	yamlTexts = listTexts{
		begin: "apiVersion: v1\nitems:", indent: "  ", first: "\n- ", next: "\n- ",
		empty: " []" + yamlEnd, end: yamlEnd,
	}
	kyamlTexts = listTexts{
		begin: "---\n{\n  apiVersion: \"v1\",\n  items: [", indent: "  ", head: "---\n  ", next: ", ",
		empty: kyamlEnd, end: kyamlEnd,
	}
)

const (
	jsonEnd  = ",\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n"
	yamlEnd  = "\nkind: List\nmetadata:\n  resourceVersion: \"\"\n"
	kyamlEnd = "],\n  kind: \"List\",\n  metadata: {\n    resourceVersion: \"\",\n  },\n}\n"
)

// objectList prints a v1 List in the same way as kubectl, one element at a time.
type objectList struct {
	objectRenderer
	listTexts
	printed bool
}

func (p *objectList) Begin(w io.Writer) error {
	_, err := io.WriteString(w, p.begin)
	return err
}

func (p *objectList) Render(o Object) (Piece, error) {
	text, err := p.text(o, p.indent)
	return Piece{text: bytes.TrimPrefix(text, []byte(p.head))}, err
}

func (p *objectList) Emit(w io.Writer, pieces []Piece) error {
	for _, piece := range pieces {
		before := p.next
		if !p.printed {
			before = p.first
		}
		p.printed = true
		if _, err := io.WriteString(w, before); err != nil {
			return err
		}
		if _, err := w.Write(piece.text); err != nil {
			return err
		}
	}
	return nil
}

func (p *objectList) End(w io.Writer) error {
	end := p.end
	if !p.printed {
		end = p.empty
	}
	_, err := io.WriteString(w, end)
	return err
}

// nameList prints kind/name. It needs only the keys.
type nameList struct{}

func (nameList) Needs() source.Depth   { return source.Nothing }
func (nameList) Begin(io.Writer) error { return nil }
func (nameList) End(io.Writer) error   { return nil }

func (nameList) Render(o Object) (Piece, error) {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	obj.SetGroupVersionKind(o.Kind())
	var buf bytes.Buffer
	err := (&printers.NamePrinter{ShortOutput: true}).PrintObj(obj, &buf)
	return Piece{text: buf.Bytes()}, err
}

func (nameList) Emit(w io.Writer, pieces []Piece) error { return writeTexts(w, pieces) }
