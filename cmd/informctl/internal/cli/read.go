package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// readOptions are the common options of the commands that print objects.
type readOptions struct {
	env         cmdutil.Env
	database    databaseFlag
	format      outputFlags
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
	o.database.add(o.env, cmd)
	o.format.add(cmd)
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
	return o.format.complete(cmd)
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
func (o *readOptions) openAt(ctx context.Context) (*database, error) {
	if o.at.IsZero() {
		db, err := o.database.open(ctx, o.showSecrets)
		if err == nil && o.notOlderThan != "" {
			if err := db.await(o.wanted, o.notOlderThan); err != nil {
				_ = db.Close()
				return nil, err
			}
		}
		return db, err
	}
	db, err := o.database.openWhole(ctx, o.env, o.showSecrets)
	if err != nil {
		return nil, err
	}
	return db.then(o.at), nil
}

// await waits until the scopes of the wanted resources are not older than a resource
// version.
func (db *database) await(wanted []resources.Wanted, rv string) error {
	l := db.process()
	for _, want := range wanted {
		infos, err := db.find(want.Resource)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if l != nil {
				// No object has this key; the process answers when it is there.
				_, err = (&liveScope{live: l, info: info}).keys(url.Values{"key": {""}, "notOlderThan": {rv}})
			} else if is := info.Checkpoint.RV; is == "" || store.Higher(is, rv) != is {
				err = fmt.Errorf("nothing follows %s in %s, which is at resource version %s and not at %s",
					info.Scope, db.path, cmp.Or(is, "none"), rv)
			}
			if err != nil {
				return err
			}
		}
	}
	if l != nil {
		return db.describe(l) // the scopes as they are now
	}
	return nil
}

// at returns a source of the state at a place.
func at(from origin, place store.Place) origin {
	switch from := from.(type) {
	case fileSource:
		from.at = place
		return from
	case copyOrigin:
		from.origin = at(from.origin, place)
		return from
	}
	return from
}

// isPast reports whether a source is of an earlier state.
func isPast(of origin) bool {
	switch of := of.(type) {
	case fileSource:
		return !of.at.IsZero()
	case copyOrigin:
		return isPast(of.origin)
	}
	return false
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
	failures := chosen.unread.lines()
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
		failures = append(failures, o.notFound(name, db.path))
	}
	switch {
	case len(result.items) == 0 && !o.format.count && len(failures) == 0:
		o.env.Note("nothing found in %s", db.path)
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
		case o.format.count:
			_, err := fmt.Fprintln(w, len(result.items))
			return err
		case o.sieve.summary.asked():
			s := &o.sieve.summary
			return printGroups(&o.format, w, s, s.largest(result.tallies, o.sieve.limit))
		}
		if o.format.isTable() {
			return printTables(o, w, db, result.items, chosen.ofSeveral())
		}
		return print(w, result.items, o.format.printer(o.isOne(result.items)))
	})
	if err == nil {
		o.env.NoteNewer(db.serverVersion(ctx), typed(result.items))
		err = db.noteAge(ctx, o.env, chosen.shown(), o.at)
	}
	if err != nil {
		return err
	}
	return o.env.Incomplete(failures)
}

// isOne reports whether the items are the object of one NAME. Several namespaces may have
// an object of that name.
func (o *readOptions) isOne(items []item) bool {
	return len(o.wanted) == 1 && len(o.wanted[0].Names) == 1 && len(items) == 1
}

// explain prints how objects were found, if --explain is set or the result may be
// surprising.
func (o *readOptions) explain(views []*view) error {
	if o.sieve.explain {
		for _, v := range views {
			o.env.Note("%s", v.explanation())
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
	items   []item // in the order of output
	views   []*view
	unread  unread
	missing []string // named objects that do not exist, such as pods "a"

	// States that are not the latest: of objects that a later scope holds, and of others
	// that one covers.
	repeated, gone []item
}

// ofSeveral reports whether objects of several resources were looked for.
func (c chosen) ofSeveral() bool {
	return slices.ContainsFunc(c.views, func(v *view) bool {
		return v.info.Scope.Resource != c.views[0].info.Scope.Resource
	})
}

func (o *readOptions) choose(db *database) (out chosen, err error) {
	views := map[string]*view{}
	for _, want := range o.wanted {
		infos, err := db.find(want.Resource)
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
			if known := views[v.info.ID]; known != nil {
				opened[i] = known
			}
			views[v.info.ID] = opened[i]
		}
		if err := o.chooseOf(opened, want.Names, &out); err != nil {
			return out, err
		}
	}
	for _, items := range []*[]item{&out.items, &out.repeated, &out.gone} {
		slices.SortFunc(*items, compareItems)
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
func (o *readOptions) chooseOf(views []*view, names []string, out *chosen) error {
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
			if err := out.unread.add(v.info, err); err != nil {
				return err
			}
			continue
		}
		if !slices.Contains(out.views, v) {
			out.views = append(out.views, v)
		}
		out.items = appendItems(out.items, v, keys)
		out.repeated, out.gone = appendItems(out.repeated, v, held), appendItems(out.gone, v, gone)
		for _, key := range keys {
			if len(names) > 0 {
				found[newItem(v, key).name] = true
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
func (o *readOptions) readable(v *view, keys []string) error {
	decodes := o.whole || o.sieve.decodes() || !o.format.count && o.format.format != "name"
	if !v.info.Encrypted || len(keys) == 0 || !decodes {
		return nil
	}
	found, err := v.fetch(keys[:1], record)
	if err == nil && found[0].decode != nil {
		_, err = found[0].decode()
	}
	return err
}

// open opens the scopes that can answer and prints which cannot, or adds to unread why
// not. It returns an error if none can: an empty result would look like an answer.
func (o *readOptions) open(db *database, infos []store.Info, unread *unread) ([]*view, error) {
	decoder := o.decoderFor
	if len(infos) > 1 && slices.ContainsFunc(infos, hasFieldSelector) {
		decoder = whole
	}
	opened, err := db.open(infos, decoder)
	if err != nil {
		return nil, err
	}
	views, left := opened.views, opened.left
	unread.join(opened.unread)
	linkOverlaps(views)
	if len(left) > 0 && len(views)+len(opened.unread.errs) == 0 {
		return nil, fmt.Errorf("%w: %s", store.ErrIncomplete, strings.Join(left, ", "))
	}
	for _, scope := range left {
		o.env.Note("%s: left out, its first list is not complete; %s", scope, cmdutil.Completes)
	}
	for _, v := range views {
		if cp := v.info.Checkpoint; cp.RV == "" && !isGone(v.info) {
			o.env.Note("%s: to be listed again, so objects may be missing or old: %s", v.info.Scope, cp.Reason)
		}
	}
	able := slices.DeleteFunc(slices.Clone(views), func(v *view) bool { return !hasIndexes(v, o.indexes) })
	if len(able) == 0 {
		return views, nil // a later step reports the missing index
	}
	for _, v := range views {
		if !slices.Contains(able, v) {
			o.env.Note("%s: left out, its indexes are %s", v.info.Scope, indexNames(v))
		}
	}
	return able, nil
}
