// Package show prints what a selection selects: the objects that there are, or their
// changes as the process receives them that keeps the file.
package show

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// Objects prints the objects that the options select.
func Objects(ctx context.Context, o *selection.Options) error {
	db, err := o.OpenAt(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	chosen, err := o.Choose(db)
	if err != nil {
		return err
	}
	source.NoteClusters(o.Env, db.Path, source.InfosOf(chosen.Views))
	failures := slices.Concat(chosen.Unread.Lines(), chosen.Unknown)
	if len(failures) > 0 && len(chosen.Views) == 0 {
		return o.Env.Incomplete(failures)
	}
	chosen.Items = selection.WithoutNewerEvents(chosen.Items)
	now := momentOf(o, chosen.Views)
	m := o.Env.NewMeter("searching", "objects", len(chosen.Items))
	result, err := o.Sieve.Sift(chosen.Items, now, m.Set)
	m.Stop()
	if err != nil {
		return err
	}
	if err := o.Explain(chosen.Views); err != nil {
		return err
	}
	if !o.IgnoreNotFound {
		for _, name := range chosen.Missing {
			failures = append(failures, o.NotFound(name, db.Path))
		}
	}
	switch {
	case len(result.Items) == 0 && !o.Format.Count && o.IgnoreNotFound && o.IsNamed():
		return o.Env.Incomplete(failures)
	case len(result.Items) == 0 && !o.Format.Count && len(failures) == 0:
		o.Env.Note("nothing found in %s", db.Path)
	case len(result.Items) > 0 && result.Unsorted:
		o.Env.Note("nothing that is printed has the field %q that --sort-by asks for", o.Sieve.SortedBy())
	}
	if n := len(result.Items); n > 0 {
		for _, note := range o.Sieve.Summary.Lacking(result.Tallies, n) {
			o.Env.Note("%s", note)
		}
	}
	err = o.Env.Output(func(w io.Writer) error {
		switch {
		case o.Format.Count:
			_, err := fmt.Fprintln(w, len(result.Items))
			return err
		case o.Sieve.Summary.Asked():
			s := &o.Sieve.Summary
			return printGroups(w, &o.Format, s, s.Largest(result.Tallies, o.Sieve.Limit))
		case o.Format.IsTable():
			return printTables(w, o, db, result.Items, chosen.Views, chosen.OfSeveral(), now)
		case len(result.Items) == 0 && o.NamesOne() && o.Format.HasTemplate():
			return nil // the template is for an object and not for a List
		}
		return printer.Print(w, result.Items, o.Format.Printer(o.NamesOne() && len(result.Items) == 1))
	})
	if err == nil {
		o.Env.NoteNewer(db.ServerVersion(ctx), source.CountTyped(result.Items))
		err = db.NoteAge(ctx, o.Env, chosen.Shown(), o.At)
	}
	if err != nil {
		return err
	}
	return o.Env.Incomplete(failures)
}

// momentOf returns the moment of what is printed, from which ages count. A resource
// version is of the time of the last checkpoint up to it.
func momentOf(o *selection.Options, views []*source.View) (last time.Time) {
	if !o.At.Time.IsZero() {
		return o.At.Time
	}
	if !o.At.IsZero() {
		for _, v := range views {
			if set := v.Info.Checkpoint.Time; set.After(last) {
				last = set
			}
		}
	}
	if last.IsZero() {
		return o.Env.Now()
	}
	return last
}
