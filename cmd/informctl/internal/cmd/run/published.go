package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

// published is a database that run follows instead of a server. No server is asked.
type published struct {
	db *postgres.DB

	mu   sync.Mutex        // protects held
	held map[string]string // resource versions that the file had at the start, by scope
}

// connectPublished is connect for a database. It waits until one of the named resources
// is published. With --once all have to be, and it waits for none.
func connectPublished(ctx context.Context, o *options, p *published) (*connection, error) {
	c := &connection{Server: &cluster.Server{Config: &rest.Config{Host: "PostgreSQL"}}, published: p}
	mine, err := cmdutil.Persist(ctx, func() time.Duration { return time.Second }, func() ([]postgres.ScopeStatus, error) {
		all, err := p.db.Scopes(ctx)
		if err != nil {
			return nil, err
		}
		found, err := o.wanted(all)
		var missing *notPublishedError
		if errors.As(err, &missing) && len(found) > 0 && !o.once {
			klog.FromContext(ctx).Info("Waiting for what is published in PostgreSQL", "because", cmdutil.OneLine(err))
			c.missing, err = missing.names, nil
		}
		return found, err
	}, func(err error) bool { return !o.once && !errors.Is(err, errSeveralClusters) }, func(err error) {
		klog.FromContext(ctx).Info("Waiting for what is published in PostgreSQL", "because", cmdutil.OneLine(err))
	})
	if err != nil {
		return nil, err
	}
	for _, s := range mine {
		collection, err := p.collection(s.Scope)
		if err != nil {
			return nil, err
		}
		c.collections, c.identity = append(c.collections, collection), s.Scope.Cluster
	}
	return c, nil
}

var errSeveralClusters = errors.New("several clusters are published in this database; --postgres-cluster chooses one")

// notPublishedError is the error for resources that are named and not published.
type notPublishedError struct {
	names []string
	error
}

// wanted returns the published scopes that the command line means. Beside a
// *notPublishedError they are those that are there.
func (o *options) wanted(all []postgres.ScopeStatus) ([]postgres.ScopeStatus, error) {
	var clusters []string
	var mine []postgres.ScopeStatus
	for _, s := range all {
		if !strings.HasPrefix(s.Scope.Cluster, o.cluster) {
			continue
		}
		if !slices.Contains(clusters, s.Scope.Cluster) {
			clusters = append(clusters, s.Scope.Cluster)
		}
		if !isSuperseded(s, all) {
			mine = append(mine, s)
		}
	}
	switch {
	case len(clusters) > 1:
		return nil, fmt.Errorf("%w: %s", errSeveralClusters, strings.Join(clusters, ", "))
	case len(mine) == 0 && o.cluster != "":
		return nil, fmt.Errorf("nothing is published of a cluster %s", o.cluster)
	case len(mine) == 0:
		return nil, errors.New("nothing is published in this database yet")
	case o.All:
		return mine, nil
	}
	var out []postgres.ScopeStatus
	var missing []string
	var errs []error
	for _, name := range o.Resources {
		scopes := scopesOf(mine, name)
		if len(scopes) == 0 {
			var names []string
			for _, s := range mine {
				names = append(names, s.Scope.Resource)
			}
			text, _ := cmdutil.Listed(name, names)
			missing = append(missing, name)
			errs = append(errs, fmt.Errorf("%s is not published in this database; there are %s", name, text))
		}
		for _, s := range scopes { // two names may mean the same
			if !slices.ContainsFunc(out, func(o postgres.ScopeStatus) bool { return o.Scope == s.Scope }) {
				out = append(out, s)
			}
		}
	}
	if len(missing) > 0 {
		return out, &notPublishedError{missing, errors.Join(errs...)}
	}
	return out, nil
}

// scopesOf returns the scope of the whole resource that a name means, or all that are
// published of it if it is only published in parts.
func scopesOf(all []postgres.ScopeStatus, name string) (parts []postgres.ScopeStatus) {
	infos := make([]store.Info, len(all))
	for i, s := range all {
		infos[i].Scope = s.Scope
	}
	meant := resources.Meant(infos, name)
	for _, s := range all {
		isMeant := slices.ContainsFunc(meant, func(i store.Info) bool { return i.Scope == s.Scope })
		if !isMeant || len(parts) > 0 && s.Scope.Resource != parts[0].Scope.Resource {
			continue
		}
		if s.Scope.Namespace == "" && s.Scope.LabelSelector == "" && s.Scope.FieldSelector == "" {
			return []postgres.ScopeStatus{s}
		}
		parts = append(parts, s)
	}
	return parts
}

// isSuperseded reports whether the same resource is published under another Kind instead,
// as after the preferred version of a custom resource has changed: its scope stays in the
// database, and nobody publishes it any more. If nobody publishes at all, the one that
// was published last counts.
func isSuperseded(s postgres.ScopeStatus, all []postgres.ScopeStatus) bool {
	return slices.ContainsFunc(all, func(other postgres.ScopeStatus) bool {
		same := other.Scope
		same.Kind = s.Scope.Kind
		isOther := same == s.Scope && other.Scope.Kind != s.Scope.Kind
		return isOther && !s.IsHeld && (other.IsHeld || other.MarkTime.After(s.MarkTime))
	})
}

// collection returns what lists and watches a scope in the database.
func (p *published) collection(s store.Scope) (*cluster.Collection, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(s.Kind)
	c := &cluster.Collection{Scope: s, Example: u}
	c.Scope.Form = store.Unstructured
	if scheme.Scheme.Recognizes(s.Kind) {
		var err error
		if c.Example, err = scheme.Scheme.New(s.Kind); err != nil {
			return nil, err
		}
		c.Scope.Form = store.Typed
	}
	lw, err := p.db.ListerWatcher(s, c.Example, postgres.FollowOptions{Held: func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.held[c.Scope.ID()]
	}})
	if err != nil {
		return nil, err
	}
	// The selectors of a request are those of the scope, which is published whole.
	whole := func(opts metav1.ListOptions) metav1.ListOptions {
		opts.LabelSelector, opts.FieldSelector = "", ""
		return opts
	}
	c.List = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return lw.ListWithContext(ctx, whole(opts))
	}
	c.Watch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		return lw.WatchWithContext(ctx, whole(opts))
	}
	return c, nil
}

// hold notes the resource versions of a file, which the database may not lead back.
func (p *published) hold(infos []store.Info) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = map[string]string{}
	for _, info := range infos {
		p.held[info.ID] = info.Checkpoint.RV
	}
}

// followPublished makes the followers those of what is published, until ctx ends.
func (fs *followers) followPublished(ctx context.Context) {
	again := time.NewTicker(RediscoverEvery)
	defer again.Stop()
	var before []store.Scope
	for _, f := range fs.list() {
		before = append(before, f.Scope)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		all, err := fs.cluster.published.db.Scopes(ctx)
		if err != nil {
			continue // the followers say that the database cannot be reached
		}
		var now []store.Scope
		for _, s := range all {
			// Another cluster may have come.
			if s.Scope.Cluster == fs.cluster.identity && !isSuperseded(s, all) {
				now = append(now, s.Scope)
			}
		}
		fs.followOnly(ctx, before, now)
		before = now
		infos, err := fs.stored()
		if err == nil {
			err = fs.dropReplaced(infos)
		}
		if err != nil && ctx.Err() == nil {
			fs.logger.Error(err, "Resources that have come or gone could not be taken up or dropped")
		}
	}
}

// followOnly ends the followers of what was not published at two times in a row, and
// starts those of what is now. What the file has of the others stays: that nobody
// publishes a resource does not mean that its objects are gone.
func (fs *followers) followOnly(ctx context.Context, before, now []store.Scope) {
	for _, f := range fs.list() {
		if !slices.ContainsFunc(now, f.isOf) && !slices.ContainsFunc(before, f.isOf) {
			fs.logger.Info("No longer followed", "resource", f.Scope.String(), "because", "it is no longer published")
			fs.remove(f)
		}
	}
	for _, scope := range now {
		if slices.ContainsFunc(fs.list(), func(f *follower) bool { return f.isOf(scope) }) {
			continue
		}
		fs.addPublished(ctx, scope)
	}
}

// addPublished starts a follower of a scope that was published, and reports whether it
// could.
func (fs *followers) addPublished(ctx context.Context, scope store.Scope) bool {
	collection, err := fs.cluster.published.collection(scope)
	if err == nil {
		err = fs.add(ctx, collection)
	}
	if err != nil {
		cmdutil.Warnings(fs.logger).Info("Not followed", "resource", scope.Resource, "because", cmdutil.OneLine(err))
	}
	return err == nil
}

// followMissing starts followers of the named resources that were not published at the
// start, until all are, or ctx ends.
func (fs *followers) followMissing(ctx context.Context) {
	again := time.NewTicker(RediscoverEvery)
	defer again.Stop()
	for len(fs.notPublished()) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		all, err := fs.cluster.published.db.Scopes(ctx)
		if err != nil {
			continue // the followers say that the database cannot be reached
		}
		found, err := fs.o.wanted(slices.DeleteFunc(all, func(s postgres.ScopeStatus) bool { return s.Scope.Cluster != fs.cluster.identity }))
		var missing *notPublishedError
		if err != nil && !errors.As(err, &missing) {
			continue // nothing is published any more
		}
		followed := fs.list()
		var left []string
		for _, s := range found {
			isFollowed := slices.ContainsFunc(followed, func(f *follower) bool { return f.Scope.Resource == s.Scope.Resource })
			if !isFollowed && !fs.addPublished(ctx, s.Scope) {
				left = append(left, s.Scope.Resource)
			}
		}
		if missing != nil {
			left = append(left, missing.names...)
		}
		fs.mu.Lock()
		fs.missing = left
		fs.mu.Unlock()
	}
}

// notPublished returns a line for each named resource that is not published yet.
func (fs *followers) notPublished() (lines []string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, name := range fs.missing {
		lines = append(lines, name+": not published yet")
	}
	return lines
}

// isOf reports whether a follower follows a scope in any form.
func (f *follower) isOf(s store.Scope) bool {
	s.Form = f.Scope.Form
	return f.Scope == s
}
