package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// connection is the server and the sources that run follows.
type connection struct {
	*server
	identity string
	version  string // of the server; "" if it does not say
	sources  []*collection

	// Of --all.
	everything *everything
	excluded   sets.Set[string]
}

// connect resolves the resources and the identity of the cluster. While the server cannot
// be reached it waits, unless --once is set.
func connect(ctx context.Context, o *runOptions) (*connection, error) {
	config, err := restConfig(o.kube)
	if err != nil {
		return nil, err
	}
	srv, err := newServer(config)
	if err != nil {
		return nil, err
	}
	c := &connection{server: srv}
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
	for told := false; ; {
		err := c.resolve(ctx, o)
		if apierrors.IsUnauthorized(err) {
			return nil, fmt.Errorf("not logged in to %s: %w; renew the token or certificate of the kubeconfig", config.Host, err)
		}
		if err == nil || !unreachable(err) {
			if told && err == nil {
				warnings(klog.FromContext(ctx)).Info("Server is reached again", "server", config.Host)
			}
			return c, err
		}
		if o.once {
			return nil, fmt.Errorf("server %s cannot be reached: %w", config.Host, err)
		}
		if !told && ctx.Err() == nil {
			warnings(klog.FromContext(ctx)).Info("Server cannot be reached, trying again", "server", config.Host, "because", oneLine(err))
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(backoff.Step()):
		}
	}
}

// restConfig returns the client configuration.
func restConfig(kube *genericclioptions.ConfigFlags) (*rest.Config, error) {
	config, err := kube.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if err := namesCluster(kube, config); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.UserAgent = fmt.Sprintf("informctl/%s (%s/%s)", version(), runtime.GOOS, runtime.GOARCH)
	config.QPS = -1 // mostly watches; the server limits by itself
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}

// namesCluster returns an error if the configuration is only client-go's default, a
// server at localhost:8080, because no file names a cluster, no flag a server, and this
// is no pod.
func namesCluster(kube *genericclioptions.ConfigFlags, config *rest.Config) error {
	loader := kube.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return err
	}
	if len(raw.Clusters) > 0 || *kube.APIServer != "" || os.Getenv("KUBERNETES_MASTER") != "" || config.Host != clientcmd.ClusterDefaults.Server {
		return nil
	}
	files := loader.ConfigAccess().GetLoadingPrecedence()
	verb := "name"
	if len(files) == 1 {
		verb = "names"
	}
	return fmt.Errorf("%s %s no cluster; give --kubeconfig or --server", strings.Join(files, " and "), verb)
}

// server is an API server with the client that all sources share.
type server struct {
	config  *rest.Config
	client  *http.Client
	dynamic dynamic.Interface
}

func newServer(config *rest.Config) (*server, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &server{config, client, dyn}, nil
}

// unreachable reports whether the server did not answer, or asked the client to retry.
func unreachable(err error) bool {
	var network net.Error
	var operation *net.OpError
	return errors.As(err, &network) || errors.As(err, &operation) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// resolve makes one attempt to resolve the resources and the cluster.
func (c *connection) resolve(ctx context.Context, o *runOptions) error {
	d, err := c.discovery()
	if err != nil {
		return err
	}
	cached := memory.NewMemCacheClient(d)
	groups, err := restmapper.GetAPIGroupResources(cached)
	if err != nil {
		return fmt.Errorf("ask for the server's resources: %w", err)
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), cached, nil)
	var mappings []*meta.RESTMapping
	if o.all {
		mappings, err = c.resolveAll(o, cached, mapper)
	} else {
		mappings, err = mappingsOf(mapper, o.resources)
	}
	if err != nil {
		return err
	}
	if c.identity, err = informer.ClusterIdentity(ctx, c.config); err != nil {
		return err
	}
	c.version = c.serverVersion()
	c.sources = nil
	for _, m := range mappings {
		src, err := c.source(o, m)
		if err != nil {
			return err
		}
		c.sources = append(c.sources, src)
	}
	return c.addDefinitions(ctx, o, mapper)
}

// discovery returns a client that asks the server for its resources.
func (s *server) discovery() (*discovery.DiscoveryClient, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(s.config, s.client)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return d, nil
}

// resolveAll returns the resources of --all.
func (c *connection) resolveAll(o *runOptions, d discovery.DiscoveryInterface, mapper meta.RESTMapper) (mappings []*meta.RESTMapping, err error) {
	if c.excluded, err = excluded(mapper, o.exclude); err != nil {
		return nil, err
	}
	if c.everything, err = discoverAll(d); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(c.everything.followed), func(m *meta.RESTMapping) bool {
		return o.leavesOut(m, c.excluded)
	}), nil
}

// leavesOut reports whether --all leaves a resource out because of --exclude or, with a
// namespace, because its objects are of none. The definitions of custom resources stay.
func (o *runOptions) leavesOut(m *meta.RESTMapping, excluded sets.Set[string]) bool {
	name := nameOf(m)
	isOfNone := o.namespace() != "" && m.Scope.Name() != meta.RESTScopeNameNamespace && name != definitionsResource
	return isOfNone || excluded.Has(name)
}

// source returns the source of a resource's objects that run follows.
func (c *connection) source(o *runOptions, m *meta.RESTMapping) (*collection, error) {
	scope := store.Scope{
		Cluster: c.identity, Resource: nameOf(m), Kind: m.GroupVersionKind,
		LabelSelector: o.labelSelector, FieldSelector: o.fieldSelector, Form: store.Unstructured,
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		scope.Namespace = o.namespace()
	}
	if o.all && scope.Resource == definitionsResource {
		scope.LabelSelector, scope.FieldSelector = "", "" // they say what else there is
	}
	if scheme.Scheme.Recognizes(m.GroupVersionKind) {
		scope.Form = store.Typed
	}
	scope, err := scope.Canonical()
	if err != nil {
		return nil, err
	}
	return c.server.source(scope)
}

// addDefinitions adds the definitions of custom resources, which have their columns and
// short names, if one may be followed and definitions may be listed.
func (c *connection) addDefinitions(ctx context.Context, o *runOptions, mapper meta.RESTMapper) error {
	var are, isThere bool
	for _, src := range c.sources {
		are = are || src.scope.Form == store.Unstructured
		isThere = isThere || src.scope.Resource == definitionsResource
	}
	m, err := mappingOf(mapper, definitionsResource)
	if o.all || !are || isThere || err != nil {
		return nil //nolint:nilerr // a server may have no custom resources
	}
	unselected := *o
	unselected.labelSelector, unselected.fieldSelector = "", ""
	src, err := c.source(&unselected, m)
	if err != nil {
		return err
	}
	_, err = src.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil && unreachable(err) {
		return err
	}
	if err != nil {
		o.env.note("%s are not followed, so that custom resources have no columns: %s", definitionsResource, oneLine(err))
		return nil
	}
	c.sources = append(c.sources, src)
	return nil
}

// mappingsOf resolves the resources that a user named, each only once.
func mappingsOf(mapper meta.RESTMapper, names []string) ([]*meta.RESTMapping, error) {
	var out []*meta.RESTMapping
	seen := map[schema.GroupVersionResource]bool{}
	for _, name := range names {
		m, err := mappingOf(mapper, name)
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("the server has no resource %q", name)
		}
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", name, err)
		}
		if !seen[m.Resource] {
			seen[m.Resource] = true
			out = append(out, m)
		}
	}
	return out, nil
}

// mappingOf resolves RESOURCE[.VERSION][.GROUP], in plural, singular or short form, or
// KIND[.VERSION][.GROUP].
func mappingOf(mapper meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	full, short := schema.ParseResourceArg(name)
	var gvk schema.GroupVersionKind
	if full != nil {
		gvk, _ = mapper.KindFor(*full)
	}
	if gvk.Empty() {
		gvk, _ = mapper.KindFor(short.WithVersion(""))
	}
	if !gvk.Empty() {
		return mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	kind, groupKind := schema.ParseKindArg(name)
	if kind != nil {
		if m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			return m, nil
		}
	}
	return mapper.RESTMapping(groupKind)
}
