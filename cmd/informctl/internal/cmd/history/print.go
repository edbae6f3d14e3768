package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// loggedChange is a line of history.
type loggedChange struct {
	objectdiff.Line
	cluster string // "" if all are of one
	kind    string // as -o name has it: pod, or deployment.apps
	// What tells it from the same change in another scope, see withoutRepeated.
	scope *source.View
	from  string // the resource version of the state before
}

// shownFields is how many fields a table shows of a change.
const shownFields = 2

func (c loggedChange) cells(all bool, now time.Time) []any {
	shown := c.Fields
	if !all && len(shown) > shownFields {
		shown = shown[:shownFields]
	}
	texts := make([]string, 0, len(shown)+1)
	for _, p := range shown {
		text := p.String()
		if runes := []rune(text); !all && len(runes) > 100 {
			text = string(runes[:99]) + "…"
		}
		texts = append(texts, text)
	}
	if n := len(c.Fields) - len(shown); n > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", n))
	}
	name := c.Resource + " " + c.Name
	if c.Namespace != "" {
		name = c.Resource + " " + c.Namespace + "/" + c.Name
	}
	if c.cluster != "" {
		name += " of " + c.cluster
	}
	return []any{c.when(now), c.Change, name, cmp.Or(strings.Join(c.Managers, ","), cmdutil.NoValue), cmp.Or(strings.Join(texts, ", "), cmdutil.NoValue)}
}

// when returns the time of a change in the zone of the reader, with the day if it is not
// today.
func (c loggedChange) when(now time.Time) string {
	text := func(t time.Time) string {
		t = t.Local()
		if now.Local().Format(time.DateOnly) == t.Format(time.DateOnly) {
			return t.Format(time.TimeOnly)
		}
		return t.Format(time.DateTime)
	}
	if c.Since != nil {
		return text(*c.Since) + "-" + text(c.Time)
	}
	return text(c.Time)
}

var historyColumns = []string{"Time", "What", "Object", "Who", "Changes"}

func (o *options) print(w io.Writer, found []loggedChange) error {
	if o.output != "table" && o.output != "wide" {
		return o.lines(w, found)
	}
	if len(found) == 0 {
		return nil
	}
	rows := make([][]any, 0, len(found))
	for _, c := range found {
		rows = append(rows, c.cells(o.output == "wide", o.env.Now()))
	}
	return printer.TableFlags{Format: "table", NoHeaders: o.noHeaders}.Print(w, found, historyColumns, rows)
}

// lines prints changes one by one: JSON and YAML are a document for each.
func (o *options) lines(w io.Writer, found []loggedChange) error {
	for _, c := range found {
		var err error
		switch o.output {
		case "json":
			err = json.NewEncoder(w).Encode(c)
		case "yaml":
			var b []byte
			if b, err = yaml.Marshal(c); err == nil {
				_, err = fmt.Fprintf(w, "---\n%s", b)
			}
		case "name":
			_, err = fmt.Fprintln(w, c.kind+"/"+c.Name)
		default:
			cells := c.cells(o.output == "wide", o.env.Now())
			_, err = fmt.Fprintf(w, "%-9s  %-8s  %-30s  %-20s  %s\n", cells...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
