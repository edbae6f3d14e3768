package run

import (
	"context"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/cmd/informctl/internal/probes"
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
	answersOf(of).Register(mux)
	if o.pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if err := inspect.Serve(ctx, inspect.SocketPath(fs.db.Path()), mux); err != nil {
		cmdutil.Warnings(fs.logger).Info("Not served to other processes", "because", err.Error())
	}
}

// observed is what a cluster asks a process about: nil until the server was reached.
type observed = atomic.Pointer[followers]

// beforeServer is what metrics tell before the server was reached: an informer that has
// not found its scope, so that the alert for a missing catch-up sees the process.
type beforeServer struct{}

// Status returns the status of that informer.
func (beforeServer) Status() []informer.Status { return []informer.Status{{}} }

// answersOf returns what a cluster is answered, also while the server cannot be reached.
func answersOf(of *observed) probes.Source {
	scraped := metricsHandler(beforeServer{})
	return probes.Source{
		Metrics: func(w http.ResponseWriter, r *http.Request) {
			if fs := of.Load(); fs != nil {
				fs.scraped.ServeHTTP(w, r)
				return
			}
			scraped.ServeHTTP(w, r)
		},
		NotReady: func(context.Context) []string {
			fs := of.Load()
			if fs == nil {
				return []string{"the server has not been reached yet"}
			}
			return append(notReady(fs.Status(), fs.o.env.Now()), fs.notPublished()...)
		},
	}
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
