// Package complete completes command lines in a shell, from what a file holds.
package complete

import (
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// A shell asks for completions with a command line of its own: PreRunE and RunE do not
// run, and what is written to standard error is not seen. What went wrong is said as
// active help, which bash and zsh show.

// completion finds the words that a shell may complete a prefix to.
type completion func(o *selection.Options, db *source.Database, args []string, prefix string) ([]cobra.Completion, error)

// Objects makes a shell complete resources, names, namespaces and indexes from the file,
// and formats. It panics if a command has them.
func Objects(o *selection.Options, cmd *cobra.Command, formats ...cobra.Completion) {
	cmd.ValidArgsFunction = fromFile(o, completeWanted)
	flags := map[string]cobra.CompletionFunc{
		"namespace": fromFile(o, completeNamespace),
		"index":     fromFile(o, completeIndex),
		"owned-by":  fromFile(o, completeOwner),
		"output": func(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return Matching(formats, prefix)
		},
	}
	for name, complete := range flags {
		if cmd.Flags().Lookup(name) != nil {
			cmdutil.CompleteFlag(cmd, name, complete)
		}
	}
}

// fromFile calls complete with the file that the command line names, or with the process
// that holds it.
func fromFile(o *selection.Options, complete completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		words, err := completions(o, cmd, complete, args, prefix)
		if err != nil {
			return cobra.AppendActiveHelp(nil, cmdutil.OneLine(err)), cobra.ShellCompDirectiveNoFileComp
		}
		words, directive := Matching(words, prefix)
		return cobra.AppendActiveHelp(words, "from "+o.Database.Path), directive
	}
}

// Matching returns the words with a prefix, and that no space follows one that ends in =.
func Matching(words []cobra.Completion, prefix string) (found []cobra.Completion, directive cobra.ShellCompDirective) {
	directive = cobra.ShellCompDirectiveNoFileComp
	for _, word := range words {
		if strings.HasPrefix(word, prefix) {
			found = append(found, word)
			if strings.HasSuffix(word, "=") {
				directive |= cobra.ShellCompDirectiveNoSpace
			}
		}
	}
	return found, directive
}

func completions(o *selection.Options, cmd *cobra.Command, complete completion, args []string, prefix string) ([]cobra.Completion, error) {
	if err := o.Database.Complete(o.Env); err != nil {
		return nil, err
	}
	db, err := o.Database.Open(cmd.Context(), false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	return complete(o, db, args, prefix)
}

// completeWanted completes RESOURCE[,RESOURCE...] [NAME...] and RESOURCE/NAME...
func completeWanted(o *selection.Options, db *source.Database, args []string, prefix string) ([]cobra.Completion, error) {
	if resource, _, ok := strings.Cut(prefix, "/"); ok {
		names, err := namesOf(o, db, resource)
		return Prefixed(resource+"/", names), err
	}
	if len(args) == 0 || strings.Contains(args[0], "/") {
		return Prefixed(prefix[:strings.LastIndex(prefix, ",")+1], db.Resources()), nil
	}
	found := sets.New[string]()
	for resource := range strings.SplitSeq(args[0], ",") {
		names, err := namesOf(o, db, resource)
		if err != nil {
			return nil, err
		}
		found.Insert(names...)
	}
	return sets.List(found.Delete(args[1:]...)), nil
}

// completeOwner completes RESOURCE/NAME.
func completeOwner(o *selection.Options, db *source.Database, _ []string, prefix string) ([]cobra.Completion, error) {
	return completeWanted(o, db, nil, prefix)
}

// Prefixed puts a text before each word, in place.
func Prefixed(before string, words []string) []cobra.Completion {
	for i := range words {
		words[i] = before + words[i]
	}
	return words
}

// namesOf returns the names of a resource's objects in the namespace of -n, sorted.
func namesOf(o *selection.Options, db *source.Database, resource string) ([]string, error) {
	return ofItems(db, resource, func(i source.Item) (name string, ok bool) {
		return i.Name, selection.Filter{Namespace: o.Namespace}.IsWithin(i.Namespace)
	})
}

// completeNamespace completes a namespace of the resources in args, or of all of them.
func completeNamespace(_ *selection.Options, db *source.Database, args []string, _ string) ([]cobra.Completion, error) {
	resource := ""
	if len(args) > 0 && !strings.Contains(args[0], ",") {
		resource, _, _ = strings.Cut(args[0], "/")
	}
	return ofItems(db, resource, func(i source.Item) (namespace string, ok bool) { return i.Namespace, i.Namespace != "" })
}

// completeIndex completes the NAME= of an index.
func completeIndex(_ *selection.Options, db *source.Database, args []string, _ string) ([]cobra.Completion, error) {
	infos := db.Scopes
	if len(args) > 0 {
		infos = nil
		for resource := range strings.SplitSeq(args[0], ",") {
			resource, _, _ = strings.Cut(resource, "/")
			found, err := db.Find(resource)
			if err != nil {
				return nil, err
			}
			infos = append(infos, found...)
		}
	}
	found := sets.New[string]()
	for _, info := range infos {
		for _, index := range info.Indexes {
			found.Insert(index.Name + "=")
		}
	}
	return sets.List(found), nil
}

// ofItems returns the different texts that of returns for the objects of a resource,
// sorted.
func ofItems(db *source.Database, resource string, of func(source.Item) (string, bool)) ([]string, error) {
	infos, err := db.Find(resource)
	if err != nil {
		return nil, err
	}
	opened, err := db.Open(infos, source.WholeObjects)
	if err != nil {
		return nil, err
	}
	selection.LinkOverlaps(opened.Views)
	found := sets.New[string]()
	for _, v := range opened.Views {
		keys, err := v.Keys(store.Query{})
		if err == nil {
			keys, _, _, err = selection.Latest(v, keys)
		}
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if text, ok := of(source.NewItem(v, key)); ok {
				found.Insert(text)
			}
		}
	}
	return sets.List(found), nil
}
