// Package history is the command that prints what was changed, which managers did it, and
// from which value to which.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// options are the options of history.
type options struct {
	env          cmdutil.Env
	selection    selection.Options
	since, until string
	deleted      bool
	ownedBy      string
	follow       bool
	where        string
	fields       string
	output       string
	noHeaders    bool
	clusters     bool // changes are of several

	onlyTexts, excludedTexts []string
	only, excluded           []objectdiff.Path

	owner *owner              // nil means any
	owned sets.Set[types.UID] // what it owns

	from, to time.Time // zero means no bound
	tail     int       // 0 means no bound

	noise int // how many updates were not printed, see withoutNoise

	states codec.Compressor // of the states that are kept until they are printed
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e, selection: selection.Options{Env: e}}
	cmd := &cobra.Command{
		Use:   "history [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Print what was changed, by whom, and from which value to which",
		Long: cmdutil.Describe(`Print what was changed, by whom, and from which value to which, newest last.

The file has a log of its last changes: by default of an hour and 32 MiB for each
resource, deletions longer than the rest, and nothing of leases and events unless run
serves the file or --history names them. It is the same before and after a restart. A
time is that at which the change was written, up to a second after it was made; an
interval means that it was made while nobody looked, and caught up on. Changes of one
object within the same second may be shown as one.

WHO are the managers whose managedFields have a new time or more fields: nobody knows
who deleted an object. CHANGES are two of the fields that differ, images, replicas,
restarts, reasons, phases and conditions first; -o wide has all of them. Elements of
lists are compared by their keys, as in diff. Of Secrets they are paths only, unless
--show-secrets is given.

Adjacent updates of one object that change only its status are one line: the times of
the first and the last, how many they are, and what they have changed together. So are
those that only count an Event. Updates that change only managedFields and heartbeat
times, as of the conditions of a node and of a Lease, are left out and counted. -o wide
and all other formats have each update, and so has a table with --only, --where or
--follow, without heartbeats.

-o json, yaml and kyaml have all fields with their values, and the whole object before
the change and after it, as oldObject and object, without managedFields: one document
for each change.

-l and --field-selector select objects that match before or after the change. --where
is an expression in CEL of object and oldObject, as in admission: oldObject is null
for a creation, object for a deletion; now() is the moment at which the command began.

--only and --exclude take paths: status.conditions, which means all elements and all
that is below, status.conditions[type=Ready].status, or
metadata.annotations["example.com/a"]. Creations and deletions are printed in any case.

--owned-by shows what an object owns: the objects whose chain of ownerReferences leads
to it, as from a Deployment over its ReplicaSets to their Pods. It reads the references
of all objects that are held and of all states in the log, so that with --deleted it
shows what was deleted with an object that is no more. The owner is found by its UID, or
by the kind and the name in references if the file knows nothing of it.

With --follow it goes on with what is changed in all of the resources, as long as the
process that keeps the file is there.`),
		Example: `  informctl history pods --deleted --since 1h
  informctl history --deleted --owned-by deployments/web -n default
  informctl history deployments web -n default -o wide
  informctl history nodes --only status.conditions --tail 20
  informctl history configmaps settings -n default -o yaml
  informctl history pods --where 'object.status.phase != oldObject.status.phase'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.completeHistory(cmd, args); err != nil {
				return err
			}
			if !o.follow {
				return run(cmd.Context(), o) // a signal may end it anywhere
			}
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			err := run(ctx, o)
			if o.follow && ctx.Err() != nil {
				return nil
			}
			return err
		},
	}
	o.selection.Database.Add(o.env, cmd)
	o.selection.AddSelectionFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "", "Only changes from this time on: 30m, 12h, 7d ago, or a time as 10:02, yesterday 10:02 or 2026-01-02 15:04.")
	flags.StringVar(&o.until, "until", "", "Only changes up to this time, as --since has it; after a --since of today, a time of day may be still to come.")
	flags.BoolVar(&o.deleted, "deleted", false, "Only deletions.")
	flags.StringVar(&o.ownedBy, "owned-by", "", "Only what this `RESOURCE/NAME` owns, directly or through what it owns.")
	flags.BoolVarP(&o.follow, "follow", "f", false, "Go on with what is changed from now on.")
	flags.StringVar(&o.where, "where", "", "Only changes for which this `expression` of object and oldObject in CEL is true.")
	cmdutil.RefuseEmpty(flags, "where", "it is no expression")
	flags.StringVar(&o.fields, "field-selector", "", "Only objects whose fields match: PATH=VALUE, PATH!=VALUE, separated by commas; any field.")
	flags.StringArrayVar(&o.onlyTexts, "only", nil, "Only updates of these fields: `PATHS` as CHANGES has them, separated by commas.")
	flags.StringArrayVar(&o.excludedTexts, "exclude", nil, "Without these fields, and updates of nothing else: `PATHS` as CHANGES has them, separated by commas.")
	flags.IntVar(&o.tail, "tail", 0, "Only the newest changes, so many of them. What is before the first one is in no line.")
	flags.StringVarP(&o.output, "output", "o", "table", "How to print, one of: "+strings.Join(printer.PlainFormats, ", ")+".")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "With a table: no line of headers.")
	complete.Objects(&o.selection, cmd, printer.PlainFormats...)
	return cmd
}

func (o *options) completeHistory(cmd *cobra.Command, args []string) (err error) {
	if err := o.selection.CompleteSelection(cmd, args); err != nil {
		return err
	}
	if !slices.Contains(printer.PlainFormats, o.output) {
		return cmdutil.Usagef(cmd, "unknown output format %q; there are %s", o.output, strings.Join(printer.PlainFormats, ", "))
	}
	if err := cmdutil.CheckMoments(cmd, "since", "until"); err != nil {
		return err
	}
	if o.from, err = cmdutil.ParseMoment(o.since, o.env.Now()); err != nil {
		return cmdutil.Usagef(cmd, "--since: %w", err)
	}
	if err := o.env.IsOver(o.from, o.since); err != nil {
		return cmdutil.Usagef(cmd, "--since: %w", err)
	}
	if o.to, err = cmdutil.ParseEnd(o.until, o.from, o.env.Now()); err != nil {
		return cmdutil.Usagef(cmd, "--until: %w", err)
	}
	if !o.from.IsZero() && !o.to.IsZero() && o.to.Before(o.from) {
		return cmdutil.Usagef(cmd, "--until %s is before --since %s", o.until, o.since)
	}
	o.to = cmdutil.LastOf(o.to)
	if o.tail < 1 && cmd.Flags().Changed("tail") {
		return cmdutil.Usagef(cmd, "--tail is %d, want a number of changes from 1 on", o.tail)
	}
	if o.only, err = objectdiff.ParsePaths(o.onlyTexts); err != nil {
		return cmdutil.Usagef(cmd, "--only: %w", err)
	}
	if o.excluded, err = objectdiff.ParsePaths(o.excludedTexts); err != nil {
		return cmdutil.Usagef(cmd, "--exclude: %w", err)
	}
	if o.follow && o.until != "" {
		return cmdutil.Usagef(cmd, "--follow and --until do not go together")
	}
	if cmd.Flags().Changed("owned-by") {
		if o.owner, err = parseOwner(cmd, o.ownedBy); err != nil {
			return err
		}
		if o.follow {
			return cmdutil.Usagef(cmd, "--follow and --owned-by do not go together")
		}
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

func run(ctx context.Context, o *options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.selection.Whole = true
	o.selection.Encoded = o.needsDifferences()
	var err error
	if o.states, err = codec.NewCompressor(nil); err != nil {
		return err
	}
	// The comparison needs the values of Secrets, whether they are shown or not.
	db, err := o.selection.Database.Open(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.WithGone = true
	ends := o.follow && db.IsFile()
	o.follow = o.follow && !ends
	if o.owner != nil {
		if o.owned, err = o.findOwned(ctx, db); err != nil {
			return err
		}
	}
	var unread source.Unread
	historians, failures, err := o.historians(db, &unread)
	if err != nil {
		return err
	}
	views := make([]*source.View, len(historians))
	for i, h := range historians {
		views[i] = h.view
	}
	source.NoteClusters(o.env, db.Path, source.InfosOf(views))
	o.clusters = len(source.Clusters(source.InfosOf(views))) > 1
	begun := time.Now()
	found, err := o.find(ctx, historians, &unread)
	if err != nil {
		return err
	}
	err = o.selection.Explain(nil)
	if o.follow {
		if err != nil {
			o.env.Note("%s", err) // there may be objects that have an answer
		}
		incomplete := o.env.Incomplete(append(failures, unread.Lines()...))
		historians = slices.DeleteFunc(historians, func(h *historian) bool { return unread.Has(h.view.Info.ID) })
		return cmp.Or(o.goOn(ctx, cancel, historians, found, begun), incomplete)
	}
	if err != nil {
		return err
	}
	if len(found)+o.noise == 0 && len(unread.Errs) == 0 {
		o.env.Note("nothing found in %s", db.Path)
	}
	if err := o.env.Output(func(w io.Writer) error { return o.print(w, found) }); err != nil {
		return err
	}
	o.noteSummary(historians)
	failures = append(failures, unread.Lines()...)
	if ends {
		failures = append(failures, fmt.Errorf("no process keeps %s, so nothing follows what is printed", db.Path))
	} else if err := db.NoteAge(ctx, o.env, views, store.Place{Time: o.to}); err != nil {
		return err
	}
	return o.env.Incomplete(failures)
}

// historians returns one historian for each scope that is asked for, and the errors of
// resources that are not there, or not whole, if several are asked for.
func (o *options) historians(db *source.Database, unread *source.Unread) (all []*historian, missing []error, err error) {
	for _, want := range o.selection.Wanted {
		infos, err := o.selection.Find(db, want.Resource)
		if o.selection.GoesOn(err) {
			missing = append(missing, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		opened, err := o.selection.Open(db, infos, unread)
		if o.selection.GoesOn(err) {
			missing = append(missing, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		o.selection.NoteHidden(want.Resource, selection.ScopesOf(opened)...)
		for _, v := range opened {
			i := slices.IndexFunc(all, func(h *historian) bool { return h.view.Info.ID == v.Info.ID })
			switch {
			case i < 0:
				h := &historian{o: o, view: v, names: want.Names}
				if o.selection.Encoded {
					h.pairs = codec.PairsOf(v.Info.Scope.Kind)
				}
				all = append(all, h)
			case len(want.Names) == 0 || len(all[i].names) == 0:
				all[i].names = nil
			default: // the resource is named twice
				all[i].names = slices.Concat(all[i].names, want.Names)
			}
		}
	}
	if len(missing) == len(o.selection.Wanted) {
		return nil, nil, errors.Join(missing...)
	}
	return all, missing, nil
}

// goOn prints what was found, and then what is changed, as it comes, until one of the
// scopes ends. With none it prints what was found. cancel ends the requests of all.
func (o *options) goOn(ctx context.Context, cancel func(), historians []*historian, found []*loggedChange, begun time.Time) error {
	o.noteSummary(historians)
	var mu sync.Mutex // held while something is printed; protects told and o.noise
	var told toldChanges
	take := func(some []*loggedChange) error {
		mu.Lock()
		defer mu.Unlock()
		some = o.withoutNoise(slices.DeleteFunc(some, told.again))
		return o.env.Output(func(w io.Writer) error { return o.lines(w, some) })
	}
	if err := take(found); err != nil {
		return err
	}
	from := begun
	if o.from.After(from) {
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
	o.noteSummary(nil)
	return cmdutil.FirstCause(ended)
}
