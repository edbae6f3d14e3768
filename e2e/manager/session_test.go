package manager_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/store/bolt"
)

// setup is the configuration of a session.
type setup struct {
	options          crcache.Options
	transformVersion string
	decoded          int64
	keys             codec.KeyProvider // nil: nothing is encrypted
	ended            bool              // the cache's context ends before the cache starts
	// before is called before the cache is started.
	before func(*testing.T, crcache.Cache)
}

// session is a running cache on a file. Its user agent is the name of the test.
type session struct {
	crcache.Cache
	world *world
	path  string
	gate  *gate
	stop  func()
}

func (w *world) open(t *testing.T, path string, s setup) *session {
	t.Helper()
	cfg := w.Config()
	cfg.UserAgent = t.Name()
	out := &session{world: w, path: path, gate: &gate{}}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return out.gate.before(next) })
	db, err := bolt.Open(path, bolt.Options{Keys: s.keys})
	if err != nil {
		t.Fatal(err)
	}
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{TransformVersion: s.transformVersion, DecodedBytes: s.decoded})
	if err != nil {
		t.Fatal(err)
	}
	s.options.NewInformer = factory.NewInformer
	if out.Cache, err = crcache.New(cfg, s.options); err != nil {
		t.Fatal(err)
	}
	if s.before != nil {
		s.before(t, out.Cache)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if s.ended {
		cancel()
	}
	go func() { done <- out.Start(ctx) }()
	out.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(out.stop)
	if !s.ended && !out.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	return out
}

// coldAndWarm runs a check on a cold file and again after a restart. The results must be
// the same, no collection may be listed again, and the second run must find the scopes
// that the first run left.
func (w *world) coldAndWarm(t *testing.T, s setup, check func(*testing.T, *session)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "informers.db")
	var left []string
	cold := t.Run("cold", func(t *testing.T) {
		c := w.open(t, path, s)
		check(t, c)
		c.stop()
		if len(w.lists(t, t.Name())) == 0 {
			t.Error("the cold start made no list: the warm one proves nothing")
		}
		left = scopes(t, path)
	})
	if !cold {
		return
	}
	t.Run("warm", func(t *testing.T) {
		c := w.open(t, path, s)
		check(t, c)
		c.stop()
		if got := w.lists(t, t.Name()); len(got) > 0 {
			t.Errorf("the warm start listed: %s", strings.Join(got, "; "))
		}
		if diff := cmp.Diff(left, scopes(t, path)); diff != "" {
			t.Errorf("scopes (-cold +warm):\n%s", diff)
		}
	})
}

// scopes returns the scopes in the file, sorted. Each must be in the file once, be
// complete, belong to this cluster and have a checkpoint.
func scopes(t *testing.T, path string) (out []string) {
	t.Helper()
	for _, info := range bolttest.Scopes(t, path) {
		if !strings.HasPrefix(info.Scope.Cluster, "kube-system/") {
			t.Errorf("%s: cluster %q", info.Scope, info.Scope.Cluster)
		}
		if !info.Complete || info.Checkpoint.RV == "" {
			t.Errorf("%s: complete %t, checkpoint %+v", info.Scope, info.Complete, info.Checkpoint)
		}
		out = append(out, info.Scope.String())
	}
	slices.Sort(out)
	if n := len(out); len(slices.Compact(slices.Clone(out))) != n {
		t.Errorf("a scope is there twice: %q", out)
	}
	return out
}

// gate passes a session's requests to the server. While it is shut, all requests except
// discovery wait or fail.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil: not shut
	err  error
}

// close shuts the gate. open opens it again.
func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.shut = shut
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shut = nil
		close(shut)
	})
}

// fail makes requests fail with err from now on; nil ends that.
func (g *gate) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

func (g *gate) before(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/") {
			return next.RoundTrip(r)
		}
		g.mu.Lock()
		shut, err := g.shut, g.err
		g.mu.Unlock()
		if shut != nil {
			select {
			case <-shut:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		if err != nil {
			return nil, err
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
