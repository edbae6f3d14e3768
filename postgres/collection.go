package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/served"
	"github.com/informctl/informctl/postgres/internal/raw"
	"github.com/informctl/informctl/store"
)

// Collection is what a publisher lists and watches.
type Collection struct {
	Scope         store.Scope // its Form does not matter
	ListerWatcher cache.ListerWatcher
	Example       runtime.Object // of the type that ListerWatcher returns

	verify func(context.Context) error // asks whose the API server is; may be nil
	gone   func(context.Context) error // why the resource may be served; may be nil
}

// NewCollection returns the Collection of a scope whose objects are published as the API
// server of cfg encodes them, with the fields that this program does not know. If the
// Cluster of the scope is of informer.ClusterIdentity, the server is asked before each
// probe and each list: nothing of another cluster is published in its place.
func NewCollection(cfg *rest.Config, s store.Scope) (Collection, error) {
	s, err := identity(s)
	if err != nil {
		return Collection{}, err
	}
	if s.Resource == "" || s.Kind.Empty() {
		return Collection{}, errors.New("a collection needs the resource and the kind of its scope")
	}
	resource, _, _ := strings.Cut(s.Resource, ".")
	client, err := raw.NewClient(cfg, s.Kind, resource, s.Namespace, func(opts *metav1.ListOptions) {
		opts.LabelSelector, opts.FieldSelector = s.LabelSelector, s.FieldSelector
	})
	if err != nil {
		return Collection{}, fmt.Errorf("publish %s: %w", s.Resource, err)
	}
	return Collection{Scope: s, ListerWatcher: client, Example: &raw.Object{}, verify: verifier(cfg, s.Cluster), gone: goneFrom(cfg, schema.ParseGroupResource(s.Resource))}, nil
}

// goneFrom returns a function that returns nil if the API server serves a resource in no
// version.
func goneFrom(cfg *rest.Config, resource schema.GroupResource) func(context.Context) error {
	return func(ctx context.Context) error {
		client, err := discovery.NewDiscoveryClientForConfig(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		return served.ConfirmGone(ctx, client.RESTClient(), resource)
	}
}

// askPatience is how long the API server may take to say what it serves.
const askPatience = 30 * time.Second

// errForeign: the API server is another cluster's now, as behind a balancer.
var errForeign = errors.New("the API server is another cluster than that of the scope")

// verifier returns a function whose error is errForeign if the API server is known to be
// another cluster, or says that the server cannot be asked. A name that is not one of
// ClusterIdentity, or was found in another way, is not compared.
func verifier(cfg *rest.Config, cluster string) func(context.Context) error {
	way, _, _ := strings.Cut(cluster, "/")
	if !slices.Contains([]string{"kube-system", "user", "host"}, way) {
		return nil
	}
	return func(ctx context.Context) error {
		now, err := informer.ClusterIdentity(ctx, cfg)
		if err == nil && now != cluster && strings.HasPrefix(now, way+"/") {
			err = fmt.Errorf("%w: %s", errForeign, now)
		}
		return err
	}
}
