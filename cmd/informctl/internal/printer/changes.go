package printer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
	"sigs.k8s.io/yaml/kyaml"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// OneByOne returns the printer of a format that is no table for objects that come one by
// one, nil for a table. With events, columns have one for the event.
func (f *Flags) OneByOne(events bool) Printer {
	switch {
	case f.path != nil:
		p := &pathPrinter{jsonPath: f.path.ofOne()}
		return changePrinter(func(o Object, content map[string]any) ([]byte, error) {
			var text strings.Builder
			err := p.apply(&text, content)
			return o.line(text.String()), err
		})
	case f.template != nil:
		p := &templatePrinter{goTemplate: f.template.ofOne()}
		return changePrinter(func(o Object, content map[string]any) ([]byte, error) {
			text, err := p.apply(content)
			return o.line(string(text)), err
		})
	case f.columns != nil:
		f.columns.noHeaders, f.columns.events = f.NoHeaders, events
		return f.columns
	case f.Format == "name":
		return changePrinter(func(o Object, _ map[string]any) ([]byte, error) {
			name, err := nameList{}.Render(o)
			return o.line(string(name.text)), err
		})
	case f.Format == "json":
		return changePrinter(func(o Object, content map[string]any) ([]byte, error) {
			line, err := json.Marshal(o.document(content))
			return append(line, '\n'), err
		})
	case f.Format == "yaml":
		return changePrinter(func(o Object, content map[string]any) ([]byte, error) {
			text, err := yaml.Marshal(o.document(content))
			return append([]byte("---\n"), text...), err
		})
	case f.Format == "kyaml":
		return changePrinter(func(o Object, content map[string]any) ([]byte, error) {
			var text bytes.Buffer
			err := (&kyaml.Encoder{}).FromObject(o.document(content), &text)
			return text.Bytes(), err
		})
	}
	return nil
}

// changeDocument is the JSON and YAML form of a change. Its field names are stable and
// equal to those of the API.
type changeDocument struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

// line returns a line of text, behind the event if there is one.
func (o Object) line(text string) []byte {
	text = strings.TrimSuffix(text, "\n")
	if o.Event == "" {
		return []byte(text + "\n")
	}
	return fmt.Appendf(nil, "%-8s   %s\n", o.Event, text)
}

// document returns what JSON and YAML show of a change.
func (o Object) document(content map[string]any) any {
	if o.Event == "" {
		return content
	}
	return changeDocument{o.Event, content}
}

// Misfit is the error of an object that a template makes no sense of. It does not end a
// watch of others.
type Misfit struct{ error }

// changePrinter prints each change separately.
type changePrinter func(o Object, content map[string]any) ([]byte, error)

func (changePrinter) Needs() source.Depth   { return source.Record }
func (changePrinter) Begin(io.Writer) error { return nil }
func (changePrinter) End(io.Writer) error   { return nil }

func (p changePrinter) Render(o Object) (Piece, error) {
	content, err := Content(o.Object)
	if err != nil {
		return Piece{}, err
	}
	text, err := p(o, content)
	if err != nil {
		return Piece{}, Misfit{err}
	}
	return Piece{text: text}, nil
}

func (changePrinter) Emit(w io.Writer, pieces []Piece) error { return writeTexts(w, pieces) }
