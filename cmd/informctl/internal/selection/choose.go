package selection

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// Chosen is the result of selecting objects by keys, labels and indexes.
type Chosen struct {
	Items   []source.Item // in the order of output
	Views   []*source.View
	Unread  source.Unread
	Missing []string // named objects that do not exist, such as pods "a"
	Unknown []error  // of resources that are not there, or not whole

	// States that are not the latest: of objects that a later scope holds, and of others
	// that one covers.
	repeated, gone []source.Item
}

// OfSeveral reports whether objects of several resources were looked for.
func (c Chosen) OfSeveral() bool {
	return slices.ContainsFunc(c.Views, func(v *source.View) bool {
		return v.Info.Scope.Resource != c.Views[0].Info.Scope.Resource
	})
}

// Shown returns the views that objects are printed of, all where nothing is found.
func (c *Chosen) Shown() []*source.View {
	var shown []*source.View
	for _, i := range c.Items {
		if n := len(shown); n > 0 && shown[n-1] == i.View {
			continue
		}
		if !slices.Contains(shown, i.View) {
			shown = append(shown, i.View)
		}
	}
	if len(shown) == 0 {
		return c.Views
	}
	return shown
}

// GoesOn reports whether an error of one of several resources is told beside the others:
// it is not there, or not whole.
func (o *Options) GoesOn(err error) bool {
	return len(o.Wanted) > 1 && (errors.As(err, new(*resources.UnknownError)) || errors.Is(err, store.ErrIncomplete))
}

// Find returns the scopes of a resource. If all are of other namespaces than the selected
// one, it is an error: that nothing is there would read as that nothing is found.
func (o *Options) Find(db *source.Database, resource string) ([]store.Info, error) {
	infos, err := db.Find(resource)
	if err != nil {
		return nil, err
	}
	return infos, resources.OfNamespace(o.Filter.Namespace, db.Path+" holds", infos)
}

// Choose returns the objects of a database that the options select by keys, labels and
// indexes; what needs decoded objects is left to the Sieve. It notes what is left out.
func (o *Options) Choose(db *source.Database) (out Chosen, err error) {
	views := map[string]*source.View{}
	for _, want := range o.Wanted {
		infos, err := o.Find(db, want.Resource)
		if o.GoesOn(err) {
			out.Unknown = append(out.Unknown, err)
			continue
		}
		if err != nil {
			return out, err
		}
		infos = slices.DeleteFunc(slices.Clone(infos), func(info store.Info) bool { return o.Skipped[info.ID] })
		opened, err := o.Open(db, infos, &out.Unread)
		if o.GoesOn(err) {
			out.Unknown = append(out.Unknown, err)
			continue
		}
		if err != nil {
			return out, err
		}
		o.NoteHidden(want.Resource, ScopesOf(opened)...)
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
	for _, items := range []*[]source.Item{&out.Items, &out.repeated, &out.gone} {
		slices.SortFunc(*items, source.CompareItems)
		*items = slices.Compact(*items) // a resource may be named twice
	}
	if n := len(out.repeated); n > 0 {
		o.Env.Note("%d objects are held by several scopes; the latest state of each is shown", n)
	}
	if n := len(out.gone); n > 0 {
		o.Env.Note("%d objects are left out: a scope that was followed later no longer holds them", n)
	}
	return out, nil
}

// chooseOf adds the selected objects in the scopes of one resource.
func (o *Options) chooseOf(views []*source.View, names []string, out *Chosen) error {
	f := o.Filter
	f.names = names
	found := map[string]bool{} // the names that exist
	for _, v := range views {
		keys, err := f.keys(v)
		var held, gone []string
		if err == nil {
			keys, held, gone, err = Latest(v, keys)
		}
		if err == nil {
			err = o.readable(v, keys)
		}
		if err != nil {
			if err := out.Unread.Add(v.Info, err); err != nil {
				return err
			}
			continue
		}
		if !slices.Contains(out.Views, v) {
			out.Views = append(out.Views, v)
		}
		out.Items = source.AppendItems(out.Items, v, keys)
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
		if !slices.Contains(out.Missing, name) { // the resource may be named twice
			out.Missing = append(out.Missing, name)
		}
	}
	return err
}

// NotFound returns the error for a named object that does not exist.
func (o *Options) NotFound(name, file string) error {
	if o.Filter.Namespace != "" {
		file = "namespace " + o.Filter.Namespace + " of " + file
	}
	return fmt.Errorf("%s not found in %s", name, file)
}

// Absent returns the errors for named objects that do not exist, and whether others do.
func (o Options) Absent(db *source.Database) (absent []error, others bool, err error) {
	o.Env.Streams.ErrOut = io.Discard // what comes next says it, too
	o.Filter = Filter{Namespace: o.Filter.Namespace, Labels: labels.Everything()}
	chosen, err := o.Choose(db)
	for _, name := range chosen.Missing {
		absent = append(absent, o.NotFound(name, db.Path))
	}
	return absent, len(chosen.Items) > 0, err
}

// readable decodes the first object of a scope that may need a key or a Go type that is
// not here.
func (o *Options) readable(v *source.View, keys []string) error {
	decodes := o.Whole || o.Sieve.Decodes() || !o.Format.Count && o.Format.Format != "name"
	if !v.Info.Encrypted && !v.LacksType() || len(keys) == 0 || !decodes {
		return nil
	}
	found, err := v.Fetch(keys[:1], source.Record)
	if err == nil && !source.IsDeleted(found[0]) {
		_, err = v.Reader.Decode(found[0])
	}
	return err
}

// Open opens the scopes that can answer and prints which cannot, or adds to unread why
// not. It returns an error if none can: an empty result would look like an answer.
func (o *Options) Open(db *source.Database, infos []store.Info, unread *source.Unread) ([]*source.View, error) {
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
	LinkOverlaps(views)
	if len(left) > 0 && len(views)+len(opened.Unread.Errs) == 0 {
		return nil, fmt.Errorf("%w: %s", store.ErrIncomplete, cmdutil.Some(left))
	}
	o.noteUnready(left, views)
	able := slices.DeleteFunc(slices.Clone(views), func(v *source.View) bool { return !hasIndexes(v, o.Indexes) })
	if len(able) == 0 {
		return views, nil // a later step reports the missing index
	}
	for _, v := range views {
		if !slices.Contains(able, v) {
			o.Env.Note("%s: left out, its indexes are %s", v.Info.Scope, indexNames(v, o.Indexes[0]))
		}
	}
	return able, nil
}

// noteUnready says which scopes are left out since their first list is not complete, and
// which are to be listed again: one line for all of which it is the same.
func (o *Options) noteUnready(left []string, views []*source.View) {
	var said cmdutil.Alike
	for _, scope := range left {
		said.Add("left out, its first list is not complete; "+cmdutil.Completes, scope)
	}
	for _, v := range views {
		if cp := v.Info.Checkpoint; cp.RV == "" && !source.IsGone(v.Info) {
			said.Add("to be listed again, so objects may be missing or old: "+cp.Reason, v.Info.Scope.String())
		}
	}
	said.Note(o.Env)
}
