// Package restore is the command that prints an object as it was, to be created again.
package restore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// options are the options of restore.
type options struct {
	selection selection.Options
	status    bool
	output    string
}

var formats = []string{"yaml", "json"}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{selection: selection.Options{Env: e}}
	cmd := &cobra.Command{
		Use:   "restore {RESOURCE NAME | RESOURCE/NAME}",
		Short: "Print a deleted or changed object as it was, to be created again",
		Long: cmdutil.Describe(`Print a deleted or changed object as it was, to be created again.

Without --at it is the last state of an object that was deleted, from the log of the
file; with --at it is the state at that moment, whether the object is there or not.
The log has an hour by default, deletions longer, and informctl run --history keeps
more. No server is asked or changed: pipe what is printed to kubectl apply -f -, or to
kubectl create -f -, which changes nothing that is there.

Fields that the server sets are left out: resourceVersion, uid, creationTimestamp,
generation, managedFields, selfLink, deletionTimestamp, and status without --status.
ownerReferences stay, and name owners by their UIDs. An owner that was created again has
another UID; the server deletes an object whose owners are all gone, so write the new
UID, or remove the reference.

A Secret is printed with --show-secrets only: without its values it is of no use.`),
		Example: `  informctl restore deployments web -n default
  informctl restore deployments/web -n default --at 10:02 > web.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.selection.Database.Add(e, cmd)
	o.selection.AddNamespaceFlag(cmd)
	o.selection.AddMomentFlag(cmd)
	o.selection.Database.AddCluster(cmd)
	selection.AddSecretsFlag(cmd, &o.selection.ShowSecrets)
	cmd.Flags().BoolVar(&o.status, "status", false, "The status, too.")
	cmd.Flags().StringVarP(&o.output, "output", "o", formats[0], "How to print, one of: "+strings.Join(formats, ", ")+".")
	complete.Objects(&o.selection, cmd, formats...)
	return cmd
}

func (o *options) complete(cmd *cobra.Command, args []string) error {
	if !slices.Contains(formats, o.output) {
		return cmdutil.Usagef(cmd, "unknown output format %q; there are %s", o.output, strings.Join(formats, ", "))
	}
	if err := o.selection.CompleteSelection(cmd, args); err != nil {
		return err
	}
	if len(o.selection.Wanted) != 1 || len(o.selection.Wanted[0].Names) != 1 {
		return cmdutil.Usagef(cmd, "restore takes one RESOURCE NAME or RESOURCE/NAME")
	}
	o.selection.Whole = true
	return o.selection.CompleteAt(cmd, "at")
}

func (o *options) run(ctx context.Context) error {
	db, err := o.selection.OpenAt(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.WithGone = true
	chosen, err := o.selection.Choose(db)
	if err != nil {
		return err
	}
	if len(chosen.Items) == 0 && len(chosen.Unread.Errs) > 0 {
		return o.selection.Env.Incomplete(chosen.Unread.Lines())
	}
	if err := source.OneCluster(db.Path, source.InfosOf(chosen.Views)); err != nil {
		return err
	}
	find := o.deleted
	if !o.selection.At.IsZero() {
		find = o.then
	}
	found, err := find(ctx, &chosen)
	if err != nil {
		return err
	}
	obj, err := o.manifest(found)
	if err != nil {
		return err
	}
	p, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.output)
	if err != nil {
		return err
	}
	if err := o.selection.Env.Output(func(w io.Writer) error { return p.PrintObj(obj, w) }); err != nil {
		return err
	}
	o.selection.Env.NoteNewer(db.ServerVersion(ctx), source.CountTyped([]source.Item{found.Item}))
	if o.selection.At.IsZero() {
		return nil
	}
	return db.NoteAge(ctx, o.selection.Env, []*source.View{found.View}, o.selection.At)
}

// state is what an object was.
type state struct {
	source.Item
	entry store.Entry
}

// then returns the object as it was at the moment that is asked for.
func (o *options) then(ctx context.Context, chosen *selection.Chosen) (state, error) {
	items := selection.WithoutNewerEvents(chosen.Items)
	if len(items) == 0 {
		return state{}, o.notThere(ctx, chosen.Views)
	}
	if err := oneObject(items); err != nil {
		return state{}, err
	}
	entries, err := source.Fetch(items[:1], source.Record)
	if err != nil {
		return state{}, err
	}
	return state{items[0], entries[0]}, nil
}

// deleted returns the last state of an object that is no more.
func (o *options) deleted(ctx context.Context, chosen *selection.Chosen) (state, error) {
	var last turn
	var items []source.Item // that were deleted
	for _, v := range chosen.Views {
		log, err := v.History()
		if err != nil {
			return state{}, err
		}
		turns, err := o.turns(v, v.Changes(ctx, log, time.Time{}, false))
		if err != nil {
			return state{}, err
		}
		for _, t := range turns {
			if t.event.New == nil && !slices.ContainsFunc(chosen.Items, t.isSame) {
				items = append(items, t.Item)
				if !t.event.Time.Before(last.event.Time) {
					last = t
				}
			}
		}
	}
	switch {
	case len(items) == 0 && len(chosen.Items) > 0:
		return state{}, fmt.Errorf("%s is there; --at prints it as it was at a moment", title(chosen.Items[0]))
	case len(items) == 0:
		return state{}, fmt.Errorf("no deletion of %s is known: %s", o.name(chosen.Views), logBegins(chosen.Views))
	}
	if err := oneObject(items); err != nil {
		return state{}, err
	}
	if !last.event.Old.IsKnown() {
		return state{}, fmt.Errorf("%s was deleted at %s, and what it was is not known any more", title(last.Item), source.FromThen(last.event.Time))
	}
	return state{last.Item, last.event.Old.Entry}, nil
}

// notThere returns an error that says what is known of an object that was not there.
func (o *options) notThere(ctx context.Context, views []*source.View) error {
	var before, after []turn
	for _, v := range views {
		log, err := v.History()
		if err != nil {
			return err
		}
		all, err := o.turns(v, v.Changes(ctx, log, time.Time{}, false))
		if err != nil {
			return err
		}
		later, err := o.turns(v, v.Follow(ctx, o.selection.At))
		if err != nil {
			return err
		}
		before, after = append(before, all[:len(all)-len(later)]...), append(after, later...)
	}
	var known []string
	byTime := func(a, b turn) int { return a.event.Time.Compare(b.event.Time) }
	if len(before) > 0 {
		known = append(known, "it was deleted at "+source.FromThen(slices.MaxFunc(before, byTime).event.Time))
	}
	if len(after) > 0 {
		known = append(known, "it was created at "+source.FromThen(slices.MinFunc(after, byTime).event.Time))
	}
	known = append(known, logBegins(views))
	return fmt.Errorf("%s was not there at %s: %s", o.name(views), o.selection.AtText, strings.Join(known, ", "))
}

// turn is a creation or a deletion of the object that is asked for.
type turn struct {
	source.Item
	event store.Event
}

func (t turn) isSame(i source.Item) bool { return title(t.Item) == title(i) }

// turns returns the creations and deletions among events of a view.
func (o *options) turns(v *source.View, events iter.Seq2[store.Event, error]) (found []turn, err error) {
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		i := source.NewItem(v, e.Key)
		if e.Mark != nil || i.Name != o.selection.Wanted[0].Names[0] || !o.selection.Filter.IsWithin(i.Namespace) {
			continue
		}
		for _, c := range source.ChangesOf(e) {
			if (c.Old == nil) != (c.New == nil) {
				found = append(found, turn{i, c})
			}
		}
	}
	return found, nil
}

// oneObject returns an error if items are several objects.
func oneObject(items []source.Item) error {
	titles := make([]string, len(items))
	for n, i := range items {
		titles[n] = title(i)
	}
	slices.Sort(titles)
	if titles = slices.Compact(titles); len(titles) > 1 {
		return fmt.Errorf("%d objects have that name, %s; -n names the namespace of one", len(titles), strings.Join(titles, " and "))
	}
	return nil
}

func title(i source.Item) string {
	return fmt.Sprintf("%s %q", i.View.Info.Scope.Resource, i.Key())
}

// name returns the name of the object that is asked for, which may be nowhere.
func (o *options) name(views []*source.View) string {
	want := o.selection.Wanted[0]
	i := source.Item{View: views[0], Namespace: o.selection.Filter.Namespace, Name: want.Names[0]}
	return title(i)
}

// logBegins says when the log begins, the last one of several.
func logBegins(views []*source.View) string {
	var last time.Time
	for _, v := range views {
		if log, err := v.History(); err == nil && log.Oldest.Time.After(last) {
			last = log.Oldest.Time
		}
	}
	if last.IsZero() {
		return "there is no log yet"
	}
	return "the log begins at " + source.FromThen(last)
}

// manifest returns an object without the fields that the server sets.
func (o *options) manifest(s state) (runtime.Object, error) {
	obj, err := s.Load(s.entry)
	switch {
	case err != nil:
		return nil, s.Wrap(err)
	case obj == nil:
		return nil, fmt.Errorf("%s was deleted meanwhile", title(s.Item))
	case s.View.Info.Scope.Form == store.Metadata:
		return nil, fmt.Errorf("%s: only its metadata is stored", title(s.Item))
	case !o.selection.ShowSecrets && secret.Is(s.View.Info.Scope, obj):
		return nil, fmt.Errorf("%s is a Secret, which is printed with --show-secrets", title(s.Item))
	}
	content, err := printer.Content(obj)
	if err != nil {
		return nil, s.Wrap(err)
	}
	for _, field := range []string{
		"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink",
		"deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	if !o.status {
		delete(content, "status")
	}
	return &unstructured.Unstructured{Object: content}, nil
}
