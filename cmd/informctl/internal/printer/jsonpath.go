package printer

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// jsonPath is a template that is applied to the List of all objects, as in kubectl.
// Templates of the two usual forms are applied to one item at a time, so that memory does
// not grow with the list:
//
//	{range .items[*]}BODY{end}TEXT
//	{.items[*].PATH}, where PATH consists of fields and [*]
//
// Every other template is applied to the whole List.
type jsonPath struct {
	text     string // as the user wrote it
	template string
	mode     pathMode
	tail     string // TEXT
	asJSON   bool   // results are printed as a list in JSON
}

type pathMode uint8

const (
	wholeList  pathMode = iota
	onlyObject          // the whole template for the only object
	eachBody            // BODY for each item
	eachPath            // PATH for each item, results separated by spaces
)

var (
	rangeOfItems = regexp.MustCompile(`(?s)^\{\s*range\s+\.items\[\*\]\s*\}(.*)\{\s*end\s*\}([^{}]*)$`)
	rangeOrEnd   = regexp.MustCompile(`\{\s*(range|end)\b`)
	pathOfItems  = regexp.MustCompile(`^\{\s*\.items\[\*\]((?:\.(?:[\w/-]|\\\.)+(?:\[\*\])?)+)\s*\}$`)
)

func parseJSONPath(text string) (*jsonPath, error) {
	if text == "" {
		return nil, errors.New("no template given")
	}
	// The whole template must be valid, whichever part of it is used.
	if _, err := newTemplate(text); err != nil {
		return nil, err
	}
	p := &jsonPath{text: text, template: text}
	if m := pathOfItems.FindStringSubmatch(text); m != nil {
		p = &jsonPath{text: text, template: "{" + m[1] + "}", mode: eachPath}
	} else if m := rangeOfItems.FindStringSubmatch(text); m != nil && balanced(m[1]) {
		p = &jsonPath{text: text, template: m[1], mode: eachBody, tail: m[2]}
	}
	_, err := newTemplate(p.template)
	return p, err
}

func newTemplate(text string) (*jsonpath.JSONPath, error) {
	t := jsonpath.New("output").AllowMissingKeys(true)
	return t, t.Parse(text)
}

// balanced reports whether every end in body closes a range in body. Quotes may hide
// either, so a quoted body with a range or end counts as unbalanced, and the whole list
// is used.
func balanced(body string) bool {
	if strings.ContainsAny(body, "\"'") && rangeOrEnd.MatchString(body) {
		return false
	}
	depth := 0
	for _, m := range rangeOrEnd.FindAllStringSubmatch(body, -1) {
		if m[1] == "range" {
			depth++
			continue
		}
		if depth--; depth < 0 {
			return false
		}
	}
	return depth == 0
}

// printer returns a printer. With one set, the template is applied to the only object and
// not to a List.
func (p *jsonPath) printer(one bool) Printer {
	if one {
		p = p.ofOne()
	}
	return &pathPrinter{jsonPath: p, items: []any{}}
}

// ofOne returns the template as it is applied to an object.
func (p *jsonPath) ofOne() *jsonPath {
	return &jsonPath{text: p.text, template: p.text, mode: onlyObject, asJSON: p.asJSON}
}

type pathPrinter struct {
	*jsonPath
	items   []any // of the whole list
	printed bool
}

func (p *pathPrinter) Needs() source.Depth   { return source.Record }
func (p *pathPrinter) Begin(io.Writer) error { return nil }

func (p *pathPrinter) Render(o Object) (Piece, error) {
	value, err := Content(o.Object)
	return Piece{value: value}, err
}

func (p *pathPrinter) Emit(w io.Writer, pieces []Piece) error {
	for _, piece := range pieces {
		if p.mode == wholeList {
			p.items = append(p.items, piece.value)
			continue
		}
		if err := p.apply(w, piece.value); err != nil {
			return err
		}
	}
	return nil
}

func (p *pathPrinter) End(w io.Writer) error {
	if p.mode != wholeList {
		_, err := io.WriteString(w, p.tail)
		return err
	}
	return p.apply(w, listOf(p.items))
}

// apply runs the template on one value. It does not use cli-runtime's printer, which
// includes the whole value in its errors.
func (p *pathPrinter) apply(w io.Writer, value any) error {
	// A template with a range can be evaluated only once.
	template, err := newTemplate(p.template)
	if err != nil {
		return err
	}
	template.EnableJSONOutput(p.asJSON)
	results, err := template.FindResults(value)
	if err != nil {
		return fmt.Errorf("apply jsonpath: %w", err)
	}
	for _, result := range results {
		if p.mode == eachPath && len(result) > 0 {
			if p.printed {
				if _, err := io.WriteString(w, " "); err != nil {
					return err
				}
			}
			p.printed = true
		}
		if err := template.PrintResults(w, result); err != nil {
			return fmt.Errorf("apply jsonpath: %w", err)
		}
	}
	return nil
}
