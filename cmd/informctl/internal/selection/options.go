// Package selection chooses objects of a file: by resource and name, namespace, labels,
// indexes and fields, and by expressions in CEL. It groups and sorts what it has chosen.
package selection

import (
	"context"
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

// Options are the common options of the commands that print objects. The flags are added
// first, then Complete and CompleteAt parse them, before anything is chosen.
type Options struct {
	Env         cmdutil.Env
	Database    source.FileFlags
	Format      printer.Flags
	ShowSecrets bool

	Namespace     string
	allNamespaces bool
	Selector      string
	AtText        string
	At            store.Place // zero is now
	notOlderThan  string      // a resource version; "" is any
	Indexes       []string
	Wanted        []resources.Wanted

	IgnoreNotFound bool // a name that is not there is no error

	Filter Filter
	Sieve  Sieve

	Whole      bool            // whole objects are needed, whatever the format
	Encoded    bool            // objects are left encoded, for codec.Pairs
	Skipped    map[string]bool // scopes that Choose leaves out, by their ID
	hiddenTold bool            // see NoteHidden
}

// AddFlags adds the flags of the file, the format and the selection.
func (o *Options) AddFlags(cmd *cobra.Command) {
	o.Database.Add(o.Env, cmd)
	o.Format.Add(cmd)
	o.AddSelectionFlags(cmd)
}

// AddSelectionFlags adds the flags that select objects.
func (o *Options) AddSelectionFlags(cmd *cobra.Command) {
	o.AddNamespaceFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Objects of all namespaces, which is the default.")
	flags.StringVarP(&o.Selector, "selector", "l", "", "Only objects whose labels match, as kubectl has it.")
	o.Database.AddCluster(cmd)
	AddSecretsFlag(cmd, &o.ShowSecrets)
}

// AddNamespaceFlag adds --namespace.
func (o *Options) AddNamespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "Only objects of this namespace; those of kinds without namespaces match, too.")
}

// AddSecretsFlag adds --show-secrets.
func AddSecretsFlag(cmd *cobra.Command, show *bool) {
	cmd.Flags().BoolVar(show, "show-secrets", false, "The values of Secrets too; else each is "+secret.Redacted+".")
}

// Complete checks the command line before a file is read.
func (o *Options) Complete(cmd *cobra.Command, args []string) error {
	if err := o.CompleteSelection(cmd, args); err != nil {
		return err
	}
	return o.Format.Complete(cmd)
}

// CompleteSelection does what Complete does, without the format.
func (o *Options) CompleteSelection(cmd *cobra.Command, args []string) (err error) {
	if o.Wanted, err = resources.ParseWanted(cmd, args); err != nil {
		return err
	}
	o.Filter.Namespace, o.Filter.indexes = o.Namespace, o.Indexes
	if o.allNamespaces {
		o.Filter.Namespace = ""
	}
	for _, spec := range o.Indexes {
		if !strings.Contains(spec, "=") {
			return cmdutil.Usagef(cmd, "--index %q is not NAME=VALUE", spec)
		}
	}
	if o.Filter.Labels, err = labels.Parse(o.Selector); err != nil {
		return cmdutil.Usagef(cmd, "--selector %q: %w", o.Selector, err)
	}
	return nil
}

// AddAtFlag adds the flags for reading an earlier state, and one that is not.
func (o *Options) AddAtFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.notOlderThan, "not-older-than", "",
		"A state at least as new as this resource version: waits for it up to 5s, and fails if it is not reached.")
	o.AddMomentFlag(cmd)
}

// AddMomentFlag adds --at.
func (o *Options) AddMomentFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.AtText, "at", "",
		"The state at this moment of the log: 30m, 12h ago, a time as 10:02 or 2026-01-02 15:04, or a resource version.")
}

// CompleteAt parses AtText, which is the value of a flag.
func (o *Options) CompleteAt(cmd *cobra.Command, flag string) (err error) {
	if err := cmdutil.CheckMoments(cmd, "at", "since"); err != nil {
		return err
	}
	if o.At, err = cmdutil.ParsePlace(o.AtText, o.Env.Now()); err != nil {
		return cmdutil.Usagef(cmd, "--%s: %w", flag, err)
	}
	if err := o.Env.IsOver(o.At.Time, o.AtText); err != nil {
		return cmdutil.Usagef(cmd, "--%s: %w", flag, err)
	}
	if rv := o.notOlderThan; cmd.Flags().Changed("not-older-than") {
		if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
			return cmdutil.Usagef(cmd, "--not-older-than is %q, want a resource version, which is a number from 1 on", rv)
		}
		if o.AtText != "" {
			return cmdutil.Usagef(cmd, "--not-older-than and --%s do not go together", flag)
		}
	}
	return nil
}

// OpenAt opens the file or, for an earlier state, the file itself or a copy of what the
// process has that keeps it: a copy does not change while it is read. The caller must
// close it.
func (o *Options) OpenAt(ctx context.Context) (*source.Database, error) {
	if o.At.IsZero() {
		db, err := o.Database.Open(ctx, o.ShowSecrets)
		if err == nil && o.notOlderThan != "" {
			if err := db.Await(o.Wanted, o.notOlderThan); err != nil {
				_ = db.Close()
				return nil, err
			}
		}
		return db, err
	}
	db, err := o.Database.OpenWhole(ctx, o.Env, o.ShowSecrets)
	if err != nil {
		return nil, err
	}
	return db.At(o.At), nil
}

// IsNamed reports whether every object that is selected has its name in the options.
func (o *Options) IsNamed() bool {
	return !slices.ContainsFunc(o.Wanted, func(w resources.Wanted) bool { return len(w.Names) == 0 })
}

// NamesOne reports whether one NAME is selected. Several namespaces may have an object of
// that name.
func (o *Options) NamesOne() bool { return len(o.Wanted) == 1 && len(o.Wanted[0].Names) == 1 }

// Explain prints how objects were found, if --explain is set or the result may be
// surprising.
func (o *Options) Explain(views []*source.View) error {
	if o.Sieve.explain {
		for _, v := range views {
			o.Env.Note("%s", v.Explanation())
		}
	}
	notes, err := o.Sieve.verdicts()
	for _, note := range notes {
		o.Env.Note("%s", note)
	}
	return err
}

// decoderFor returns the codec that decodes the parts of a scope's objects that the
// conditions and, unless it is a table, the format need, nil for whole objects. Metadata
// is the first field in the protobuf of every kind, also of unknown kinds. msgpack has no
// parts, so its objects are decoded whole.
func (o *Options) decoderFor(scope store.Scope) (codec.Codec, error) {
	if o.Encoded && scope.Form == store.Typed {
		if pairs := codec.PairsOf(scope.Kind); pairs != nil {
			return pairs.Codec(), nil
		}
	}
	parts, all := o.Sieve.parts()
	switch {
	case all || o.Whole || o.Format.Whole():
		return nil, nil
	case !slices.ContainsFunc(parts, func(name string) bool { return name != metadataField }):
		return codec.For(&metav1.PartialObjectMetadata{})
	case scope.Form != store.Typed:
		return nil, nil
	}
	if !o.Format.Count {
		parts = append(parts, metadataField) // for the table
	}
	if c := codec.ForFields(scope.Kind, parts...); c != nil {
		return c, nil
	}
	return nil, nil
}
