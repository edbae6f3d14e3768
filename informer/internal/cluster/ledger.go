package cluster

import (
	"context"
	"errors"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/cadigest"
	"github.com/informctl/informctl/store"
)

// clusters is the ledger of the clusters that were last found at an address. A process
// that starts while the server is down serves the objects of that cluster until the
// server is back.
const clusters = "clusters"

func (f *Finder) remembered(ctx context.Context) string {
	backend, ok := f.backend.(store.Ledger)
	if !ok {
		return ""
	}
	known, err := backend.Ledger(ctx, clusters)
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return ""
	}
	return string(known[askedHow(f.cfg)])
}

// remember makes remembered return cluster. It reports whether that is stored.
func (f *Finder) remember(ctx context.Context, cluster string) bool {
	backend, ok := f.backend.(store.Ledger)
	if !ok {
		return false
	}
	err := backend.SetLedger(ctx, clusters, map[string][]byte{askedHow(f.cfg): []byte(cluster)})
	if err != nil {
		klog.FromContext(ctx).Error(err, "The identity of the cluster could not be stored")
	}
	return err == nil
}

// askedHow identifies the connection to a server, as a key of clusters: with other
// credentials, Identity may return another identity.
func askedHow(cfg *rest.Config) string {
	var credentials string
	switch {
	case cfg.ExecProvider != nil:
		credentials = "exec"
	case cfg.AuthProvider != nil:
		credentials = "provider"
	case cfg.BearerToken != "" || cfg.BearerTokenFile != "":
		credentials = "token"
	case cfg.CertFile != "" || len(cfg.CertData) > 0:
		credentials = "certificate"
	case cfg.Username != "":
		credentials = "password"
	}
	ca, err := cadigest.Of(cfg)
	if err != nil {
		return "" // never used: Identity fails, too
	}
	return strings.Join([]string{cfg.Host, ca, credentials}, " ")
}
