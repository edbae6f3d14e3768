package informer

import (
	"cmp"
	"context"

	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/informer/internal/cluster"
)

// ClusterIdentity returns an identity that distinguishes the cluster behind cfg from
// others, for store.Scope.Cluster. It is the UID of the kube-system namespace; if that
// may not be read, the UID of the requesting ServiceAccount, which also belongs to one
// cluster; if the user has no UID, the host and its CA. An error means that the server
// could not be asked, or that no API server has answered.
func ClusterIdentity(ctx context.Context, cfg *rest.Config) (string, error) {
	return cluster.Identity(ctx, cfg)
}

// verify implements reflector.Options.Verify: it asks the server whether it is the
// cluster of the informer's scope. If it is another one, or has never identified itself,
// the informer lists and stores no resource version until the server is that cluster,
// because the scope belongs to another cluster. Only persisted informers of a Factory
// call it.
func (inf *Informer) verify(ctx context.Context) (relist string, err error) {
	answer := inf.verifier.Ask(ctx)
	if inf.state.Foreign() != "" {
		// What is still in the queue must not count as the right cluster's.
		if err := inf.queue.Idle(ctx); err != nil {
			return "", err
		}
	}
	is, judged, err := inf.verifier.Judge(ctx, answer)
	if !judged {
		return "", err
	}
	if inf.state.SetForeign(is) == is {
		return "", nil
	}
	return cmp.Or(is, cluster.HomeAgain), nil
}
