package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/metrics"
	"github.com/informctl/informctl/store/bolt"
)

// followed is the source of metrics about followers.
type followed []*follower

// Status implements the interface that metrics.New needs.
func (f followed) Status() []informer.Status {
	statuses := make([]informer.Status, len(f))
	for i := range f {
		statuses[i] = f[i].informer.Status()
	}
	return statuses
}

// metricsHandler returns a handler that serves the followers' metrics.
func metricsHandler(followers []*follower) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(followed(followers)))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// serve answers "informctl status" and other commands that cannot open the locked file. A
// failure is not fatal to run.
func (o *runOptions) serve(ctx context.Context, db *bolt.DB, logger logr.Logger, followers []*follower) {
	informers := make([]*informer.Informer, len(followers))
	for i, f := range followers {
		informers[i] = f.informer
	}
	mux := http.NewServeMux()
	mux.Handle("/", inspect.NewHandler(inspect.Of(db, informers...)))
	mux.Handle("/metrics", metricsHandler(followers))
	if o.pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if err := inspect.Serve(ctx, inspect.SocketPath(db.Path()), mux); err != nil {
		logger.Info("Not served to other processes", "because", err.Error())
	}
}

// listenForMetrics returns nil if no address is set.
func (o *runOptions) listenForMetrics(ctx context.Context) (net.Listener, error) {
	if o.metricsAddress == "" {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.metricsAddress)
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address %s: %w", o.metricsAddress, err)
	}
	return l, nil
}

// serveMetrics serves metrics for Prometheus until ctx ends. It closes l.
func serveMetrics(ctx context.Context, l net.Listener, logger logr.Logger, followers []*follower) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metricsHandler(followers))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		logger.Info("Metrics are no longer served", "because", err.Error())
	}
}
