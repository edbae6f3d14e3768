package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// object is one selected object. Object is nil if the printer does not need it decoded.
type object struct {
	source.Item
	runtime.Object
	event string // of a watch: ADDED, MODIFIED, DELETED
}

// piece is the result of rendering one object.
type piece struct {
	text  []byte
	row   metav1.TableRow
	event string // of a row of a watch
	value map[string]any
}

// printer writes a list of objects. render must be safe for concurrent use; the other
// methods are called from one goroutine. The pieces arrive in the order of the list.
type printer interface {
	needs() source.Depth
	begin(io.Writer) error
	render(object) (piece, error)
	emit(io.Writer, []piece) error
	end(io.Writer) error
}

// outputFlags are the flags that define how objects are printed.
type outputFlags struct {
	format       string
	count        bool
	noHeaders    bool
	showLabels   bool
	labelColumns []string
	objects      *genericclioptions.JSONYamlPrintFlags

	path     *jsonPath   // of -o jsonpath=
	template *goTemplate // of -o go-template=
	columns  *columns    // of -o custom-columns=
}

// plainFormats are the formats without a template.
var plainFormats = []string{"table", "wide", "json", "yaml", "name"}

// objectFormats are what a shell completes -o to, for commands that print objects.
var objectFormats = slices.Concat(plainFormats, []string{"jsonpath=", "go-template=", "custom-columns="})

const formats = "table, wide, json, yaml, name, jsonpath=TEMPLATE, go-template=TEMPLATE, custom-columns=HEADER:PATH,..."

func (f *outputFlags) add(cmd *cobra.Command) {
	f.addForms(cmd)
	cmd.Flags().BoolVar(&f.count, "count", false, "Print the number of objects only.")
}

func (f *outputFlags) addForms(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.format, "output", "o", "table", "How to print, one of: "+formats+".")
	flags.BoolVar(&f.noHeaders, "no-headers", false, "With a table: no line of headers.")
	flags.BoolVar(&f.showLabels, "show-labels", false, "With a table: all labels in the last column.")
	flags.StringSliceVarP(&f.labelColumns, "label-columns", "L", nil, "With a table: a column for each of these labels, separated by commas.")
	f.objects = genericclioptions.NewJSONYamlPrintFlags()
	f.objects.AddFlags(cmd)
}

// complete checks the format. A template is applied to the List, as in kubectl.
func (f *outputFlags) complete(cmd *cobra.Command) (err error) {
	form, argument, hasArgument := strings.Cut(f.format, "=")
	switch {
	case hasArgument && form == "jsonpath":
		f.path, err = parseJSONPath(argument)
	case hasArgument && form == "go-template":
		f.template, err = parseGoTemplate(argument)
	case hasArgument && form == "custom-columns":
		f.columns, err = parseColumns(argument)
	case f.format != "" && !slices.Contains(plainFormats, f.format):
		return cmdutil.Usagef(cmd, "unknown output format %q; there are %s", f.format, formats)
	}
	if err != nil {
		return cmdutil.Usagef(cmd, "--output %s: %w", f.format, err)
	}
	if f.count && f.format != "" && f.format != "table" {
		return cmdutil.Usagef(cmd, "--count prints a number, which -o %s does not change; leave one of them out", form)
	}
	return nil
}

// whole reports whether the format prints more of an object than its metadata.
func (f *outputFlags) whole() bool {
	return f.path != nil || f.template != nil || f.columns != nil || f.format == "json" || f.format == "yaml"
}

// isTable reports whether the format is a table.
func (f *outputFlags) isTable() bool {
	return !f.whole() && f.format != "name" && !f.count
}

// showsLabels reports whether labels are in the table. A process sends headers without
// them.
func (f *outputFlags) showsLabels() bool { return f.showLabels || len(f.labelColumns) > 0 }

// showsManagedFields reports whether objects are printed with their managedFields.
func (f *outputFlags) showsManagedFields() bool { return f.objects.ShowManagedFields }

// decoderFor returns the codec that decodes the parts of a scope's objects that the
// conditions and, unless it is a table, the format need, nil for whole objects. Metadata
// is the first field in the protobuf of every kind, also of unknown kinds. msgpack has no
// parts, so its objects are decoded whole.
func (o *readOptions) decoderFor(scope store.Scope) (codec.Codec, error) {
	parts, all := o.sieve.parts()
	switch {
	case all || o.whole || o.format.whole():
		return nil, nil
	case !slices.ContainsFunc(parts, func(name string) bool { return name != metadataField }):
		return codec.For(&metav1.PartialObjectMetadata{})
	case scope.Form != store.Typed:
		return nil, nil
	}
	if !o.format.count {
		parts = append(parts, metadataField) // for the table
	}
	if c := codec.ForFields(scope.Kind, parts...); c != nil {
		return c, nil
	}
	return nil, nil
}

// printer returns the printer of a format that is no table. one is set for the object of
// one NAME, which is printed by itself, as in kubectl.
func (f *outputFlags) printer(one bool) printer {
	switch {
	case f.path != nil:
		return f.path.printer(one)
	case f.template != nil:
		return f.template.printer(one)
	case f.columns != nil:
		f.columns.noHeaders = f.noHeaders
		return f.columns
	case one && (f.format == "json" || f.format == "yaml"):
		return oneObject{objectRenderer{f.objects, f.format}}
	case f.format == "json":
		return &jsonList{objectRenderer: objectRenderer{f.objects, "json"}}
	case f.format == "yaml":
		return &yamlList{objectRenderer: objectRenderer{f.objects, "yaml"}}
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

func (objectRenderer) needs() source.Depth { return source.Record }

// text prints one object with prefix before every line except the first line and empty
// lines. The objects of a List are part of a larger document. This indentation does not
// change strings: a JSON or YAML string contains line breaks only where indentation is
// not part of it.
func (r objectRenderer) text(o object, prefix string) ([]byte, error) {
	// A YAML printer writes separators between the documents it prints, so each object
	// has its own printer.
	p, err := r.flags.ToPrinter(r.format)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := p.PrintObj(o.Object, &buf); err != nil {
		return nil, err
	}
	lines := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	out := make([]byte, 0, len(lines)+bytes.Count(lines, []byte("\n"))*len(prefix))
	for i, line := 0, []byte(nil); len(lines) > 0; i++ {
		line, lines, _ = bytes.Cut(lines, []byte("\n"))
		if i > 0 {
			out = append(out, '\n')
			if len(line) > 0 {
				out = append(out, prefix...)
			}
		}
		out = append(out, line...)
	}
	return out, nil
}

// oneObject prints the only object in the same way as kubectl.
type oneObject struct{ objectRenderer }

func (oneObject) begin(io.Writer) error { return nil }
func (oneObject) end(io.Writer) error   { return nil }

func (p oneObject) render(o object) (piece, error) {
	text, err := p.text(o, "")
	return piece{text: append(text, '\n')}, err
}

func (oneObject) emit(w io.Writer, pieces []piece) error { return writeTexts(w, pieces) }

// writeTexts writes the texts of pieces.
func writeTexts(w io.Writer, pieces []piece) error {
	for _, piece := range pieces {
		if _, err := w.Write(piece.text); err != nil {
			return err
		}
	}
	return nil
}

// jsonList prints a v1 List in the same way as kubectl, one element at a time.
type jsonList struct {
	objectRenderer
	printed bool
}

func (p *jsonList) begin(w io.Writer) error {
	_, err := io.WriteString(w, "{\n    \"apiVersion\": \"v1\",\n    \"items\": [")
	return err
}

func (p *jsonList) render(o object) (piece, error) {
	text, err := p.text(o, "        ")
	return piece{text: text}, err
}

func (p *jsonList) emit(w io.Writer, pieces []piece) error {
	for _, piece := range pieces {
		separator := ",\n        "
		if !p.printed {
			separator = "\n        "
		}
		p.printed = true
		if _, err := io.WriteString(w, separator); err != nil {
			return err
		}
		if _, err := w.Write(piece.text); err != nil {
			return err
		}
	}
	return nil
}

func (p *jsonList) end(w io.Writer) error {
	closing := "]"
	if p.printed {
		closing = "\n    ]"
	}
	_, err := io.WriteString(w, closing+",\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n")
	return err
}

// yamlList does the same as YAML.
type yamlList struct {
	objectRenderer
	printed bool
}

func (p *yamlList) begin(w io.Writer) error {
	_, err := io.WriteString(w, "apiVersion: v1\nitems:")
	return err
}

func (p *yamlList) render(o object) (piece, error) {
	text, err := p.text(o, "  ")
	return piece{text: text}, err
}

func (p *yamlList) emit(w io.Writer, pieces []piece) error {
	for _, piece := range pieces {
		p.printed = true
		if _, err := fmt.Fprintf(w, "\n- %s", piece.text); err != nil {
			return err
		}
	}
	return nil
}

func (p *yamlList) end(w io.Writer) error {
	empty := ""
	if !p.printed {
		empty = " []"
	}
	_, err := io.WriteString(w, empty+"\nkind: List\nmetadata:\n  resourceVersion: \"\"\n")
	return err
}

// nameList prints kind/name. It needs only the keys.
type nameList struct{}

func (nameList) needs() source.Depth   { return source.Nothing }
func (nameList) begin(io.Writer) error { return nil }
func (nameList) end(io.Writer) error   { return nil }

func (nameList) render(o object) (piece, error) {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	obj.SetGroupVersionKind(o.Kind())
	var buf bytes.Buffer
	err := (&printers.NamePrinter{ShortOutput: true}).PrintObj(obj, &buf)
	return piece{text: buf.Bytes()}, err
}

func (nameList) emit(w io.Writer, pieces []piece) error { return writeTexts(w, pieces) }
