package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
)

// serve answers "informctl status" and other commands that cannot open the locked file. A
// failure is not fatal to run.
func (o *options) serve(ctx context.Context, fs *followers) {
	mux := http.NewServeMux()
	mux.Handle("/", inspect.NewHandler(fs))
	of := &observed{}
	of.Store(fs)
	observe(mux, of)
	if o.pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if err := inspect.Serve(ctx, inspect.SocketPath(fs.db.Path()), mux); err != nil {
		cmdutil.Warnings(fs.logger).Info("Not served to other processes", "because", err.Error())
	}
}

// beginMetrics serves metrics and probes, if there is an address for them, until end is
// called. A cluster asks for them also while the server cannot be reached.
func (o *options) beginMetrics(ctx context.Context, logger logr.Logger, of *observed) (end func(), err error) {
	if o.metricsAddress == "" {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.metricsAddress)
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address %s: %w", o.metricsAddress, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serveMetrics(ctx, l, logger, of)
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// observed is what a cluster asks a process about: nil until the server was reached.
type observed = atomic.Pointer[followers]

// observe adds what a cluster asks a process for: metrics for Prometheus, and probes for
// the kubelet.
func observe(mux *http.ServeMux, of *observed) {
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if fs := of.Load(); fs != nil {
			fs.scraped.ServeHTTP(w, r)
		}
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		fs := of.Load()
		if fs == nil {
			answer(w, []string{"the server has not been reached yet"})
			return
		}
		answer(w, notReady(fs.Status(), fs.o.env.Now()))
	})
}

// notReady returns a line for each scope with which something is wrong.
func notReady(all []informer.Status, now time.Time) (wrong []string) {
	if len(all) == 0 {
		return []string{"nothing is followed"}
	}
	for _, s := range all {
		if problem := health.Wrong(s, now); problem != "" {
			wrong = append(wrong, cmdutil.OrDash(s.Scope.Resource)+": "+problem)
		}
	}
	return wrong
}

// answer answers a probe: 200, or 503 with what is wrong.
func answer(w http.ResponseWriter, wrong []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	text := "ok"
	if len(wrong) > 0 {
		text = strings.Join(wrong, "\n")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, text) // the client may be gone
}

// serveMetrics serves metrics and probes until ctx ends. It closes l.
func serveMetrics(ctx context.Context, l net.Listener, logger logr.Logger, of *observed) {
	mux := http.NewServeMux()
	observe(mux, of)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		cmdutil.Warnings(logger).Info("Metrics are no longer served", "because", err.Error())
	}
}
