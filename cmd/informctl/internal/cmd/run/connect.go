package run

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/relay"
	"github.com/informctl/informctl/store"
)

// connection is the server and its collections that run follows.
type connection struct {
	*cluster.Server
	identity    string
	version     string // of the server; "" if it does not say
	collections []*cluster.Collection
	published   *published // nil: the server is followed
	missing     []string   // names that are not published yet
	documents   *relay.Documents

	// Of --all.
	everything *cluster.Everything
	excluded   sets.Set[string]
}

// connect resolves the resources and the identity of the cluster. While the server cannot
// be reached, or fails, it waits, unless --once is set.
func connect(ctx context.Context, o *options) (*connection, error) {
	config, err := cluster.Config(o.kube)
	if err != nil {
		return nil, err
	}
	srv, err := cluster.NewServer(config)
	if err != nil {
		return nil, err
	}
	c := &connection{Server: srv}
	told := false
	backoff := cluster.Backoff()
	_, err = cmdutil.Persist(ctx, backoff.Step, func() (struct{}, error) { return struct{}{}, c.resolve(ctx, o) },
		func(err error) bool { return cluster.Passes(err) && !o.once },
		func(err error) {
			told = true
			cmdutil.Warnings(klog.FromContext(ctx)).Info("Server cannot be reached, trying again", "server", config.Host, "because", cmdutil.OneLine(err))
		})
	switch {
	case err == nil && told:
		cmdutil.Warnings(klog.FromContext(ctx)).Info("Server is reached again", "server", config.Host)
	case err != nil && ctx.Err() == nil:
		err = cluster.DescribeUnreached(err, config.Host)
	}
	return c, err
}

// resolve makes one attempt to resolve the resources and the cluster.
func (c *connection) resolve(ctx context.Context, o *options) error {
	cached, mapper, err := c.Mapper(ctx)
	if err != nil {
		return err
	}
	var mappings []*meta.RESTMapping
	if o.All {
		mappings, err = c.resolveAll(ctx, o, cached, mapper)
	} else {
		mappings, err = cluster.MappingsOf(ctx, cached, mapper, o.Resources)
		if err == nil {
			err = cluster.CheckVerbs(ctx, cached, mappings, o.once)
		}
	}
	if err != nil {
		return err
	}
	if c.identity, err = c.Identify(ctx); err != nil {
		return err
	}
	c.version = c.Version(ctx)
	c.collections = nil
	for _, m := range mappings {
		collection, err := c.collectionOf(o, m)
		if err != nil {
			return err
		}
		c.collections = append(c.collections, collection)
	}
	return c.addDefinitions(ctx, o, mapper)
}

// resolveAll returns the resources of --all.
func (c *connection) resolveAll(ctx context.Context, o *options, d discovery.DiscoveryInterfaceWithContext, mapper meta.RESTMapper) (mappings []*meta.RESTMapping, err error) {
	if c.excluded, err = o.Excluded(mapper); err != nil {
		return nil, err
	}
	if c.everything, err = cluster.DiscoverAll(ctx, d); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(c.everything.Followed), func(m *meta.RESTMapping) bool {
		return o.leavesOut(m, c.excluded)
	}), nil
}

// leavesOut reports whether --all leaves a resource out because of --exclude or, with a
// namespace, because its objects are of none. The definitions of custom resources stay.
func (o *options) leavesOut(m *meta.RESTMapping, excluded sets.Set[string]) bool {
	name := cluster.NameOf(m)
	isOfNone := o.namespace() != "" && m.Scope.Name() != meta.RESTScopeNameNamespace && name != resources.Definitions
	return isOfNone || excluded.Has(name)
}

// collectionOf returns the collection of a resource that run follows.
func (c *connection) collectionOf(o *options, m *meta.RESTMapping) (*cluster.Collection, error) {
	scope := store.Scope{
		Cluster: c.identity, Resource: cluster.NameOf(m), Kind: m.GroupVersionKind,
		LabelSelector: o.labelSelector, FieldSelector: o.fieldSelector, Form: store.Unstructured,
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		scope.Namespace = o.namespace()
	}
	if o.All && scope.Resource == resources.Definitions {
		scope.LabelSelector, scope.FieldSelector = "", "" // they say what else there is
	}
	if scheme.Scheme.Recognizes(m.GroupVersionKind) {
		scope.Form = store.Typed
	}
	scope, err := scope.Canonical()
	if err != nil {
		return nil, err
	}
	return c.Server.Collection(scope)
}

// addDefinitions adds the definitions of custom resources, which have their columns and
// short names, if one may be followed and definitions may be listed.
func (c *connection) addDefinitions(ctx context.Context, o *options, mapper meta.RESTMapper) error {
	var are, isThere bool
	for _, collection := range c.collections {
		are = are || collection.Scope.Form == store.Unstructured
		isThere = isThere || collection.Scope.Resource == resources.Definitions
	}
	m, err := cluster.MappingOf(mapper, resources.Definitions)
	if o.All || !are || isThere || err != nil {
		return nil //nolint:nilerr // a server may have no custom resources
	}
	unselected := *o
	unselected.labelSelector, unselected.fieldSelector = "", ""
	collection, err := c.collectionOf(&unselected, m)
	if err != nil {
		return err
	}
	_, err = collection.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil && cluster.Unreachable(err) {
		return err
	}
	if err != nil {
		o.env.Note("%s are not followed, so that custom resources have no columns: %s", resources.Definitions, cmdutil.OneLine(err))
		return nil
	}
	c.collections = append(c.collections, collection)
	return nil
}
