package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

// owner is the object that --owned-by names.
type owner struct{ resource, name string }

// parseOwner parses the value of --owned-by as the arguments of a command.
func parseOwner(cmd *cobra.Command, text string) (*owner, error) {
	wanted, err := resources.ParseWanted(cmd, strings.Fields(text))
	if err != nil || len(wanted) != 1 || len(wanted[0].Names) != 1 {
		return nil, cmdutil.Usagef(cmd, "--owned-by is %q, want one RESOURCE/NAME, as deployments/web", text)
	}
	return &owner{wanted[0].Resource, wanted[0].Names[0]}, nil
}

// namedBy returns the scope of a reference's kind, and whether the reference names the
// owner by its kind, of any group, and name.
func (o owner) namedBy(ref metav1.OwnerReference) (store.Scope, bool) {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	scope := store.Scope{Resource: plural.GroupResource().String(), Kind: kind}
	return scope, ref.Name == o.name && resources.Is(scope, o.resource)
}

// ownership is which objects name which as their owners. It has their UIDs only, and is
// used by one goroutine, except add.
type ownership struct {
	owner  owner
	within store.LogFilter

	mu sync.Mutex // protects the fields below
	// owners are those that any known state of an object names.
	owners map[types.UID][]types.UID
	// The UIDs of the owner that is asked for: of the objects that are or were it, and
	// those by which references name it, for each scope that namedBy returns.
	held  sets.Set[types.UID]
	named map[store.Scope]sets.Set[types.UID]
}

// findOwned returns the UIDs of the objects whose chain of owners leads to the one that
// is asked for, of all resources of a database. It reads the metadata of what there is
// and of the states in the log. Views of a file that were opened before it have metadata
// only, too.
func (o *options) findOwned(ctx context.Context, db *source.Database) (sets.Set[types.UID], error) {
	found := &ownership{
		owner: *o.owner, within: store.LogFilter{Namespace: o.selection.Filter.Namespace},
		owners: map[types.UID][]types.UID{}, held: sets.New[types.UID](), named: map[store.Scope]sets.Set[types.UID]{},
	}
	ofOwner, err := db.Find(o.owner.resource)
	var unknown *resources.UnknownError
	if err != nil && !errors.As(err, &unknown) {
		return nil, err
	}
	opened, err := db.Open(db.Scopes, metadataOnly)
	if err != nil {
		return nil, err
	}
	m := o.env.NewMeter("looking for owners in", "resources", len(opened.Views))
	defer m.Stop()
	var unread source.Unread // an error says so if it is asked for
	for n, v := range opened.Views {
		m.Set(n)
		isOwner := slices.ContainsFunc(ofOwner, func(info store.Info) bool { return info.ID == v.Info.ID })
		if err := found.readScope(ctx, v, isOwner); err != nil {
			if err := unread.Add(v.Info, err); err != nil {
				return nil, err
			}
		}
	}
	named := found.meant(ofOwner)
	switch {
	case len(found.held) > 0:
		return found.below(found.held), nil
	case len(named) > 0:
		o.env.Note("%s is not known in %s; what names it as its owner is shown", o.ownerTitle(ofOwner), db.Path)
		return found.below(named), nil
	case unknown != nil:
		return nil, fmt.Errorf("--owned-by: %w", unknown)
	}
	return nil, fmt.Errorf("--owned-by: %w", o.selection.NotFound(o.ownerTitle(ofOwner), db.Path))
}

// ownerTitle returns the name of the owner in messages. infos are the scopes of its
// resource.
func (o *options) ownerTitle(infos []store.Info) string {
	resource := o.owner.resource
	if len(infos) > 0 {
		resource = infos[0].Scope.Resource
	}
	return fmt.Sprintf("%s %q", resource, o.owner.name)
}

// metadataOnly is the decoder for Database.Open of what needs the metadata only.
func metadataOnly(store.Scope) (codec.Codec, error) {
	return codec.For(&metav1.PartialObjectMetadata{})
}

// readScope adds the objects of a scope and the states in its log. isOwner says that the
// scope is of the owner's resource.
func (w *ownership) readScope(ctx context.Context, v *source.View, isOwner bool) error {
	keys, err := v.Keys(store.Query{})
	if err != nil {
		return err
	}
	items := slices.DeleteFunc(source.AppendItems(nil, v, keys), func(i source.Item) bool { return !w.within.Matches(i.Key()) })
	for part, err := range source.InParts(items, source.Record) {
		if err != nil {
			return err
		}
		if err := w.addAll(part.Items, part.Objects, isOwner); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return cmdutil.ErrInterrupted
		}
	}
	return w.readLog(ctx, v, isOwner)
}

func (w *ownership) readLog(ctx context.Context, v *source.View, isOwner bool) error {
	log, err := v.History()
	if err != nil {
		return err
	}
	var items []source.Item
	var states []store.Entry
	for e, err := range v.Changes(ctx, log, store.Place{}, time.Time{}, w.within, false) {
		if err != nil {
			return err
		}
		i := source.NewItem(v, e.Key)
		for _, state := range []*store.Version{e.Old, e.New, e.Short} {
			if state == nil {
				continue
			}
			if uid := types.UID(state.Header.UID); isOwner && i.Name == w.owner.name && uid != "" {
				w.held.Insert(uid) // the state itself may not be known
			}
			items, states = append(items, i), append(states, state.Entry)
		}
		if len(items) >= source.ChunkSize {
			if err := w.addAll(items, states, isOwner); err != nil {
				return err
			}
			items, states = items[:0], states[:0]
		}
	}
	return w.addAll(items, states, isOwner)
}

// addAll adds states of objects, those that are there and can be decoded.
func (w *ownership) addAll(items []source.Item, states []store.Entry, isOwner bool) error {
	return parallel.Do(len(items), func(i int) error {
		if source.IsDeleted(states[i]) {
			return nil
		}
		obj, err := items[i].View.Reader.Decode(states[i])
		if err != nil {
			return items[i].Wrap(err)
		}
		m, err := meta.Accessor(obj)
		if err != nil {
			return items[i].Wrap(err)
		}
		w.add(m, isOwner)
		return nil
	})
}

// add adds a state of an object.
func (w *ownership) add(m metav1.Object, isOwner bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid, of := m.GetUID(), w.owners[m.GetUID()]
	if isOwner && m.GetName() == w.owner.name && uid != "" {
		w.held.Insert(uid)
	}
	for _, ref := range m.GetOwnerReferences() {
		if scope, ok := w.owner.namedBy(ref); ok {
			if w.named[scope] == nil {
				w.named[scope] = sets.New[types.UID]()
			}
			w.named[scope].Insert(ref.UID)
		}
		if !slices.Contains(of, ref.UID) {
			of = append(of, ref.UID)
		}
	}
	if uid != "" && len(of) > 0 {
		w.owners[uid] = of
	}
}

// meant returns the UIDs by which references name the owner: those of the groups of its
// scopes or, if there are none, of the resource that its name means among all.
func (w *ownership) meant(ofOwner []store.Info) sets.Set[types.UID] {
	group := func(info store.Info) string { return schema.ParseGroupResource(info.Scope.Resource).Group }
	var named []store.Info
	for scope := range w.named {
		info := store.Info{Scope: scope}
		if len(ofOwner) == 0 || slices.ContainsFunc(ofOwner, func(o store.Info) bool { return group(o) == group(info) }) {
			named = append(named, info)
		}
	}
	uids := sets.New[types.UID]()
	for _, info := range resources.Meant(named, w.owner.resource) {
		uids = uids.Union(w.named[info.Scope])
	}
	return uids
}

// below returns the UIDs of the objects whose chain of owners leads to one of roots.
func (w *ownership) below(roots sets.Set[types.UID]) sets.Set[types.UID] {
	owned := sets.New[types.UID]()
	for size := -1; size < len(owned); {
		size = len(owned)
		for uid, owners := range w.owners {
			if roots.HasAny(owners...) || owned.HasAny(owners...) {
				owned.Insert(uid)
			}
		}
	}
	return owned.Difference(roots)
}

// isOwned reports whether a change is of an object that --owned-by asks for.
func (o *options) isOwned(c store.Event) bool {
	return o.owner == nil || slices.ContainsFunc([]*store.Version{c.Old, c.New}, func(v *store.Version) bool {
		return v != nil && o.owned.Has(types.UID(v.Header.UID))
	})
}
