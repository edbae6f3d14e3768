package printer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// goTemplate is a template that is applied to the List of all objects, as in kubectl. A
// template of the usual form HEAD{{range .items}}BODY{{end}}TAIL, where HEAD and TAIL are
// text, is applied to one item at a time, so that memory does not grow with the list.
// Every other template is applied to the whole List.
type goTemplate struct {
	whole      string // as the user wrote it
	text       string // BODY, or the whole template
	each       bool
	head, tail string
}

func parseGoTemplate(text string) (*goTemplate, error) {
	if text == "" {
		return nil, errors.New("no template given")
	}
	if _, err := printers.NewGoTemplatePrinter([]byte(text)); err != nil {
		return nil, err
	}
	if t := perItem(text); t != nil {
		// BODY may be invalid by itself: a break is not allowed outside of its range.
		if _, err := printers.NewGoTemplatePrinter([]byte(t.text)); err == nil {
			t.whole = text
			return t, nil
		}
	}
	return &goTemplate{whole: text, text: text}, nil
}

// perItem splits a template of the usual form into its parts. It returns nil for other
// templates.
func perItem(text string) *goTemplate {
	tree := parse.New("output")
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(text, "", "", map[string]*parse.Tree{}); err != nil || tree.Root == nil {
		return nil
	}
	t := &goTemplate{each: true}
	var body *parse.RangeNode
	for _, node := range tree.Root.Nodes {
		switch node := node.(type) {
		case *parse.TextNode:
			if body == nil {
				t.head += string(node.Text)
			} else {
				t.tail += string(node.Text)
			}
		case *parse.RangeNode:
			if body != nil || node.ElseList != nil || node.Pipe.String() != ".items" {
				return nil
			}
			body = node
		default:
			return nil
		}
	}
	if body == nil {
		return nil
	}
	t.text = body.List.String()
	if strings.Contains(t.text, "$") || strings.Contains(t.text, "{{template") {
		return nil // may refer to the List
	}
	return t
}

// printer returns a printer. With one set, the template is applied to the only object and
// not to a List.
func (t *goTemplate) printer(one bool) Printer {
	if one {
		t = t.ofOne()
	}
	return &templatePrinter{goTemplate: t, items: []any{}}
}

// ofOne returns the template as it is applied to an object.
func (t *goTemplate) ofOne() *goTemplate {
	return &goTemplate{whole: t.whole, text: t.whole, each: true}
}

type templatePrinter struct {
	*goTemplate
	items []any // of the whole list
}

func (p *templatePrinter) Needs() source.Depth { return source.Record }

func (p *templatePrinter) Begin(w io.Writer) error {
	_, err := io.WriteString(w, p.head)
	return err
}

func (p *templatePrinter) Render(o Object) (Piece, error) {
	content, err := Content(o.Object)
	if err != nil || !p.each {
		return Piece{value: content}, err
	}
	text, err := p.apply(content)
	return Piece{text: text}, err
}

// apply returns no text after an error, because the printer then also prints the object.
func (p *templatePrinter) apply(content map[string]any) ([]byte, error) {
	printer, err := printers.NewGoTemplatePrinter([]byte(p.text))
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := printer.PrintObj(&unstructured.Unstructured{Object: content}, &buf); err != nil {
		return nil, fmt.Errorf("apply go-template: %w", err)
	}
	return buf.Bytes(), nil
}

func (p *templatePrinter) Emit(w io.Writer, pieces []Piece) error {
	for _, piece := range pieces {
		if !p.each {
			p.items = append(p.items, piece.value)
			continue
		}
		if _, err := w.Write(piece.text); err != nil {
			return err
		}
	}
	return nil
}

func (p *templatePrinter) End(w io.Writer) error {
	if p.each {
		_, err := io.WriteString(w, p.tail)
		return err
	}
	text, err := p.apply(listOf(p.items))
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
