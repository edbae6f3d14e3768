package cluster

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/served"
)

// ConfirmGone is served.ConfirmGone with the client of the ListerWatcher.
func (t *Client) ConfirmGone(ctx context.Context, lw cache.ListerWatcher, resource schema.GroupResource) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	_, err := ask(ctx, t.f, lw, func(at *Client, r *http.Request) (struct{}, error) {
		client, err := at.clientset(r)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, served.ConfirmGone(ctx, client.Discovery().RESTClient(), resource)
	})
	return err
}
