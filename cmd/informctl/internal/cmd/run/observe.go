package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-logr/logr"

	"github.com/informctl/informctl/inspect"
)

// serve answers "informctl status" and other commands that cannot open the locked file. A
// failure is not fatal to run.
func (o *options) serve(ctx context.Context, fs *followers) {
	mux := http.NewServeMux()
	mux.Handle("/", inspect.NewHandler(fs))
	mux.Handle("/metrics", fs.metricsHandler())
	if o.pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if err := inspect.Serve(ctx, inspect.SocketPath(fs.db.Path()), mux); err != nil {
		fs.logger.Info("Not served to other processes", "because", err.Error())
	}
}

// listenForMetrics returns nil if no address is set.
func (o *options) listenForMetrics(ctx context.Context) (net.Listener, error) {
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
func serveMetrics(ctx context.Context, l net.Listener, logger logr.Logger, fs *followers) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", fs.metricsHandler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		logger.Info("Metrics are no longer served", "because", err.Error())
	}
}
