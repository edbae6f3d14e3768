package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/postgres/internal/raw"
	"github.com/informctl/informctl/store"
)

// Collection is what a publisher lists and watches.
type Collection struct {
	Scope         store.Scope // its Form does not matter
	ListerWatcher cache.ListerWatcher
	Example       runtime.Object // of the type that ListerWatcher returns

	verify func(context.Context) error // asks whose the API server is; may be nil
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
	return Collection{Scope: s, ListerWatcher: client, Example: &raw.Object{}, verify: verifier(cfg, s.Cluster)}, nil
}

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
