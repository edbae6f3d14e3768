package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// customResources are the custom resources of a cluster, as the follower of their
// definitions is told.
type customResources struct {
	definitions *follower
	told        cache.DoneChecker // the follower's first definitions were told
	changed     chan struct{}     // capacity 1

	mu     sync.Mutex                   // protects the fields below
	byName map[string]*meta.RESTMapping // the established ones, by the definition's name
	ever   sets.Set[string]             // the names of all definitions that there were
}

// customResources returns the custom resources of the cluster, nil if their definitions
// are not followed. It must be called before the followers run.
func (fs *followers) customResources() (*customResources, error) {
	for _, f := range fs.all {
		if f.Scope.Resource == resources.Definitions {
			c := &customResources{
				definitions: f, changed: make(chan struct{}, 1),
				byName: map[string]*meta.RESTMapping{}, ever: sets.New[string](),
			}
			told, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc:    func(obj any) { c.set(obj, true) },
				UpdateFunc: func(_, obj any) { c.set(obj, true) },
				DeleteFunc: func(obj any) { c.set(obj, false) },
			})
			if err != nil {
				return nil, err
			}
			c.told = told.HasSyncedChecker()
			f.handler = c.told
			return c, nil
		}
	}
	return nil, nil
}

// set notes the present state of a definition.
func (c *customResources) set(obj any, exists bool) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	crd, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	c.mu.Lock()
	c.ever.Insert(crd.GetName())
	delete(c.byName, crd.GetName())
	if m := cluster.CustomResource(crd); exists && m != nil {
		c.byName[crd.GetName()] = m
	}
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// has reports whether a definition of that name was told.
func (c *customResources) has(name string) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ever.Has(name)
}

// present returns the custom resources that the server serves, and the names of those
// that are gone.
func (c *customResources) present() (there map[string]*meta.RESTMapping, gone sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there = maps.Clone(c.byName)
	return there, c.ever.Difference(sets.KeySet(there))
}

// RediscoverEvery is how often the server is asked for its resources: built-in ones come
// and go with its version, others with an aggregated API or its server. Only tests change
// it, before a command runs.
var RediscoverEvery = time.Minute

// followResources takes up the resources that come and drops those that go, until ctx
// ends. c is nil if the definitions of custom resources are not followed.
func (fs *followers) followResources(ctx context.Context, c *customResources) {
	var told <-chan struct{}
	var changed chan struct{}
	if c != nil {
		told, changed = c.told.Done(), c.changed
	}
	again := time.NewTicker(RediscoverEvery)
	defer again.Stop()
	for ask := len(fs.cluster.everything.Unknown) > 0; ; {
		var soon <-chan time.Time
		err := fs.isHome(ctx)
		away := err != nil
		if ask && !away {
			err = fs.rediscover(ctx, c)
		}
		switch {
		case away: // what that server has says nothing of what is kept
		case c == nil || fs.definitions().isDenied():
			err = errors.Join(err, fs.dropGone(ctx, nil, nil))
		case !cache.IsDone(c.told): // what is known of them may be old
		case !fs.definitions().isListed():
			soon = time.After(time.Second)
		default:
			err = errors.Join(err, fs.adjust(ctx, c))
		}
		if err != nil && ctx.Err() == nil && !cluster.Unreachable(err) {
			fs.logger.Error(err, "Resources that have come or gone could not be taken up or dropped")
		}
		select {
		case <-told:
			told, ask = nil, len(fs.cluster.everything.Unknown) > 0
		case <-changed:
			ask = false
		case <-soon:
			ask = false
		case <-again.C:
			ask = true
		case <-ctx.Done():
			return
		}
	}
}

// isHome returns an error if another cluster answers, as where an address leads there for
// a while, or none does.
func (fs *followers) isHome(ctx context.Context) error {
	identity, err := fs.cluster.Identify(ctx)
	if err == nil && identity != fs.cluster.identity {
		err = fmt.Errorf("the server is the cluster %s now, and was %s", identity, fs.cluster.identity)
	}
	return err
}

// rediscover makes the followers those of the resources that the server names now, but
// for custom resources whose definitions are followed. A resource that is gone or has
// another version is believed when two answers in a row say so: servers of two versions
// may answer in turn.
func (fs *followers) rediscover(ctx context.Context, c *customResources) error {
	before := fs.cluster.everything
	if err := fs.askAgain(ctx); err != nil {
		return err
	}
	now := fs.cluster.everything
	said := slices.Clone(before.Left)
	for gv := range now.Unknown { // what is followed of it stays
		said = append(said, cluster.LeftOut{Resource: gv.String()})
	}
	fs.cluster.noteLeftOut(fs.logger, said)
	wanted, agreed := fs.wantedOf(now), fs.wantedOf(before)
	for _, f := range fs.list() {
		name := f.Scope.Resource
		m := wanted[name]
		delete(wanted, name)
		switch is := f.Scope.Kind; {
		case c.has(name), now.IsUnknown(is.Group), before.IsUnknown(is.Group), name == resources.Definitions:
		case m == nil && agreed[name] == nil:
			fs.logger.Info("No longer followed", "resource", f.Scope.String(), "because", "the server no longer serves it")
			fs.remove(f)
		case m != nil && m.GroupVersionKind != is && agreed[name] != nil && agreed[name].GroupVersionKind == m.GroupVersionKind:
			fs.logger.Info("Followed in another version", "resource", f.Scope.String(), "version", m.GroupVersionKind.Version)
			fs.remove(f)
			wanted[name] = m
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		collection, err := fs.cluster.collectionOf(fs.o, wanted[name])
		if err == nil && !c.has(name) && (!collection.Scope.IsSecret() || fs.o.database.Keys != nil) {
			err = fs.add(ctx, collection)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wantedOf returns the resources to follow of those that a server serves, by name.
func (fs *followers) wantedOf(e *cluster.Everything) map[string]*meta.RESTMapping {
	wanted := map[string]*meta.RESTMapping{}
	for _, m := range e.Followed {
		if !fs.o.leavesOut(m, fs.cluster.excluded) {
			wanted[cluster.NameOf(m)] = m
		}
	}
	return wanted
}

// adjust makes the followers those of the custom resources that there are, and drops what
// the file holds of others.
func (fs *followers) adjust(ctx context.Context, c *customResources) error {
	there, gone := c.present()
	wanted := map[string]*cluster.Collection{}
	for name, m := range there {
		if fs.o.leavesOut(m, fs.cluster.excluded) {
			continue
		}
		collection, err := fs.cluster.collectionOf(fs.o, m)
		if err != nil {
			return err
		}
		wanted[name] = collection
	}
	for _, f := range fs.list() {
		collection := wanted[f.Scope.Resource]
		switch {
		case gone.Has(f.Scope.Resource):
			fs.logger.Info("No longer followed", "resource", f.Scope.String(), "because", "its definition is deleted, or not established")
			fs.remove(f)
		case collection != nil && collection.Scope.ID() == f.Scope.ID():
			delete(wanted, f.Scope.Resource)
		case collection != nil:
			fs.logger.Info("Followed in another version", "resource", f.Scope.String(), "version", collection.Scope.Kind.Version)
			fs.remove(f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := fs.add(ctx, wanted[name]); err != nil {
			return err
		}
	}
	return fs.dropGone(ctx, there, gone)
}

// askAgain asks the server for its resources, and keeps what it has said before.
func (fs *followers) askAgain(ctx context.Context) error {
	d, err := fs.cluster.Discovery()
	if err != nil {
		return err
	}
	now, err := cluster.DiscoverAll(ctx, d)
	if err != nil {
		return err
	}
	now.Asked = fs.cluster.everything.Served
	fs.mu.Lock()
	fs.cluster.everything = now
	fs.mu.Unlock()
	return nil
}

// dropReplaced drops of the file's scopes those of resources that are followed in another
// version, when that is listed: until then the file answers with what there was.
func (fs *followers) dropReplaced(infos []store.Info) error {
	followers := fs.list()
	isListed := func(s store.Scope) bool {
		return slices.ContainsFunc(infos, func(i store.Info) bool { return i.Scope == s && i.Complete })
	}
	var drop []store.Info
	for _, i := range infos {
		by := replacing(followers, i.Scope)
		if by == nil || isHeld(followers, i.Scope) || !isListed(by.Scope) {
			continue
		}
		fs.logger.Info("Dropped from the file, it is followed in another version", "resource", i.Scope.String(), "version", i.Scope.Kind.Version, "objects", i.Objects)
		drop = append(drop, i)
	}
	return fs.drop(drop)
}

// dropGone drops what dropReplaced does, and what the file holds of resources that the
// server no longer serves. The objects are deleted first, as they are in the cluster: the
// log, with their last states, stays for its age. One answer of the server is not
// believed, but its definitions are.
func (fs *followers) dropGone(ctx context.Context, there map[string]*meta.RESTMapping, gone sets.Set[string]) error {
	infos, err := fs.stored()
	if err != nil {
		return err
	}
	failed := fs.dropReplaced(infos)
	followers, known := fs.list(), fs.cluster.everything
	infos = slices.DeleteFunc(infos, func(i store.Info) bool {
		s := i.Scope
		return s.Cluster != fs.cluster.identity || isHeld(followers, s) || replacing(followers, s) != nil ||
			!gone.Has(s.Resource) &&
				(known.Asked == nil || there[s.Resource] != nil || known.Served.Has(s.Resource) || known.Asked.Has(s.Resource) || known.IsUnknown(s.Kind.Group))
	})
	infos = slices.DeleteFunc(infos, func(i store.Info) bool {
		kept, err := fs.keepLog(ctx, i)
		failed = errors.Join(failed, err)
		return kept || err != nil
	})
	for _, i := range infos {
		fs.logger.Info("Dropped from the file, the server no longer serves it", "resource", i.Scope.String(), "version", i.Scope.Kind.Version, "objects", i.Objects)
	}
	return errors.Join(failed, fs.drop(infos))
}

// keepLog deletes the objects of a scope that the server no longer serves. It returns
// false if nothing of the scope is to be kept: it was never complete, or its log is empty
// or too old.
func (fs *followers) keepLog(ctx context.Context, i store.Info) (kept bool, err error) {
	history := fs.o.history.ofScope(i.Scope, fs.o.serves)
	_, age := history.Bounds()
	switch {
	case !i.Complete:
		return false, nil
	case source.IsGone(i):
		return i.Log.Entries > 0 && (age == 0 || !fs.isOld(i, age)), nil
	}
	s, err := fs.db.Open(i.Scope, store.Options{TransformVersion: i.TransformVersion, History: history})
	if err != nil {
		return false, fmt.Errorf("%s: %w", i.Scope, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := fs.deleteAll(ctx, s); err != nil {
		return false, fmt.Errorf("%s: delete the objects: %w", i.Scope, err)
	}
	fs.logger.Info("Deleted in the file, the server no longer serves it", "resource", i.Scope.String(),
		"version", i.Scope.Kind.Version, "objects", i.Objects, "logStaysFor", age)
	return true, nil
}

// clockPatience is how long a process waits until it drops a log that its clock calls too
// old: that may be wrong for a moment, or it was when the objects were deleted.
const clockPatience = time.Hour

// isOld reports whether a log that is left is older than age, as the clock has said for
// clockPatience.
func (fs *followers) isOld(i store.Info, age time.Duration) bool {
	ago := fs.o.env.Now().Sub(i.Checkpoint.Time)
	if fs.o.once {
		return ago > age
	}
	if ago.Abs() <= age {
		delete(fs.old, i.ID)
		return false
	}
	since, isKnown := fs.old[i.ID]
	if !isKnown {
		fs.old[i.ID] = time.Now()
	}
	return isKnown && time.Since(since) > min(age, clockPatience)
}

// definitions returns the follower of the definitions of custom resources, nil if there
// is none.
func (fs *followers) definitions() *follower {
	all := fs.list()
	if i := slices.IndexFunc(all, func(f *follower) bool { return f.Scope.Resource == resources.Definitions }); i >= 0 {
		return all[i]
	}
	return nil
}

// isListed reports whether the definitions that are known are those of the cluster: they
// have no resource version while they are listed, and when another cluster has answered
// since. With one that cannot be stored they have none either.
func (f *follower) isListed() bool {
	s := f.informer.Status()
	return s.Checkpoint.RV != "" || s.RejectedFirst != ""
}

// deleteAll applies a list without objects to a scope, at the resource version of the
// definitions, which say that there are none. Where they are not listed, it is the
// highest one of the built-in resources, but for events, which may be in an etcd of their
// own, and else of the others.
func (fs *followers) deleteAll(ctx context.Context, s store.Store) error {
	rvs := map[string]string{} // by kind of follower
	for _, f := range fs.list() {
		of := "others"
		switch {
		case f.Scope.Resource == resources.Definitions && !f.isDenied():
			of = "definitions"
		case f.Scope.Form == store.Typed && !strings.HasPrefix(f.Scope.Resource, "events"):
			of = "built-in"
		}
		rvs[of] = store.Higher(rvs[of], f.informer.LastSyncResourceVersion())
	}
	rv := cmp.Or(rvs["definitions"], rvs["built-in"], rvs["others"])
	if rv == "" {
		return errors.New("nothing is listed yet whose resource version would be that of the deletions")
	}
	rv = store.Higher(rv, s.Checkpoint().RV) // the log does not go back
	list, err := s.Relist()
	if err != nil {
		return err
	}
	for part, err := range list.Parts(rv) {
		if err = errors.Join(err, s.Apply(part)); err != nil {
			return errors.Join(err, list.Close())
		}
	}
	// The resource version is written first, so that the log can be read up to it.
	if err := errors.Join(list.Close(), s.Flush(ctx)); err != nil {
		return err
	}
	return s.Invalidate(ctx, source.ReasonGone)
}

// isHeld reports whether a scope is followed.
func isHeld(followers []*follower, s store.Scope) bool {
	return slices.ContainsFunc(followers, func(f *follower) bool { return f.Scope == s })
}

// replacing returns the follower of a scope, which is not followed, in another version;
// nil if there is none.
func replacing(followers []*follower, s store.Scope) *follower {
	i := slices.IndexFunc(followers, func(f *follower) bool {
		other := f.Scope
		other.Kind = s.Kind
		return other == s
	})
	if i < 0 {
		return nil
	}
	return followers[i]
}
