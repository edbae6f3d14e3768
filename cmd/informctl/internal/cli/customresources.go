package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

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
		if f.scope.Resource == definitionsResource {
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
	if m := customResource(crd); exists && m != nil {
		c.byName[crd.GetName()] = m
	}
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// present returns the custom resources that the server serves, and the names of those
// that are gone.
func (c *customResources) present() (there map[string]*meta.RESTMapping, gone sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there = maps.Clone(c.byName)
	return there, c.ever.Difference(sets.KeySet(there))
}

// rediscoverEvery is how often the server is asked again for resources that it could not
// name: those of an aggregated API whose server does not answer.
const rediscoverEvery = time.Minute

// followDefinitions takes up the custom resources that come and drops those that go,
// until ctx ends. It also takes up what the server could not name at the start.
func (fs *followers) followDefinitions(ctx context.Context, c *customResources) {
	select {
	case <-c.told.Done(): // what is stored may be old
	case <-ctx.Done():
		return
	}
	again := time.NewTicker(rediscoverEvery)
	defer again.Stop()
	for {
		if err := errors.Join(fs.rediscover(ctx), fs.adjust(ctx, c)); err != nil && ctx.Err() == nil {
			fs.logger.Error(err, "Resources that have come or gone could not be taken up or dropped")
		}
		select {
		case <-c.changed:
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// rediscover takes up the resources that the server could not name before.
func (fs *followers) rediscover(ctx context.Context) error {
	before := fs.cluster.everything
	if len(before.unknown) == 0 {
		return nil
	}
	d, err := fs.cluster.discovery()
	if err != nil {
		return err
	}
	now, err := discoverAll(d)
	if err != nil {
		return err
	}
	fs.cluster.everything = now
	followed := sets.New[string]()
	for _, f := range fs.list() {
		followed.Insert(f.scope.Resource)
	}
	for _, m := range now.followed {
		if !before.unknown[m.Resource.GroupVersion()] || followed.Has(nameOf(m)) || fs.o.leavesOut(m, fs.cluster.excluded) {
			continue
		}
		src, err := fs.cluster.source(fs.o, m)
		if err == nil {
			err = fs.add(ctx, src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adjust makes the followers those of the custom resources that there are, and drops what
// the file holds of others.
func (fs *followers) adjust(ctx context.Context, c *customResources) error {
	there, gone := c.present()
	wanted := map[string]*source{}
	for name, m := range there {
		if fs.o.leavesOut(m, fs.cluster.excluded) {
			continue
		}
		src, err := fs.cluster.source(fs.o, m)
		if err != nil {
			return err
		}
		wanted[name] = src
	}
	for _, f := range fs.list() {
		src := wanted[f.scope.Resource]
		switch {
		case gone.Has(f.scope.Resource):
			fs.logger.Info("No longer followed", "resource", f.scope.String(), "because", "its definition is deleted, or not established")
			fs.remove(f)
		case src != nil && src.scope.ID() == f.scope.ID():
			delete(wanted, f.scope.Resource)
		case src != nil:
			fs.logger.Info("Followed in another version", "resource", f.scope.String(), "version", src.scope.Kind.Version)
			fs.remove(f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := fs.add(ctx, wanted[name]); err != nil {
			return err
		}
	}
	return fs.dropGone(there, gone)
}

// dropGone drops what the file holds of resources that the server no longer serves, or
// that are followed in another version.
func (fs *followers) dropGone(there map[string]*meta.RESTMapping, gone sets.Set[string]) error {
	infos, err := fs.stored()
	if err != nil {
		return err
	}
	followers, known := fs.list(), fs.cluster.everything
	infos = slices.DeleteFunc(infos, func(i store.Info) bool {
		s := i.Scope
		return s.Cluster != fs.cluster.identity ||
			!isReplaced(followers, s) && !gone.Has(s.Resource) &&
				(there[s.Resource] != nil || known.served.Has(s.Resource) || known.unknown[s.Kind.GroupVersion()])
	})
	for _, i := range infos {
		fs.logger.Info("Dropped from the file, the server no longer serves it", "resource", i.Scope.String(), "version", i.Scope.Kind.Version, "objects", i.Objects)
	}
	return fs.drop(infos)
}

// isReplaced reports whether a scope is followed in another version only.
func isReplaced(followers []*follower, s store.Scope) bool {
	is := false
	for _, f := range followers {
		other := f.scope
		if other == s {
			return false
		}
		other.Kind = s.Kind
		is = is || other == s
	}
	return is
}
