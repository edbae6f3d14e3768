// Package probes answers what a cluster asks a process for: metrics for Prometheus, and
// probes for the kubelet.
package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// Source has the answers. Its functions may be called by several goroutines.
type Source struct {
	// Metrics answers a scrape.
	Metrics http.HandlerFunc
	// NotReady returns a line for each thing that is wrong.
	NotReady func(context.Context) []string
}

// Flags are the flags of a command that answers.
type Flags struct{ address string }

// Add adds the flags. also says where else the answers are, "" if nowhere.
func (f *Flags) Add(flags *pflag.FlagSet, also string) {
	flags.StringVar(&f.address, "metrics-bind-address", "", "Serve metrics for Prometheus, /healthz and /readyz at this address, as :8080"+also+".")
}

// Check returns an error if the address is none.
func (f *Flags) Check() error {
	if _, _, err := net.SplitHostPort(f.address); err != nil && f.address != "" {
		return fmt.Errorf("--metrics-bind-address %q is not HOST:PORT or :PORT", f.address)
	}
	return nil
}

// Begin answers at the address, if there is one, until end is called. end returns when
// nothing is answered any more.
func (f *Flags) Begin(ctx context.Context, logger logr.Logger, s Source) (end func(), err error) {
	if f.address == "" {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address %s: %w", f.address, err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	ended := make(chan struct{})
	go func() { // ends with server
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cmdutil.Warnings(logger).Info("Metrics are no longer served", "because", err.Error())
		}
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// Register adds the answers to mux: /metrics, /healthz and /readyz.
func (s Source) Register(mux *http.ServeMux) {
	mux.HandleFunc("/metrics", s.Metrics)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, s.NotReady(r.Context())) })
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
