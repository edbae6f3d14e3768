package printer

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/liggitt/tabwriter"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// columns prints -o custom-columns in the same way as kubectl. kubectl's printer would
// double the size of the program and its start-up time. The texts of all rows are held
// until the end, because they determine the widths.
type columns struct {
	headers, paths []string
	noHeaders      bool
	events         bool // of a watch: the first column is the event
	managed        bool // a path may reach managedFields, which are expensive
	tabs           *tabwriter.Writer
}

// besidesManagedFields matches paths that cannot reach metadata.managedFields.
var besidesManagedFields = regexp.MustCompile(`^\{\.(spec|status|data|kind|apiVersion|metadata\.(name|namespace|uid|labels|annotations|resourceVersion|generation|creationTimestamp|deletionTimestamp|ownerReferences|finalizers))\b[^.]*(\.[^.]+)*\}$`)

// parseColumns parses HEADER:PATH,HEADER:PATH.
func parseColumns(spec string) (*columns, error) {
	c := &columns{}
	for part := range strings.SplitSeq(spec, ",") {
		header, path, ok := strings.Cut(part, ":")
		if !ok || header == "" || path == "" {
			return nil, fmt.Errorf("%q is not HEADER:PATH", part)
		}
		if err := c.add(header, path); err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
	}
	return c, nil
}

// parseColumnsFile parses a line of headers and a line of paths.
func parseColumnsFile(text string) (*columns, error) {
	first, rest, _ := strings.Cut(text, "\n")
	second, _, _ := strings.Cut(rest, "\n")
	headers, paths := strings.Fields(first), strings.Fields(second)
	if len(headers) == 0 || len(headers) != len(paths) {
		return nil, fmt.Errorf("it has %d headers in the first line and %d paths in the second", len(headers), len(paths))
	}
	c := &columns{}
	for i, path := range paths {
		if err := c.add(headers[i], path); err != nil {
			return nil, fmt.Errorf("%q: %w", path, err)
		}
	}
	return c, nil
}

func (c *columns) add(header, path string) error {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "{"), "}")
	if strings.ContainsAny(path, "{}") {
		return errors.New("a path is one expression")
	}
	path = "{." + strings.TrimPrefix(path, ".") + "}"
	if _, err := newTemplate(path); err != nil {
		return err
	}
	c.managed = c.managed || !besidesManagedFields.MatchString(path)
	c.headers, c.paths = append(c.headers, header), append(c.paths, path)
	return nil
}

func (c *columns) Needs() source.Depth { return source.Record }

func (c *columns) Begin(w io.Writer) error {
	c.tabs = printers.GetNewTabWriter(w)
	if c.noHeaders {
		return nil
	}
	headers := c.headers
	if c.events {
		headers = append([]string{"EVENT"}, headers...)
	}
	_, err := fmt.Fprintln(c.tabs, strings.Join(headers, "\t"))
	return err
}

// Render converts the object, because columns select fields of the JSON form and not of
// Go's structs.
func (c *columns) Render(o Object) (Piece, error) {
	if m, err := meta.Accessor(o.Object); err == nil && !c.managed {
		m.SetManagedFields(nil)
	}
	content, err := Content(o.Object)
	if err != nil {
		return Piece{}, err
	}
	cells := make([]string, len(c.paths))
	for i, path := range c.paths {
		if cells[i], err = cell(path, content); err != nil {
			return Piece{}, fmt.Errorf("column %s: %w", c.headers[i], err)
		}
	}
	if c.events {
		cells = append([]string{o.Event}, cells...)
	}
	return Piece{text: []byte(strings.Join(cells, "\t") + "\n")}, nil
}

// cell returns the values at a path, separated by commas.
func cell(path string, content map[string]any) (string, error) {
	template, err := newTemplate(path)
	if err != nil {
		return "", err
	}
	results, err := template.FindResults(content)
	if err != nil {
		return cmdutil.NoValue, nil //nolint:nilerr // an object that the path does not fit has no value
	}
	var found []string
	for _, result := range results {
		for _, value := range result {
			found = append(found, printers.EscapeTerminal(fmt.Sprint(value.Interface())))
		}
	}
	if len(found) == 0 {
		return cmdutil.NoValue, nil
	}
	return strings.Join(found, ","), nil
}

func (c *columns) Emit(_ io.Writer, pieces []Piece) error { return writeTexts(c.tabs, pieces) }

func (c *columns) End(io.Writer) error { return c.tabs.Flush() }
