package restore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

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
	var gone []turn
	var items []source.Item // of gone
	for _, v := range chosen.Views {
		log, err := v.History()
		if err != nil {
			return state{}, err
		}
		turns, err := o.turns(v, v.Changes(ctx, log, store.Place{}, time.Time{}, o.logged(), false))
		if err != nil {
			return state{}, err
		}
		// The order of a log counts, and not its times: a clock may have been set back.
		latest := map[string]turn{}
		for _, t := range turns {
			if t.event.New == nil && !slices.ContainsFunc(chosen.Items, t.isSame) {
				latest[t.event.Key] = t
			}
		}
		for _, t := range latest {
			gone, items = append(gone, t), append(items, t.Item)
		}
	}
	items = selection.WithoutNewerEvents(items)
	switch {
	case len(items) == 0 && len(chosen.Items) > 0:
		return state{}, fmt.Errorf("%s is there; --at prints it as it was at a moment", title(chosen.Items[0]))
	case len(items) == 0:
		return state{}, fmt.Errorf("no deletion of %s is known: %s", o.name(chosen.Views), logBegins(chosen.Views, true))
	}
	if err := oneObject(items); err != nil {
		return state{}, err
	}
	var last turn
	for _, t := range gone {
		if slices.ContainsFunc(items, t.isSame) && (last.event.Old == nil || t.isBetter(last)) {
			last = t
		}
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
		all, err := o.turns(v, v.Changes(ctx, log, store.Place{}, time.Time{}, o.logged(), false))
		if err != nil {
			return err
		}
		later, err := o.turns(v, store.FollowSome(ctx, v.Reader, o.selection.At, o.logged()))
		if err != nil {
			return err
		}
		before, after = append(before, all[:max(0, len(all)-len(later))]...), append(after, later...)
	}
	var known []string
	byTime := func(a, b turn) int { return a.event.Time.Compare(b.event.Time) }
	if len(before) > 0 {
		known = append(known, "it was deleted at "+source.FromThen(slices.MaxFunc(before, byTime).event.Time))
	}
	if len(after) > 0 {
		known = append(known, "it was created at "+source.FromThen(slices.MinFunc(after, byTime).event.Time))
	}
	known = append(known, logBegins(views, false))
	return fmt.Errorf("%s was not there at %s: %s", o.name(views), o.selection.AtText, strings.Join(known, ", "))
}

// turn is a creation or a deletion of the object that is asked for.
type turn struct {
	source.Item
	event store.Event
}

// isBetter reports whether a deletion is the last one of two. Of one object it is that of
// a scope which has more than its metadata.
func (t turn) isBetter(than turn) bool {
	isWhole := func(t turn) bool { return t.View.IsWhole() && t.event.Old.IsKnown() }
	if uid := t.event.Old.Header.UID; uid == than.event.Old.Header.UID && uid != "" && isWhole(t) != isWhole(than) {
		return isWhole(t)
	}
	return !t.event.Time.Before(than.event.Time)
}

func (t turn) isSame(i source.Item) bool { return title(t.Item) == title(i) }

// logged selects the changes of the object that is asked for.
func (o *options) logged() store.LogFilter {
	return store.LogFilter{Namespace: o.selection.Filter.Namespace, Names: o.selection.Wanted[0].Names[:1]}
}

// turns returns the creations and deletions among events of a view.
func (o *options) turns(v *source.View, events iter.Seq2[store.Event, error]) (found []turn, err error) {
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if e.Mark != nil {
			continue
		}
		for _, c := range source.ChangesOf(e) {
			if (c.Old == nil) != (c.New == nil) {
				found = append(found, turn{source.NewItem(v, e.Key), c})
			}
		}
	}
	return found, nil
}

// oneObject returns an error if items are several objects.
func oneObject(items []source.Item) error {
	var titles, resources []string
	for _, i := range items {
		titles, resources = append(titles, title(i)), append(resources, i.View.Info.Scope.Resource)
	}
	slices.Sort(titles)
	slices.Sort(resources)
	titles, resources = slices.Compact(titles), slices.Compact(resources)
	if len(titles) < 2 {
		return nil
	}
	which := "-n names the namespace of one"
	if len(resources) > 1 {
		which = "name the resource of one, as " + resources[0]
	}
	return fmt.Errorf("%d objects have that name, %s; %s", len(titles), strings.Join(titles, " and "), which)
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

// logBegins says when the log begins, the last one of several. Deletions are kept longer
// than the rest.
func logBegins(views []*source.View, deletions bool) string {
	var last time.Time
	for _, v := range views {
		log, err := v.History()
		if err != nil || source.HasNoHistory(log) {
			continue
		}
		begins := log.Oldest.Time
		if deletions && !log.Begins.IsZero() && (begins.IsZero() || log.Begins.Before(begins)) {
			begins = log.Begins
		}
		if begins.After(last) {
			last = begins
		}
	}
	if last.IsZero() {
		return source.NoHistory(views[0].Info.Scope)
	}
	return "the log begins at " + source.FromThen(last)
}
