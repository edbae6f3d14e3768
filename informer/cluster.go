package informer

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/informer/internal/cluster"
)

// ClusterIdentity returns an identity that distinguishes the cluster behind cfg from
// others, for store.Scope.Cluster. It is the UID of the kube-system namespace; if that
// may not be read, the UID of the requesting ServiceAccount, which also belongs to one
// cluster; for any other user, whose UID several clusters may know, the host and its CA.
// An error means that the server could not be asked, or that no API server has answered.
func ClusterIdentity(ctx context.Context, cfg *rest.Config) (string, error) {
	return cluster.Identity(ctx, cfg)
}
