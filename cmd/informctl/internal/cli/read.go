package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// readOptions are the common options of the commands that print objects.
type readOptions struct {
	env         cmdutil.Env
	database    source.FileFlags
	format      printer.Flags
	showSecrets bool

	namespace     string
	allNamespaces bool
	selector      string
	atText        string
	at            store.Place // zero is now
	notOlderThan  string      // a resource version; "" is any
	indexes       []string
	wanted        []resources.Wanted

	filter filter
	sieve  sieve

	whole      bool            // whole objects are needed, whatever the format
	skipped    map[string]bool // scopes that choose leaves out, by their ID
	hiddenTold bool            // see noteHidden
}

func (o *readOptions) addFlags(cmd *cobra.Command) {
	o.database.Add(o.env, cmd)
	o.format.Add(cmd)
	o.addSelectionFlags(cmd)
}

// addSelectionFlags adds the flags that select objects.
func (o *readOptions) addSelectionFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Only objects of this namespace; those of kinds without namespaces match, too.")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Objects of all namespaces, which is the default.")
	flags.StringVarP(&o.selector, "selector", "l", "", "Only objects whose labels match, as kubectl has it.")
	addSecretsFlag(cmd, &o.showSecrets)
}

func addSecretsFlag(cmd *cobra.Command, show *bool) {
	cmd.Flags().BoolVar(show, "show-secrets", false, "The values of Secrets too; else each is "+secret.Redacted+".")
}

// complete checks the command line before a file is read.
func (o *readOptions) complete(cmd *cobra.Command, args []string) error {
	if err := o.completeSelection(cmd, args); err != nil {
		return err
	}
	return o.format.Complete(cmd)
}

func (o *readOptions) completeSelection(cmd *cobra.Command, args []string) (err error) {
	if o.wanted, err = resources.ParseWanted(cmd, args); err != nil {
		return err
	}
	o.filter.namespace, o.filter.indexes = o.namespace, o.indexes
	if o.allNamespaces {
		o.filter.namespace = ""
	}
	for _, spec := range o.indexes {
		if !strings.Contains(spec, "=") {
			return cmdutil.Usagef(cmd, "--index %q is not NAME=VALUE", spec)
		}
	}
	if o.filter.labels, err = labels.Parse(o.selector); err != nil {
		return cmdutil.Usagef(cmd, "--selector %q: %w", o.selector, err)
	}
	return nil
}

// addAtFlag adds the flags for reading an earlier state, and one that is not.
func (o *readOptions) addAtFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.notOlderThan, "not-older-than", "",
		"A state at least as new as this resource version: waits for it up to 5s, and fails if it is not reached.")
	cmd.Flags().StringVar(&o.atText, "at", "",
		"The state at this moment of the log: 30m, 12h ago, a time as 2026-01-02T15:04:05Z, or a resource version.")
}

func (o *readOptions) completeAt(cmd *cobra.Command, flag string) (err error) {
	if o.at, err = cmdutil.ParsePlace(o.atText, o.env.Now()); err != nil {
		return cmdutil.Usagef(cmd, "--%s: %w", flag, err)
	}
	if err := o.env.IsOver(o.at.Time, o.atText); err != nil {
		return cmdutil.Usagef(cmd, "--%s: %w", flag, err)
	}
	if rv := o.notOlderThan; cmd.Flags().Changed("not-older-than") {
		if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
			return cmdutil.Usagef(cmd, "--not-older-than is %q, want a resource version, which is a number from 1 on", rv)
		}
		if o.atText != "" {
			return cmdutil.Usagef(cmd, "--not-older-than and --%s do not go together", flag)
		}
	}
	return nil
}

// openAt opens the file or, for an earlier state, the file itself or a copy of what the
// process has that keeps it: a copy does not change while it is read.
func (o *readOptions) openAt(ctx context.Context) (*source.Database, error) {
	if o.at.IsZero() {
		db, err := o.database.Open(ctx, o.showSecrets)
		if err == nil && o.notOlderThan != "" {
			if err := db.Await(o.wanted, o.notOlderThan); err != nil {
				_ = db.Close()
				return nil, err
			}
		}
		return db, err
	}
	db, err := o.database.OpenWhole(ctx, o.env, o.showSecrets)
	if err != nil {
		return nil, err
	}
	return db.Then(o.at), nil
}

// runRead prints the objects that the options select.
func runRead(ctx context.Context, o *readOptions) error {
	db, err := o.openAt(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	chosen, err := o.choose(db)
	if err != nil {
		return err
	}
	failures := chosen.unread.Lines()
	if len(failures) > 0 && len(chosen.views) == 0 {
		return o.env.Incomplete(failures)
	}
	chosen.items = withoutNewerEvents(chosen.items)
	m := o.env.NewMeter("searching", "objects", len(chosen.items))
	result, err := o.sieve.sift(chosen.items, o.env.Now(), m.Set)
	m.Stop()
	if err != nil {
		return err
	}
	if err := o.explain(chosen.views); err != nil {
		return err
	}
	for _, name := range chosen.missing {
		failures = append(failures, o.notFound(name, db.Path))
	}
	switch {
	case len(result.items) == 0 && !o.format.Count && len(failures) == 0:
		o.env.Note("nothing found in %s", db.Path)
	case len(result.items) > 0 && result.unsorted:
		o.env.Note("nothing that is printed has the field %q that --sort-by asks for", o.sieve.sortBy.name())
	}
	if n := len(result.items); n > 0 {
		for _, note := range o.sieve.summary.lacking(result.tallies, n) {
			o.env.Note("%s", note)
		}
	}
	err = o.env.Output(func(w io.Writer) error {
		switch {
		case o.format.Count:
			_, err := fmt.Fprintln(w, len(result.items))
			return err
		case o.sieve.summary.asked():
			s := &o.sieve.summary
			return printGroups(&o.format, w, s, s.largest(result.tallies, o.sieve.limit))
		}
		if o.format.IsTable() {
			return printTables(o, w, db, result.items, chosen.ofSeveral())
		}
		return printer.Print(w, result.items, o.format.Printer(o.isOne(result.items)))
	})
	if err == nil {
		o.env.NoteNewer(db.ServerVersion(ctx), source.CountTyped(result.items))
		err = db.NoteAge(ctx, o.env, chosen.shown(), o.at)
	}
	if err != nil {
		return err
	}
	return o.env.Incomplete(failures)
}

// isOne reports whether the items are the object of one NAME. Several namespaces may have
// an object of that name.
func (o *readOptions) isOne(items []source.Item) bool {
	return len(o.wanted) == 1 && len(o.wanted[0].Names) == 1 && len(items) == 1
}

// explain prints how objects were found, if --explain is set or the result may be
// surprising.
func (o *readOptions) explain(views []*source.View) error {
	if o.sieve.explain {
		for _, v := range views {
			o.env.Note("%s", v.Explanation())
		}
	}
	notes, err := o.sieve.verdicts()
	for _, note := range notes {
		o.env.Note("%s", note)
	}
	return err
}

// chosen is the result of selecting objects by keys, labels and indexes.
type chosen struct {
	items   []source.Item // in the order of output
	views   []*source.View
	unread  source.Unread
	missing []string // named objects that do not exist, such as pods "a"

	// States that are not the latest: of objects that a later scope holds, and of others
	// that one covers.
	repeated, gone []source.Item
}

// ofSeveral reports whether objects of several resources were looked for.
func (c chosen) ofSeveral() bool {
	return slices.ContainsFunc(c.views, func(v *source.View) bool {
		return v.Info.Scope.Resource != c.views[0].Info.Scope.Resource
	})
}

func (o *readOptions) choose(db *source.Database) (out chosen, err error) {
	views := map[string]*source.View{}
	for _, want := range o.wanted {
		infos, err := db.Find(want.Resource)
		if err != nil {
			return out, err
		}
		infos = slices.DeleteFunc(slices.Clone(infos), func(info store.Info) bool { return o.skipped[info.ID] })
		opened, err := o.open(db, infos, &out.unread)
		if err != nil {
			return out, err
		}
		o.noteHidden(want.Resource, scopesOf(opened)...)
		for i, v := range opened {
			if known := views[v.Info.ID]; known != nil {
				opened[i] = known
			}
			views[v.Info.ID] = opened[i]
		}
		if err := o.chooseOf(opened, want.Names, &out); err != nil {
			return out, err
		}
	}
	for _, items := range []*[]source.Item{&out.items, &out.repeated, &out.gone} {
		slices.SortFunc(*items, source.CompareItems)
		*items = slices.Compact(*items) // a resource may be named twice
	}
	if n := len(out.repeated); n > 0 {
		o.env.Note("%d objects are held by several scopes; the latest state of each is shown", n)
	}
	if n := len(out.gone); n > 0 {
		o.env.Note("%d objects are left out: a scope that was followed later no longer holds them", n)
	}
	return out, nil
}

// chooseOf adds the selected objects in the scopes of one resource.
func (o *readOptions) chooseOf(views []*source.View, names []string, out *chosen) error {
	f := o.filter
	f.names = names
	found := map[string]bool{} // the names that exist
	for _, v := range views {
		keys, err := f.keys(v)
		var held, gone []string
		if err == nil {
			keys, held, gone, err = latest(v, keys)
		}
		if err == nil {
			err = o.readable(v, keys)
		}
		if err != nil {
			if err := out.unread.Add(v.Info, err); err != nil {
				return err
			}
			continue
		}
		if !slices.Contains(out.views, v) {
			out.views = append(out.views, v)
		}
		out.items = source.AppendItems(out.items, v, keys)
		out.repeated, out.gone = source.AppendItems(out.repeated, v, held), source.AppendItems(out.gone, v, gone)
		for _, key := range keys {
			if len(names) > 0 {
				found[source.NewItem(v, key).Name] = true
			}
		}
	}
	if len(views) == 0 {
		return nil // an error says why
	}
	missing, err := f.missing(views, found)
	for _, name := range missing {
		if !slices.Contains(out.missing, name) { // the resource may be named twice
			out.missing = append(out.missing, name)
		}
	}
	return err
}

// notFound returns the error for a named object that does not exist.
func (o *readOptions) notFound(name, file string) error {
	if o.filter.namespace != "" {
		file = "namespace " + o.filter.namespace + " of " + file
	}
	return fmt.Errorf("%s not found in %s", name, file)
}

// readable decodes the first object, to check that its encryption key is available if it
// needs one.
func (o *readOptions) readable(v *source.View, keys []string) error {
	decodes := o.whole || o.sieve.decodes() || !o.format.Count && o.format.Format != "name"
	if !v.Info.Encrypted || len(keys) == 0 || !decodes {
		return nil
	}
	found, err := v.Fetch(keys[:1], source.Record)
	if err == nil && found[0].Decode != nil {
		_, err = found[0].Decode()
	}
	return err
}

// open opens the scopes that can answer and prints which cannot, or adds to unread why
// not. It returns an error if none can: an empty result would look like an answer.
func (o *readOptions) open(db *source.Database, infos []store.Info, unread *source.Unread) ([]*source.View, error) {
	decoder := o.decoderFor
	if len(infos) > 1 && slices.ContainsFunc(infos, hasFieldSelector) {
		decoder = source.WholeObjects
	}
	opened, err := db.Open(infos, decoder)
	if err != nil {
		return nil, err
	}
	views, left := opened.Views, opened.Left
	unread.Join(opened.Unread)
	linkOverlaps(views)
	if len(left) > 0 && len(views)+len(opened.Unread.Errs) == 0 {
		return nil, fmt.Errorf("%w: %s", store.ErrIncomplete, strings.Join(left, ", "))
	}
	for _, scope := range left {
		o.env.Note("%s: left out, its first list is not complete; %s", scope, cmdutil.Completes)
	}
	for _, v := range views {
		if cp := v.Info.Checkpoint; cp.RV == "" && !source.IsGone(v.Info) {
			o.env.Note("%s: to be listed again, so objects may be missing or old: %s", v.Info.Scope, cp.Reason)
		}
	}
	able := slices.DeleteFunc(slices.Clone(views), func(v *source.View) bool { return !hasIndexes(v, o.indexes) })
	if len(able) == 0 {
		return views, nil // a later step reports the missing index
	}
	for _, v := range views {
		if !slices.Contains(able, v) {
			o.env.Note("%s: left out, its indexes are %s", v.Info.Scope, indexNames(v))
		}
	}
	return able, nil
}

// shown returns the views that objects are printed of, all where nothing is found.
func (c *chosen) shown() []*source.View {
	var shown []*source.View
	for _, i := range c.items {
		if n := len(shown); n > 0 && shown[n-1] == i.View {
			continue
		}
		if !slices.Contains(shown, i.View) {
			shown = append(shown, i.View)
		}
	}
	if len(shown) == 0 {
		return c.views
	}
	return shown
}

// decoderFor returns the codec that decodes the parts of a scope's objects that the
// conditions and, unless it is a table, the format need, nil for whole objects. Metadata
// is the first field in the protobuf of every kind, also of unknown kinds. msgpack has no
// parts, so its objects are decoded whole.
func (o *readOptions) decoderFor(scope store.Scope) (codec.Codec, error) {
	parts, all := o.sieve.parts()
	switch {
	case all || o.whole || o.format.Whole():
		return nil, nil
	case !slices.ContainsFunc(parts, func(name string) bool { return name != metadataField }):
		return codec.For(&metav1.PartialObjectMetadata{})
	case scope.Form != store.Typed:
		return nil, nil
	}
	if !o.format.Count {
		parts = append(parts, metadataField) // for the table
	}
	if c := codec.ForFields(scope.Kind, parts...); c != nil {
		return c, nil
	}
	return nil, nil
}
