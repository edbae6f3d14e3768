package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// historyOptions are the options of history.
type historyOptions struct {
	env          cmdutil.Env
	selection    selection.Options
	since, until string
	deleted      bool
	follow       bool
	where        string
	fields       string
	output       string
	noHeaders    bool

	from, to time.Time // zero means no bound
}

func newHistoryCommand(e cmdutil.Env) *cobra.Command {
	o := &historyOptions{env: e, selection: selection.Options{Env: e}}
	cmd := &cobra.Command{
		Use:   "history [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Print what was changed, by whom, and from which value to which",
		Long: cmdutil.Describe(`Print what was changed, by whom, and from which value to which, newest last.

The file has a log of its last changes: by default of an hour and 32 MiB for each
resource, deletions longer than the rest. It is the same before and after a restart. A
time is that at which the change was written, up to a second after it was made; an
interval means that it was made while nobody looked, and caught up on. Changes of one
object within the same second may be shown as one.

WHO are the managers whose managedFields have a new time or more fields: nobody knows
who deleted an object. CHANGES are the first fields that differ; -o wide has all of them, json and
yaml too. Elements of lists are compared by their keys, as in diff. Of Secrets they are paths only, unless --show-secrets is given.

-l and --field-selector select objects that match before or after the change. --where
is an expression in CEL of object and oldObject, as in admission: oldObject is null
for a creation, object for a deletion; now() is the moment at which the command began.

With --follow it goes on with what is changed in all of the resources, as long as the
process that keeps the file is there.`),
		Example: `  informctl history pods --deleted --since 1h
  informctl history deployments web -n default -o wide
  informctl history pods --where 'object.status.phase != oldObject.status.phase'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.completeHistory(cmd, args); err != nil {
				return err
			}
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			err := runHistory(ctx, o)
			if o.follow && ctx.Err() != nil {
				return nil
			}
			return err
		},
	}
	o.selection.Database.Add(o.env, cmd)
	o.selection.AddSelectionFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "", "Only changes from this time on: 30m, 12h, 7d ago, or a time as 2026-01-02T15:04:05Z.")
	flags.StringVar(&o.until, "until", "", "Only changes up to this time, as --since has it.")
	flags.BoolVar(&o.deleted, "deleted", false, "Only deletions.")
	flags.BoolVarP(&o.follow, "follow", "f", false, "Go on with what is changed from now on.")
	flags.StringVar(&o.where, "where", "", "Only changes for which this `expression` of object and oldObject in CEL is true.")
	flags.StringVar(&o.fields, "field-selector", "", "Only objects whose fields match: PATH=VALUE, PATH!=VALUE, separated by commas; any field.")
	flags.StringVarP(&o.output, "output", "o", "table", "How to print, one of: table, wide, json, yaml, name.")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "With a table: no line of headers.")
	complete.Objects(&o.selection, cmd, printer.PlainFormats...)
	return cmd
}

func (o *historyOptions) completeHistory(cmd *cobra.Command, args []string) (err error) {
	if err := o.selection.CompleteSelection(cmd, args); err != nil {
		return err
	}
	if !slices.Contains(printer.PlainFormats, o.output) {
		return cmdutil.Usagef(cmd, "unknown output format %q; there are %s", o.output, strings.Join(printer.PlainFormats, ", "))
	}
	if o.from, err = cmdutil.ParseMoment(o.since, o.env.Now()); err != nil {
		return cmdutil.Usagef(cmd, "--since: %w", err)
	}
	if err := o.env.IsOver(o.from, o.since); err != nil {
		return cmdutil.Usagef(cmd, "--since: %w", err)
	}
	if o.to, err = cmdutil.ParseMoment(o.until, o.env.Now()); err != nil {
		return cmdutil.Usagef(cmd, "--until: %w", err)
	}
	if !o.from.IsZero() && !o.to.IsZero() && o.to.Before(o.from) {
		return cmdutil.Usagef(cmd, "--until %s is before --since %s", o.until, o.since)
	}
	if o.follow && o.until != "" {
		return cmdutil.Usagef(cmd, "--follow and --until do not go together")
	}
	if o.where != "" {
		if o.selection.Sieve.Where, err = selection.ParseCondition(o.where, o.env.Now(), selection.OldVariable); err != nil {
			return cmdutil.Usagef(cmd, "--where: %w", err)
		}
		o.selection.Sieve.Where.GoesOn = o.follow
	}
	if o.selection.Sieve.Fields, err = selection.ParseFieldSelector(o.fields); err != nil {
		return cmdutil.Usagef(cmd, "--field-selector %q: %w", o.fields, err)
	}
	return nil
}

// loggedChange is a line of history.
type loggedChange struct {
	objectdiff.Line
	kind string // as -o name has it: pod, or deployment.apps
	// What tells it from the same change in another scope, see withoutRepeated.
	scope *source.View
	from  string // the resource version of the state before
}

func runHistory(ctx context.Context, o *historyOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.selection.Whole = true
	// The comparison needs the values of Secrets, whether they are shown or not.
	db, err := o.selection.Database.Open(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.WithGone = true
	ends := o.follow && db.IsFile()
	o.follow = o.follow && !ends
	var unread source.Unread
	historians, err := o.historians(db, &unread)
	if err != nil {
		return err
	}
	if o.follow {
		o.to = time.Now() // the rest is followed
	}
	var found []loggedChange
	for _, h := range historians {
		err := h.read(ctx, o.from, false, func(some []loggedChange) error { found = append(found, some...); return nil })
		if err != nil {
			if err := unread.Add(h.view.Info, err); err != nil {
				return err
			}
		}
	}
	o.noteBegins(historians)
	found = withoutRepeated(found)
	slices.SortStableFunc(found, func(a, b loggedChange) int { return a.Time.Compare(b.Time) })
	err = o.selection.Explain(nil)
	if o.follow {
		if err != nil {
			o.env.Note("%s", err) // there may be objects that have an answer
		}
		return o.goOn(ctx, cancel, historians, found)
	}
	if err != nil {
		return err
	}
	if len(found) == 0 && len(unread.Errs) == 0 {
		o.env.Note("nothing found in %s", db.Path)
	}
	if err := o.env.Output(func(w io.Writer) error { return o.print(w, found) }); err != nil {
		return err
	}
	views := make([]*source.View, len(historians))
	for i, h := range historians {
		views[i] = h.view
	}
	failures := unread.Lines()
	if ends {
		failures = append(failures, fmt.Errorf("no process keeps %s, so nothing follows what is printed", db.Path))
	} else if err := db.NoteAge(ctx, o.env, views, store.Place{Time: o.to}); err != nil {
		return err
	}
	return o.env.Incomplete(failures)
}

// historians returns one historian for each scope that is asked for.
func (o *historyOptions) historians(db *source.Database, unread *source.Unread) (all []*historian, err error) {
	for _, want := range o.selection.Wanted {
		infos, err := db.Find(want.Resource)
		if err != nil {
			return nil, err
		}
		opened, err := o.selection.Open(db, infos, unread)
		if err != nil {
			return nil, err
		}
		o.selection.NoteHidden(want.Resource, selection.ScopesOf(opened)...)
		for _, v := range opened {
			i := slices.IndexFunc(all, func(h *historian) bool { return h.view.Info.ID == v.Info.ID })
			switch {
			case i < 0:
				all = append(all, &historian{o: o, view: v, names: want.Names})
			case len(want.Names) == 0 || len(all[i].names) == 0:
				all[i].names = nil
			default: // the resource is named twice
				all[i].names = slices.Concat(all[i].names, want.Names)
			}
		}
	}
	return all, nil
}

// goOn prints what was found up to o.to, and then what is changed, as it comes, until one
// of the scopes ends. cancel ends the requests of all.
func (o *historyOptions) goOn(ctx context.Context, cancel func(), historians []*historian, found []loggedChange) error {
	var mu sync.Mutex // held while something is printed; protects told
	var told toldChanges
	take := func(some []loggedChange) error {
		mu.Lock()
		defer mu.Unlock()
		some = slices.DeleteFunc(some, told.again)
		return o.env.Output(func(w io.Writer) error { return o.lines(w, some) })
	}
	if err := take(found); err != nil {
		return err
	}
	from := o.to
	if o.to = (time.Time{}); o.from.After(from) {
		from = o.from
	}
	ended := make(chan error, len(historians))
	var running sync.WaitGroup
	for _, h := range historians {
		running.Go(func() {
			ended <- h.read(ctx, from, true, take)
			cancel() // the first scope that ends also ends the others
		})
	}
	running.Wait()
	return cmdutil.FirstCause(ended)
}

// historian reads the history of one scope.
type historian struct {
	o     *historyOptions
	view  *source.View
	names []string
	head  *wire.HistoryHead // nil before it is read
}

// read reads what was changed from a moment on, and what is changed, if it follows.
func (h *historian) read(ctx context.Context, from time.Time, follow bool, take func([]loggedChange) error) error {
	var part []source.Change
	flush := func() error {
		rows := make([]*loggedChange, len(part))
		err := parallel.Do(len(part), func(i int) (err error) {
			rows[i], err = h.row(part[i])
			return err
		})
		part = part[:0]
		if err != nil {
			return err
		}
		var some []loggedChange
		for _, r := range rows {
			if r != nil {
				some = append(some, *r)
			}
		}
		if len(some) == 0 {
			return nil
		}
		return take(some)
	}
	for c, err := range h.view.Changes(ctx, from, follow, func(head wire.HistoryHead) { h.head = &head }) {
		if err != nil {
			return err
		}
		if !h.o.to.IsZero() && c.Time.After(h.o.to) {
			break
		}
		i := source.NewItem(h.view, c.Key)
		switch {
		case follow && !c.Time.After(from) && !from.Equal(h.o.from):
			continue // it was found
		case !h.o.selection.Filter.IsWithin(i.Namespace):
			continue
		case len(h.names) > 0 && !slices.Contains(h.names, i.Name):
			continue
		case h.o.deleted && c.New != nil:
			continue
		}
		if part = append(part, c); len(part) == source.ChunkSize || follow {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// noteBegins says where the logs begin that begin later than what was asked for, in one
// line if there are several.
func (o *historyOptions) noteBegins(historians []*historian) {
	var without, late []store.Scope
	var last time.Time
	for _, h := range historians {
		if h.head == nil {
			continue
		}
		begins := h.head.Complete
		if h.o.deleted && !h.head.Begins.IsZero() && h.head.Begins.Before(begins) {
			begins = h.head.Begins
		}
		switch {
		case begins.IsZero():
			without = append(without, h.view.Info.Scope)
		case !h.o.from.IsZero() && h.o.from.Before(begins):
			late = append(late, h.view.Info.Scope)
			if begins.After(last) {
				last = begins
			}
		}
	}
	switch {
	case len(without) == 1:
		o.env.Note("%s: there is no log yet", without[0])
	case len(without) > 1:
		o.env.Note("%d resources have no log yet", len(without))
	}
	switch {
	case len(late) == 1:
		o.env.Note("%s: the log begins at %s", late[0], source.FromThen(last))
	case len(late) > 1:
		o.env.Note("the logs of %d resources begin later, the last at %s", len(late), source.FromThen(last))
	}
}

// row returns the line of a change, or nil if it is not asked for.
func (h *historian) row(c source.Change) (*loggedChange, error) {
	i := source.NewItem(h.view, c.Key)
	var states [2]runtime.Object
	known := true
	for n, e := range []*source.Encoded{c.Old, c.New} {
		if e == nil {
			continue
		}
		if e.Decode == nil {
			known = false
			continue
		}
		obj, err := e.Decode()
		if err != nil {
			return nil, i.Wrap(err)
		}
		states[n] = h.view.WithKinds(obj)
	}
	passes, err := h.passes(i, states)
	if err != nil {
		return nil, i.Wrap(err)
	}
	if !passes {
		return nil, nil
	}
	out := &loggedChange{
		Line: objectdiff.Line{
			Time: c.Time, Resource: h.view.Info.Scope.Resource, Namespace: i.Namespace, Name: i.Name,
			ResourceVersion: c.RV, Change: "updated",
		},
		scope: h.view, kind: strings.ToLower(i.Kind().GroupKind().String()),
	}
	if !c.Since.IsZero() {
		out.Since = &c.Since
	}
	switch {
	case c.New == nil:
		out.Change = "deleted"
	case c.Old == nil:
		out.Change = "created"
	}
	for n, obj := range states {
		if obj == nil {
			continue
		}
		if m, err := meta.Accessor(obj); err == nil {
			out.UID = string(m.GetUID())
			if n == 0 {
				out.from = m.GetResourceVersion()
			}
		}
	}
	if c.New != nil && known {
		out.Managers = managers(states[0], states[1])
	}
	if c.Old != nil && c.New != nil && known {
		out.Fields, err = h.fieldsOf(states[0], states[1])
	}
	return out, err
}

// shown returns the states as they may be shown, which is also what conditions are about.
func (h *historian) shown(states [2]runtime.Object) (out [2]runtime.Object, err error) {
	for n, obj := range states {
		if out[n] = obj; obj != nil && !h.o.selection.ShowSecrets && secret.Is(h.view.Info.Scope, obj) {
			if out[n], err = secret.Redact(obj); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// passes reports whether a change is asked for by what its objects contain.
func (h *historian) passes(i source.Item, states [2]runtime.Object) (_ bool, err error) {
	either := func(test func(runtime.Object) (bool, error)) (bool, error) {
		for _, obj := range states {
			if obj == nil {
				continue
			}
			if ok, err := test(obj); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
	if h.o.selection.Filter.Labels != nil && !h.o.selection.Filter.Labels.Empty() {
		ok, err := either(func(obj runtime.Object) (bool, error) {
			m, err := meta.Accessor(obj)
			return err == nil && h.o.selection.Filter.Labels.Matches(labels.Set(m.GetLabels())), err
		})
		if !ok || err != nil {
			return false, err
		}
	}
	if len(h.o.selection.Sieve.Fields) == 0 && h.o.selection.Sieve.Where == nil {
		return true, nil
	}
	if states, err = h.shown(states); err != nil {
		return false, err
	}
	if len(h.o.selection.Sieve.Fields) > 0 {
		ok, err := either(func(obj runtime.Object) (bool, error) {
			return !slices.ContainsFunc(h.o.selection.Sieve.Fields, func(r selection.Requirement) bool { return !r.Matches(i, obj) }), nil
		})
		if !ok || err != nil {
			return false, err
		}
	}
	if h.o.selection.Sieve.Where == nil {
		return true, nil
	}
	return h.o.selection.Sieve.Where.MatchesChange(states[0], states[1])
}

// fieldsOf returns the fields that differ, without what every change changes.
func (h *historian) fieldsOf(a, b runtime.Object) (out []objectdiff.ChangedField, err error) {
	isSecret := secret.Is(h.view.Info.Scope, a) || secret.Is(h.view.Info.Scope, b)
	found, err := objectdiff.Comparison{ShowSecrets: h.o.selection.ShowSecrets}.Fields(isSecret, a.DeepCopyObject(), b.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if f.Path == "metadata.resourceVersion" {
			continue
		}
		out = append(out, f.Changed())
	}
	return out, nil
}

// managers returns the managers that have made a change: those with a new entry, a new
// time or more fields. An entry that only loses fields does so by another manager, who
// takes or removes them. before is nil for a creation.
func managers(before, after runtime.Object) (names []string) {
	type key struct{ manager, operation, subresource, apiVersion string }
	entries := func(obj runtime.Object) map[key]metav1.ManagedFieldsEntry {
		found := map[key]metav1.ManagedFieldsEntry{}
		if obj == nil {
			return found
		}
		m, err := meta.Accessor(obj)
		if err != nil {
			return found
		}
		for _, e := range m.GetManagedFields() {
			found[key{e.Manager, string(e.Operation), e.Subresource, e.APIVersion}] = e
		}
		return found
	}
	old := entries(before)
	for key, e := range entries(after) {
		was, known := old[key]
		if key.manager != "" && (!known || !was.Time.Equal(e.Time) || gains(fieldsOf(was), fieldsOf(e))) {
			names = append(names, key.manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fieldsOf returns the fields of a manager, none if they cannot be read.
func fieldsOf(e metav1.ManagedFieldsEntry) (fields map[string]any) {
	if e.FieldsV1 != nil && json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	return fields
}

// gains reports whether fields are there that were not.
func gains(was, is map[string]any) bool {
	for name, v := range is {
		old, ok := was[name]
		below, _ := v.(map[string]any)
		oldBelow, _ := old.(map[string]any)
		if !ok || gains(oldBelow, below) {
			return true
		}
	}
	return false
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

func (o *historyOptions) print(w io.Writer, found []loggedChange) error {
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
func (o *historyOptions) lines(w io.Writer, found []loggedChange) error {
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
