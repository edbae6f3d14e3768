package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
	"sigs.k8s.io/yaml/kyaml"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// loggedChange is a line of history.
type loggedChange struct {
	objectdiff.Line
	cluster string // "" if all are of one
	kind    string // as -o name has it: pod, or deployment.apps
	// as kept returns them, since they are many; nil unless they are printed
	before, after *store.Version
	// What tells it from the same change in another scope, see withoutRepeated.
	scope *source.View
	from  string // the resource version of the state before

	latest  time.Time // of the changes up to this one that were found in its scope
	unknown bool      // a state of an update is not known any more
	isNoise bool      // an update of nothing but what objectdiff.IsNoise knows
	part    string    // as objectdiff.PartOf returns it, of an update
	count   int       // how many changes it is, 0 if another one is for it
	first   time.Time // when the first of several was written, or began to be made
}

// document is a line with the objects of the change, as -o json, yaml and kyaml have it.
// The names of the objects are those of --where.
type document struct {
	objectdiff.Line
	OldObject map[string]any `json:"oldObject,omitempty"`
	Object    map[string]any `json:"object,omitempty"`
}

// wholeObjects reports whether the objects of a change are printed.
func (o *options) wholeObjects() bool {
	return slices.Contains([]string{"json", "yaml", "kyaml"}, o.output)
}

func (o *options) document(c *loggedChange) (document, error) {
	before, err := o.content(c, c.before)
	if err != nil {
		return document{}, err
	}
	after, err := o.content(c, c.after)
	return document{Line: c.Line, OldObject: before, Object: after}, err
}

// content returns a state as it may be shown, without managedFields; nil if there is none
// or it is not known.
func (o *options) content(c *loggedChange, of *store.Version) (map[string]any, error) {
	if of == nil || !of.IsKnown() {
		return nil, nil
	}
	e, err := o.unpacked(of.Entry)
	if err != nil {
		return nil, err
	}
	obj, err := c.scope.Reader.Decode(e)
	if err != nil {
		return nil, err
	}
	if obj, err = o.shown(c.scope, c.scope.WithKinds(obj)); err != nil {
		return nil, err
	}
	content, err := printer.Content(obj)
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	return content, err
}

// kept returns a state to be printed later, which is compressed: a process sends it
// uncompressed.
func (o *options) kept(v *store.Version) *store.Version {
	if v == nil || v.Entry.Raw == nil {
		return v
	}
	return &store.Version{Header: v.Header, Entry: store.Entry{Key: v.Entry.Key, Raw: o.states.Compress(nil, v.Entry.Raw)}}
}

// unpacked returns the entry of a state that kept has returned, as it was.
func (o *options) unpacked(e store.Entry) (store.Entry, error) {
	if e.Raw == nil {
		return e, nil
	}
	raw, err := o.states.Decompress(nil, e.Raw)
	return store.Entry{Key: e.Key, Raw: raw}, err
}

// shownFields is how many fields a table shows of a change.
const shownFields = 2

// Fields that a table shows first and last, by the last name of their path.
var (
	firstFields = []string{"image", "phase", "reason", "replicas", "restartCount"}
	lastFields  = []string{"generation", "observedGeneration", "lastHeartbeatTime", "lastProbeTime"}
)

// conditionStatus matches the paths of a condition and of its status.
var conditionStatus = regexp.MustCompile(`\bconditions\[[^\]]*\](\.status)?$`)

// rank orders the fields of a table.
func rank(f objectdiff.ChangedField) int {
	name := f.Path[strings.LastIndexByte(f.Path, '.')+1:]
	switch {
	case slices.Contains(firstFields, name), conditionStatus.MatchString(f.Path):
		return 0
	case slices.Contains(lastFields, name):
		return 2
	}
	return 1
}

func (c *loggedChange) cells(all bool, now time.Time) []any {
	shown := slices.SortedStableFunc(slices.Values(c.Fields), func(a, b objectdiff.ChangedField) int { return cmp.Compare(rank(a), rank(b)) })
	var left []objectdiff.ChangedField
	if !all && len(shown) > shownFields {
		shown, left = shown[:shownFields], shown[shownFields:]
	}
	texts := make([]string, 0, len(shown)+1)
	for _, p := range shown {
		text := p.String()
		if runes := []rune(text); !all && len(runes) > 100 {
			text = string(runes[:99]) + "…"
		}
		texts = append(texts, text)
	}
	if len(left) > 0 {
		texts = append(texts, fmt.Sprintf("and %d more%s", len(left), within(left)))
	}
	changes := strings.Join(texts, ", ")
	if c.count > 1 {
		changes = strings.TrimSuffix(fmt.Sprintf("%d updates of %s: %s", c.count, c.part, changes), ": ")
	}
	if c.unknown {
		changes = "not known any more"
	}
	name := c.Resource + " " + c.Name
	if c.Namespace != "" {
		name = c.Resource + " " + c.Namespace + "/" + c.Name
	}
	if c.cluster != "" {
		name += " of " + c.cluster
	}
	return []any{c.when(now), c.Change, name, cmp.Or(strings.Join(c.Managers, ","), cmdutil.NoValue), cmp.Or(changes, cmdutil.NoValue)}
}

// within says in which parts of an object fields are, "" if these are many: in
// status.conditions, in spec and status.
func within(fields []objectdiff.ChangedField) string {
	for _, depth := range []int{2, 1} {
		parts := map[string]bool{}
		for _, f := range fields {
			names := strings.SplitN(elements.ReplaceAllString(f.Path, ""), ".", depth+1)
			parts[strings.Join(names[:min(len(names), depth)], ".")] = true
		}
		if len(parts) <= 2 {
			return " in " + strings.Join(slices.Sorted(maps.Keys(parts)), " and ")
		}
	}
	return ""
}

// elements matches elements of lists and keys of maps in a path, and what is below.
var elements = regexp.MustCompile(`\[.*`)

// when returns the time of a change, or of the first and the last of several, in the zone
// of the reader, with the day if it is not today, and with the zone where a clock shows
// it twice.
func (c *loggedChange) when(now time.Time) string {
	text := func(t time.Time) string {
		t = t.Local()
		if cmdutil.IsShownTwice(t) {
			return t.Format(time.RFC3339)
		}
		if now.Local().Format(time.DateOnly) == t.Format(time.DateOnly) {
			return t.Format(time.TimeOnly)
		}
		return t.Format(time.DateTime)
	}
	switch {
	case c.count > 1 && text(c.first) != text(c.Time):
		return text(c.first) + "-" + text(c.Time)
	case c.count == 1 && c.Since != nil:
		return text(*c.Since) + "-" + text(c.Time)
	}
	return text(c.Time)
}

var historyColumns = []string{"Time", "What", "Object", "Who", "Changes"}

func (o *options) print(w io.Writer, found []*loggedChange) error {
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
func (o *options) lines(w io.Writer, found []*loggedChange) error {
	for _, c := range found {
		var err error
		switch o.output {
		case "json", "yaml", "kyaml":
			err = o.printDocument(w, c)
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

func (o *options) printDocument(w io.Writer, c *loggedChange) error {
	d, err := o.document(c)
	if err != nil {
		return source.Item{View: c.scope, Namespace: c.Namespace, Name: c.Name}.Wrap(err)
	}
	switch o.output {
	case "json":
		return json.NewEncoder(w).Encode(d)
	case "kyaml":
		return (&kyaml.Encoder{}).FromObject(d, w)
	}
	b, err := yaml.Marshal(d)
	if err == nil {
		_, err = fmt.Fprintf(w, "---\n%s", b)
	}
	return err
}
