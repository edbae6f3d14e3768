package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// historian reads the history of one scope.
type historian struct {
	o     *options
	view  *source.View
	names []string
	log   *store.LogState // nil before it is read
	pairs *codec.Pairs    // nil if each state is decoded alone
}

// read reads what was changed from a moment on. If it follows, it goes on where it has
// ended, or at the moment if there was no log.
func (h *historian) read(ctx context.Context, from time.Time, follow bool, take func([]*loggedChange) error) error {
	var after store.Place
	if follow && h.log != nil {
		after = h.log.Last
	}
	state, err := h.view.History()
	if err != nil {
		return err
	}
	h.log = &state
	// The changes of one part are compared while the next part is read.
	var part []store.Event
	var rows []*loggedChange
	var failed error
	var comparing sync.WaitGroup
	defer comparing.Wait()
	finish := func() error {
		comparing.Wait()
		some := slices.DeleteFunc(rows, func(r *loggedChange) bool { return r == nil })
		if rows = nil; failed != nil || len(some) == 0 {
			return failed
		}
		return take(some)
	}
	begin := func() error {
		if err := finish(); err != nil {
			return err
		}
		of, into := part, make([]*loggedChange, len(part))
		part, rows = make([]store.Event, 0, source.ChunkSize), into
		comparing.Go(func() {
			failed = parallel.Do(len(of), func(i int) (err error) {
				into[i], err = h.row(of[i])
				return err
			})
		})
		return nil
	}
	flush := func() error { return cmp.Or(begin(), finish()) }
	some := store.LogFilter{Namespace: h.o.selection.Filter.Namespace, Names: h.names}
	for e, err := range h.view.Changes(ctx, state, after, from, some, follow) {
		if err != nil {
			return cmp.Or(flush(), err)
		}
		if !h.o.to.IsZero() && e.Time.After(h.o.to) {
			continue // a clock may have been set back
		}
		if follow && after.IsZero() && !e.Time.After(from) && !from.Equal(h.o.from) {
			continue // it was found
		}
		for _, c := range source.ChangesOf(e) {
			if (!h.o.deleted || c.New == nil) && h.o.isOwned(c) {
				part = append(part, c)
			}
		}
		var err error
		switch {
		case follow:
			err = flush()
		case len(part) >= source.ChunkSize:
			err = begin()
		}
		if err != nil {
			return err
		}
	}
	return flush()
}

// row returns the line of a change, or nil if it is not asked for.
func (h *historian) row(c store.Event) (*loggedChange, error) {
	i := source.NewItem(h.view, c.Key)
	states, known, err := h.states(c)
	if err != nil {
		return nil, i.Wrap(err)
	}
	passes, err := h.passes(i, c, states)
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
		count: 1, scope: h.view, kind: strings.ToLower(i.Kind().GroupKind().String()),
	}
	if h.o.wholeObjects() {
		out.before, out.after = h.o.kept(c.Old), h.o.kept(c.New)
	}
	if h.o.clusters {
		out.cluster = source.ClusterOf(h.view.Info)
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
	// A line outlives the headers, whose texts may be part of a chunk of the log.
	for n, v := range []*store.Version{c.Old, c.New} {
		if v == nil || !v.IsKnown() {
			continue
		}
		out.UID = strings.Clone(v.Header.UID)
		if n == 0 {
			out.from = strings.Clone(v.Header.RV)
		}
	}
	out.unknown = !known && out.Change == "updated"
	if c.New != nil && known {
		out.Managers = managers(states[0], states[1])
	}
	if c.Old != nil && c.New != nil && known {
		if asked, err := h.compare(out, states[0], states[1]); !asked || err != nil {
			return nil, err
		}
	}
	return out, nil
}

// states returns the decoded states before and after a change, nil for one that is not
// there, and whether all that are there are known. Unless something else is asked of them
// than what differs, they have nothing else.
func (h *historian) states(c store.Event) (states [2]runtime.Object, known bool, err error) {
	known = true
	for n, v := range []*store.Version{c.Old, c.New} {
		switch {
		case v == nil:
		case !v.IsKnown():
			known = false
		default:
			if states[n], err = h.view.Reader.Decode(v.Entry); err != nil {
				return states, known, err
			}
		}
	}
	if h.pairs != nil {
		if states[0], states[1], err = h.pairs.Decode(states[0], states[1]); err != nil {
			return states, known, err
		}
	}
	for n, obj := range states {
		if obj != nil {
			states[n] = h.view.WithKinds(obj)
		}
	}
	return states, known, nil
}

// needsDifferences reports whether nothing is asked of an updated object but what
// differs.
func (o *options) needsDifferences() bool {
	return !o.asksForLabels() && len(o.selection.Sieve.Fields) == 0 && o.selection.Sieve.Where == nil && !o.wholeObjects()
}

// asksForLabels reports whether changes are chosen by the labels of their objects.
func (o *options) asksForLabels() bool {
	return o.selection.Filter.Labels != nil && !o.selection.Filter.Labels.Empty()
}

// compare sets what an update has changed. It returns false if none of it is asked for.
func (h *historian) compare(out *loggedChange, before, after runtime.Object) (asked bool, err error) {
	if out.Fields, err = h.fieldsOf(before, after); err != nil {
		return false, err
	}
	if len(out.Fields) == 0 && len(h.o.only)+len(h.o.excluded) > 0 {
		return false, nil
	}
	out.part = objectdiff.PartOf(out.Resource, out.Fields)
	out.isNoise = !slices.ContainsFunc(out.Fields, func(f objectdiff.ChangedField) bool { return !objectdiff.IsNoise(out.Resource, f.Path) })
	if out.isNoise && h.o.isBrief() {
		out.Fields = nil // it is only counted
	}
	return true, nil
}

// shown returns an object as it may be shown, which is also what conditions are about.
func (o *options) shown(v *source.View, obj runtime.Object) (runtime.Object, error) {
	if o.selection.ShowSecrets || !secret.Is(v.Info.Scope, obj) {
		return obj, nil
	}
	return secret.Redact(obj)
}

// passes reports whether a change is asked for by what its objects contain.
func (h *historian) passes(i source.Item, c store.Event, states [2]runtime.Object) (_ bool, err error) {
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
	if h.o.asksForLabels() {
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
	for n, obj := range states {
		if obj == nil {
			continue
		}
		if states[n], err = h.o.shown(h.view, obj); err != nil {
			return false, err
		}
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
	state := func(n int, v *store.Version) selection.State {
		return selection.State{Object: states[n], Unknown: v != nil && !v.IsKnown()}
	}
	return h.o.selection.Sieve.Where.MatchesChange(state(0, c.Old), state(1, c.New))
}

// fieldsOf returns the fields that differ and are asked for, without what every change
// changes.
func (h *historian) fieldsOf(a, b runtime.Object) (out []objectdiff.ChangedField, err error) {
	isSecret := secret.Is(h.view.Info.Scope, a) || secret.Is(h.view.Info.Scope, b)
	found, err := objectdiff.Comparison{ShowSecrets: h.o.selection.ShowSecrets}.Fields(isSecret, a, b)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if f.Path != "metadata.resourceVersion" && h.o.asksFor(f.Path) {
			out = append(out, f.Changed())
		}
	}
	return out, nil
}

// asksFor reports whether --only and --exclude ask for a field.
func (o *options) asksFor(field string) bool {
	has := func(p objectdiff.Path) bool { return p.Has(field) }
	meets := func(p objectdiff.Path) bool { return p.Meets(field) }
	return (len(o.only) == 0 || slices.ContainsFunc(o.only, meets)) && !slices.ContainsFunc(o.excluded, has)
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
		if key.manager != "" && (!known || !was.Time.Equal(e.Time) || gainsFields(was, e)) {
			names = append(names, strings.Clone(key.manager))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// gainsFields reports whether a manager has fields that it had not.
func gainsFields(was, is metav1.ManagedFieldsEntry) bool {
	isSame := was.FieldsV1 != nil && is.FieldsV1 != nil && bytes.Equal(was.FieldsV1.GetRawBytes(), is.FieldsV1.GetRawBytes())
	return !isSame && gains(fieldsOf(was), fieldsOf(is))
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
