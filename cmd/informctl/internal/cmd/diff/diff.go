// Package diff is the command that prints what differs between two files, or a file and
// its cluster or its past.
package diff

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// options are the options of diff.
type options struct {
	env       cmdutil.Env
	selection selection.Options
	output    string
	managed   bool
	live      bool
	kube      *genericclioptions.ConfigFlags
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e, selection: selection.Options{Env: e}}
	cmd := &cobra.Command{
		Use:   "diff [A] {B | --live | --since TIME} [RESOURCE[,RESOURCE...]]",
		Short: "Print what differs between two files, or a file and its cluster or its past, field by field",
		Long: `Print what differs between two files, or a file and its cluster or its past, field by
field.

An object is marked with + where only B has it, - where only A has it, and ~ where it
differs; under it are the fields, with their value in A and in B. Which cluster an
object of two files is of does not matter; of a file that holds several, --of-cluster
names one. With -o json each is a line as history has
it: change is created where only B has the object, deleted where only A has it. Values
of Secrets are left out, unless --show-secrets is given.

Text leaves out and counts the objects of which only managedFields, the resource version
and heartbeat times differ, as of the conditions of a node and of a Lease; none of them
counts as a difference. -o json has them.

Elements of a list are compared by the key that server-side apply has for them, as in
containers[name=app], and where they have none by what they are. A new order alone is
one difference, of path[*]. Text has only the key of an element with parts of its own
that A or B lacks, as a container; json has all of it.

With -l an object that is selected on one side only is marked as if the other did not
have it.

With --live B is the API server that the kubeconfig names, which must be the cluster
that A is of. It is asked for what the scopes of A hold, of the namespace of -n only, a
page at a time; what differs is printed in its order, and what it lacks after that. A
file that a live process holds is read while it changes, and so is a server: what
changes meanwhile may differ.

A resource whose first list is not complete, of two files in either, is left out, which is
an error if nothing else differs.

Before a RESOURCE, A may be left out with --live and --since: it is then the file that
the other commands read without --db.

With --since B is what A holds now, and A what it held at that time, as its log says:
what has become of it, and not how, which history prints. Of a file that a live
process holds a copy is read. A resource without a state then is left out, which is an
error when all else has been printed.

Exit codes: 0 nothing differs, 1 something does, 3 a file is damaged, 4 another error,
64 wrong usage.`,
		Example: `  informctl diff informers.db more.db
  informctl diff informers.db more.db pods -n a
  informctl diff informers.db --live pods
  informctl diff --live pods
  informctl diff --live pods/web -n default
  informctl diff informers.db --since 1h pods
  informctl diff informers.db more.db -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("since") && cmd.Flags().Changed("at") {
				return cmdutil.Usagef(cmd, "--since and --at are one moment; give one of them")
			}
			if err := cmdutil.CheckMoments(cmd, "since", "at"); err != nil {
				return err
			}
			switch {
			case slices.Contains(args, ""):
				return cmdutil.Usagef(cmd, `"" is no file and no RESOURCE`)
			case o.live && o.selection.AtText != "":
				return cmdutil.Usagef(cmd, "--live and a time, as of --since or --at, do not go together")
			case (o.live || o.selection.AtText != "") && (len(args) < 1 || len(args) > 2):
				return cmdutil.Usagef(cmd, "diff --live and --since take a file, a RESOURCE[,RESOURCE...] or both")
			case !o.live && o.selection.AtText == "" && (len(args) < 2 || len(args) > 3):
				return cmdutil.Usagef(cmd, "diff takes two files, or one with --live or --since, and at most one RESOURCE[,RESOURCE...]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output != "text" && o.output != "json" {
				return cmdutil.Usagef(cmd, "unknown output format %q; there are text, json", o.output)
			}
			files, given := 2, len(args)
			if o.live || o.selection.AtText != "" {
				files = 1
				var err error
				if args, err = o.withFile(args); err != nil {
					return cmdutil.Trouble(err)
				}
			}
			// -n selects objects, and an alias may have --kubeconfig.
			others := []string{"namespace", "kubeconfig"}
			if len(args) > given {
				others = append(others, "context") // it names the file
			}
			if name := cluster.GivenFlag(cmd, others...); !o.live && name != "" {
				return cmdutil.Usagef(cmd, "--%s goes with --live only", name)
			}
			if err := o.selection.CompleteAt(cmd, "since"); err != nil {
				return err
			}
			if err := o.selection.CompleteSelection(cmd, args[files:]); err != nil {
				return err
			}
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			differs, err := run(ctx, o, args[:files])
			return cmdutil.Compared(differs, err)
		},
	}
	o.selection.AddSelectionFlags(cmd)
	for _, name := range []string{"since", "at"} {
		cmd.Flags().StringVar(&o.selection.AtText, name, "",
			"Compare with this moment of the log: 30m, 12h ago, a time as 10:02 or 2026-01-02 15:04, or a resource version.")
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "How to print, one of: text, json.")
	cmdutil.CompleteWords(cmd, "output", "text", "json")
	cmd.Flags().BoolVar(&o.live, "live", false, "Compare with the API server of the kubeconfig.")
	o.kube = cluster.NewFlags()
	o.kube.Namespace = nil // -n selects objects
	o.kube.AddFlags(cmd.Flags())
	cmdutil.CompleteContext(cmd, o.kube)
	o.selection.Database.KeyFlags.Add(cmd.Flags())
	cmd.Flags().BoolVar(&o.managed, "show-managed-fields", false, "Compare the managedFields, too.")
	return cmd
}

// withFile returns the arguments with the file that other commands read by default in
// front, if there is only one and that is no file.
func (o *options) withFile(args []string) ([]string, error) {
	if len(args) != 1 || filepath.Ext(args[0]) == ".db" {
		return args, nil
	}
	if resource, name, _ := strings.Cut(args[0], "/"); strings.Trim(resource, ".") == "" || strings.Contains(name, "/") {
		return args, nil // a path, and no RESOURCE/NAME
	}
	// A directory may have the name of a resource, and is no file.
	if info, err := os.Lstat(args[0]); err == nil && !info.IsDir() {
		return args, nil
	}
	file := source.FileFlags{Path: os.Getenv("INFORMCTL_DB"), Kube: o.kube}
	err := file.Complete(o.env)
	return []string{file.Path, args[0]}, err
}

// pair is one object in the two files. The view of an item is nil if that file does not
// have it.
type pair [2]source.Item

func run(ctx context.Context, o *options, paths []string) (differs bool, err error) {
	o.selection.Whole = true
	var sides [2]selection.Chosen
	var followed *source.Database // of which side 1 is the state now
	var unread source.Unread
	others := paths
	if !o.selection.At.IsZero() {
		now, err := (&source.FileFlags{Path: paths[0], Cluster: o.selection.Database.Cluster, KeyFlags: o.selection.Database.KeyFlags}).OpenWhole(ctx, o.env, true)
		if err != nil {
			return false, err
		}
		defer func() { _ = now.Close() }()
		now.WithGone = true
		followed = now
		if sides, err = o.chooseBoth(now.At(o.selection.At), now, &unread); err != nil {
			return false, err
		}
		if len(unread.Errs) > 0 && len(sides[0].Views)+len(sides[1].Views) == 0 {
			return false, o.env.Incomplete(unread.Lines())
		}
		others = nil
	}
	dbs := make([]*source.Database, len(others))
	for i, path := range others {
		// The comparison needs the values of Secrets, whether they are shown or not.
		dbs[i], err = (&source.FileFlags{Path: path, KeyFlags: o.selection.Database.KeyFlags}).Open(ctx, true)
		if err != nil {
			return false, err
		}
		defer func() { _ = dbs[i].Close() }()
		// It is for the file that holds several.
		if len(others) == 1 || len(source.Clusters(dbs[i].Scopes)) > 1 {
			if err := dbs[i].OfCluster(o.selection.Database.Cluster); err != nil {
				return false, err
			}
		}
	}
	if err := o.knowsCluster(dbs); err != nil {
		return false, err
	}
	read := dbs
	if followed != nil {
		read = []*source.Database{followed}
	}
	d := &differ{o: o}
	if d.left, err = o.leftOut(read...); err != nil {
		return false, err
	}
	for i, db := range dbs {
		if !o.live {
			o.skip(db, d.left)
		}
		if sides[i], err = o.choose(db); err != nil {
			return false, err
		}
		if errs := sides[i].Unread.Errs; len(errs) > 0 {
			return false, errs[0].Err
		}
		if !o.live {
			o.env.NoteNewer(db.ServerVersion(ctx), source.CountTyped(sides[i].Items))
		}
	}
	for _, name := range sides[0].Missing {
		if slices.Contains(sides[1].Missing, name) {
			return false, o.selection.NotFound(name, strings.Join(paths, " and "))
		}
	}
	for i, side := range sides {
		if err := source.OneCluster(paths[min(i, len(paths)-1)], source.InfosOf(side.Views)); err != nil && !o.live {
			return false, err
		}
	}
	err = o.env.Output(func(w io.Writer) error {
		d.out = w
		if o.live {
			return d.withServer(ctx, paths[0], sides[0])
		}
		return d.pairs(ctx, merge(sides[0].Items, sides[1].Items))
	})
	if err == nil && followed != nil {
		err = followed.NoteAge(ctx, o.env, sides[1].Shown(), store.Place{})
	}
	if err == nil {
		o.env.Note("%s", d.counts())
	}
	if err == nil {
		err = o.env.Incomplete(unread.Lines())
	}
	differs = d.added+d.removed+d.changed > 0
	if n := len(d.left); err == nil && n > 0 && !differs {
		err = fmt.Errorf("%d of %d resources could not be compared", n, n+len(sides[0].Views))
	}
	return differs, err
}

// choose chooses from a file, which has to hold every resource.
func (o *options) choose(db *source.Database) (selection.Chosen, error) {
	chosen, err := o.selection.Choose(db)
	if err == nil && len(chosen.Unknown) > 0 {
		err = chosen.Unknown[0]
	}
	return chosen, err
}

// chooseBoth chooses from two states of one file. A scope that only one of them can be
// read of is left out of both, and added to unread: all of its objects would differ.
func (o *options) chooseBoth(a, b *source.Database, unread *source.Unread) (sides [2]selection.Chosen, err error) {
	before := o.selection.Skipped
	defer func() { o.selection.Skipped = before }()
	for {
		for i, db := range []*source.Database{a, b} {
			if sides[i], err = o.choose(db); err != nil {
				return sides, err
			}
		}
		failed := slices.Concat(sides[0].Unread.Errs, sides[1].Unread.Errs)
		if len(failed) == 0 {
			return sides, nil
		}
		o.selection.Skipped = maps.Clone(o.selection.Skipped)
		if o.selection.Skipped == nil {
			o.selection.Skipped = map[string]bool{}
		}
		for _, e := range failed {
			o.selection.Skipped[e.ID] = true
			unread.Put(e.ID, e.Err)
		}
	}
}

// knowsCluster returns an error if --of-cluster names a cluster of neither file. Of a
// file with one cluster, all objects are compared, whatever the flag says.
func (o *options) knowsCluster(dbs []*source.Database) (err error) {
	named := o.selection.Database.Cluster
	if named == "" || len(dbs) < 2 {
		return nil
	}
	for _, db := range dbs {
		if _, err = source.FindCluster(db.Path, db.Scopes, named); err == nil {
			return nil
		}
	}
	return err
}

// differ prints and counts differences.
type differ struct {
	o                            *options
	out                          io.Writer
	all, added, removed, changed int
	served                       bool         // the server has an object of the name
	noise                        int          // updates that are no changes, see IsNoise
	left                         []store.Info // see leftOut
}

// counts says how many objects differ.
func (d *differ) counts() string {
	text := fmt.Sprintf("%d added, %d removed, %d changed, of %d", d.added, d.removed, d.changed, d.all)
	if d.noise > 0 {
		text += "; " + objectdiff.NoteNoise(d.noise, "-o json")
	}
	return text
}

// isNoise reports whether fields are left out of what a person reads.
func (d *differ) isNoise(resource string, fields []objectdiff.Field) bool {
	return d.o.output == "text" && !d.o.managed &&
		!slices.ContainsFunc(fields, func(f objectdiff.Field) bool { return !objectdiff.IsNoise(resource, f.Path) })
}

func (d *differ) comparison() objectdiff.Comparison {
	return objectdiff.Comparison{Managed: d.o.managed, ShowSecrets: d.o.selection.ShowSecrets}
}

// print prints the objects with one key, one of which may be nil, and the fields that
// differ.
func (d *differ) print(resource, key string, a, b runtime.Object, fields []objectdiff.Field) error {
	mark, change := "~", "updated"
	switch {
	case a == nil && b == nil:
		return nil // deleted from a live process
	case a == nil:
		mark, change = "+", "created"
		d.added++
	case b == nil:
		mark, change = "-", "deleted"
		d.removed++
	case len(fields) > 0 && d.isNoise(resource, fields):
		d.noise++
		fields = nil
	case len(fields) > 0:
		d.changed++
	}
	d.all++
	if mark == "~" && len(fields) == 0 {
		return nil
	}
	if d.o.output == "json" {
		i := source.NewItem(nil, key)
		line := objectdiff.Line{Change: change, Resource: resource, Namespace: i.Namespace, Name: i.Name}
		for _, f := range fields {
			line.Fields = append(line.Fields, f.Changed())
		}
		return json.NewEncoder(d.out).Encode(line)
	}
	if _, err := fmt.Fprintf(d.out, "%s %s %s\n", mark, resource, key); err != nil {
		return err
	}
	for _, f := range fields {
		if _, err := fmt.Fprintf(d.out, "    %s\n", f); err != nil {
			return err
		}
	}
	return nil
}

// pairs compares the objects of two files.
func (d *differ) pairs(ctx context.Context, all []pair) error {
	m := d.o.env.NewMeter("comparing", "objects", len(all))
	defer m.Stop()
	done := 0
	for part := range slices.Chunk(all, source.ChunkSize) {
		if ctx.Err() != nil {
			return cmdutil.ErrInterrupted
		}
		var sides [2][]runtime.Object
		for side := range sides {
			var err error
			if sides[side], err = objectsOf(part, side); err != nil {
				return err
			}
		}
		of := make([]source.Item, len(part))
		for i, p := range part {
			if of[i] = p[0]; p[0].View == nil {
				of[i] = p[1]
			}
		}
		err := d.compare(of, sides[0], sides[1], func(i int) ([]objectdiff.Field, error) {
			a, b := sides[0][i], sides[1][i]
			isSecret := secret.Is(part[i][0].View.Info.Scope, a) || secret.Is(part[i][1].View.Info.Scope, b)
			return d.comparison().Fields(isSecret, a, b)
		})
		if err != nil {
			return err
		}
		done += len(part)
		m.Set(done)
	}
	return nil
}

// compare prints what differs between the objects of items, one of which may be nil.
// fields compares two that are there, and may be called by several goroutines.
func (d *differ) compare(of []source.Item, a, b []runtime.Object, fields func(i int) ([]objectdiff.Field, error)) error {
	found := make([][]objectdiff.Field, len(of))
	err := parallel.Do(len(of), func(i int) (err error) {
		if a[i] == nil || b[i] == nil {
			return nil
		}
		if found[i], err = fields(i); err != nil {
			err = of[i].Wrap(err)
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, item := range of {
		if err := d.print(item.View.Info.Scope.Resource, item.Key(), a[i], b[i], found[i]); err != nil {
			return err
		}
	}
	return nil
}

// objectsOf returns the objects of one file; nil if it does not have them.
func objectsOf(pairs []pair, side int) ([]runtime.Object, error) {
	var items []source.Item
	var at []int
	for i, p := range pairs {
		if p[side].View != nil {
			items, at = append(items, p[side]), append(at, i)
		}
	}
	found, err := source.Fetch(items, source.Record)
	if err != nil {
		return nil, err
	}
	out := make([]runtime.Object, len(pairs))
	return out, parallel.Do(len(items), func(i int) (err error) {
		out[at[i]], err = items[i].Load(found[i])
		return err
	})
}

// merge pairs two sorted lists.
func merge(a, b []source.Item) (out []pair) {
	for len(a) > 0 || len(b) > 0 {
		order := 1
		switch {
		case len(b) == 0:
			order = -1
		case len(a) > 0:
			order = cmp.Or(
				cmp.Compare(a[0].View.Info.Scope.Resource, b[0].View.Info.Scope.Resource),
				cmp.Compare(a[0].Namespace, b[0].Namespace),
				cmp.Compare(a[0].Name, b[0].Name))
		}
		var p pair
		if order <= 0 {
			p[0], a = a[0], a[1:]
		}
		if order >= 0 {
			p[1], b = b[0], b[1:]
		}
		out = append(out, p)
	}
	return out
}
