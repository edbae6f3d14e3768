package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// Finder finds the scopes of ListerWatchers, and the clusters that answer them. The
// namespace and the selectors of a ListerWatcher are hidden in its closures. So Finder
// wraps the transport of the configuration from which the ListerWatcher's client is
// created. It sends one request through the ListerWatcher, and the transport answers this
// request before it reaches the network. The path and the selectors of the request are
// the scope, and its headers contain the credentials with which the cluster is asked for
// its identity. A Finder is safe for concurrent use.
type Finder struct {
	backend store.Backend
	cfg     *rest.Config // from before the transport was wrapped

	// mu protects asked, and the fields of each Client. It is innermost.
	mu    sync.Mutex
	asked map[string]question // by nonce
}

// NewFinder returns a Finder for the clients of a configuration whose transport was not
// wrapped by Wrap. It remembers clusters in the backend, if that is a store.Ledger.
func NewFinder(backend store.Backend, cfg *rest.Config) *Finder {
	if len(cfg.CAData) == 0 && cfg.CAFile != "" {
		// A server whose CA is rotated while the process runs is the same one.
		if data, err := os.ReadFile(cfg.CAFile); err == nil {
			cfg = rest.CopyConfig(cfg)
			cfg.CAData = data
		}
	}
	return &Finder{backend: backend, cfg: cfg, asked: map[string]question{}}
}

// Wrap wraps the transport of one client.
func (f *Finder) Wrap(next http.RoundTripper) http.RoundTripper { return &Client{f: f, next: next} }

// errAnswered is the transport's answer to the list that asks for the scope.
var errAnswered = errors.New("informer: asked for its scope, not sent")

// ErrNoTransport indicates a ListerWatcher whose requests do not pass through the
// Finder's transport.
var ErrNoTransport = errors.New("its ListerWatcher's client was not made from the rest.Config that NewFactory was given, after that")

// question is called with a request that a ListerWatcher has sent, where it reaches the
// transport. The request is not sent. A transport above may send it several times.
type question func(t *Client, r *http.Request) error

// noncePrefix starts a continue token that no API server has issued. A server that
// receives it in a list answers 400 and returns no data.
const noncePrefix = "informctl-scope-"

// ask sends a request through a ListerWatcher, and calls at where it reaches the
// transport. The error is that of at, or ErrNoTransport if the request was answered
// elsewhere, or that of a request which may not have come so far.
func ask[T any](ctx context.Context, f *Finder, lw cache.ListerWatcher, at func(*Client, *http.Request) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	first := make(chan answer, 1)
	nonce := noncePrefix + rand.Text()
	f.mu.Lock()
	f.asked[nonce] = func(t *Client, r *http.Request) error {
		value, err := at(t, r)
		select {
		case first <- answer{value, err}:
		default:
		}
		return err
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.asked, nonce)
	}()
	var none T
	var unsent error
	for _, send := range waysToAsk(lw) {
		// The result is always an error; only what has reached the transport matters.
		err := send(ctx, nonce)
		select {
		case a := <-first:
			return a.value, a.err
		default:
		}
		if unsent = nil; err != nil && !isAnswer(err) {
			unsent = err
		}
	}
	return none, cmp.Or(unsent, ErrNoTransport)
}

// waysToAsk returns the requests that ask sends. If client-go would begin with a watch,
// the first one is a watch: only lists wait for the client's limit of requests.
func waysToAsk(lw cache.ListerWatcher) (ways []func(ctx context.Context, nonce string) error) {
	if features.FeatureGates().Enabled(features.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(lw) {
		ways = append(ways, func(ctx context.Context, nonce string) error {
			ctx, cancel := context.WithTimeout(ctx, askPatience)
			defer cancel()
			// No server accepts this resource version.
			opts := metav1.ListOptions{Continue: nonce, ResourceVersion: nonce, TimeoutSeconds: ptr.To[int64](1)}
			stop := func(w watch.Interface) {
				if w != nil {
					w.Stop()
				}
			}
			w, err := call(ctx, func() (watch.Interface, error) {
				return cache.ToWatcherWithContext(lw).WatchWithContext(ctx, opts)
			}, stop)
			stop(w)
			return err
		})
	}
	return append(ways, func(ctx context.Context, nonce string) error {
		_, err := call(ctx, func() (runtime.Object, error) {
			return cache.ToListerWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1, Continue: nonce})
		}, nil)
		return err
	})
}

// errPanicked indicates a request that has panicked.
var errPanicked = errors.New("the ListerWatcher has panicked")

// call makes a request of a ListerWatcher. A panic goes to
// k8s.io/apimachinery/pkg/util/runtime as in client-go. If that does not end the process,
// it is an error.
func call[T any](ctx context.Context, request func() (T, error), late func(T)) (_ T, err error) {
	defer utilruntime.HandleCrashWithContext(ctx)
	err = errPanicked
	return endable.Call(ctx, request, late)
}

// listedBy is the list of a ListerWatcher, and the transport that it has reached.
type listedBy struct {
	client *Client
	url    *url.URL
}

// Scope finds the scope of an informer, and the transport of its client. It blocks while
// the server is down and the backend does not remember the cluster. report is called with
// the errors meanwhile. The error is ErrNoTransport, that of a server that does not
// identify itself, or that of ctx.
func (f *Finder) Scope(ctx context.Context, lw cache.ListerWatcher, example runtime.Object, report func(error)) (store.Scope, *Client, error) {
	backoff := serverBackoff()
	for {
		by, err := ask(ctx, f, lw, func(t *Client, r *http.Request) (listedBy, error) { return listedBy{t, r.URL}, nil })
		switch {
		case err == nil:
			s, gv, err := f.parse(by.url)
			if err != nil {
				return store.Scope{}, nil, err
			}
			s.Kind = listedKind(example, gv)
			s.Cluster, err = by.client.identity(ctx, lw, report)
			return s, by.client, err
		case errors.Is(err, ErrNoTransport):
			return store.Scope{}, nil, err
		}
		if err := awaitServer(ctx, &backoff, err, report); err != nil {
			return store.Scope{}, nil, err
		}
	}
}

// parse reads resource, namespace and selectors from the URL of a list: /api/v1/pods or
// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE, below the path of the host.
func (f *Finder) parse(u *url.URL) (store.Scope, schema.GroupVersion, error) {
	unknown := fmt.Errorf("the path %s of its list is not known", u.Path)
	parts := strings.Split(strings.Trim(strings.TrimPrefix(u.Path, f.basePath()), "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return store.Scope{}, gv, unknown
	}
	var s store.Scope
	if len(parts) == 3 && parts[0] == "namespaces" {
		s.Namespace, parts = parts[1], parts[2:]
	}
	if len(parts) != 1 {
		return store.Scope{}, gv, unknown
	}
	s.Resource = schema.GroupResource{Group: gv.Group, Resource: parts[0]}.String()
	query := u.Query()
	if query.Get("shardSelector") != "" {
		// The shard would have to be part of the scope (KEP-5866): after it has changed,
		// a resource version says nothing of the objects that are new in it.
		return store.Scope{}, gv, errors.New("its list asks for a shard (shardSelector)")
	}
	s.LabelSelector, s.FieldSelector = query.Get("labelSelector"), query.Get("fieldSelector")
	return s, gv, nil
}

// basePath returns the path of the host, without a slash at its end.
func (f *Finder) basePath() string {
	host, _, err := rest.DefaultServerUrlFor(f.cfg)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(host.Path, "/")
}

// serverBackoff returns the backoff of questions that the server has not answered.
func serverBackoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// awaitServer reports the error of such a question, logs the first one, and waits before
// it is asked again.
// It returns the error of ctx.
func awaitServer(ctx context.Context, backoff *wait.Backoff, cause error, report func(error)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if first := serverBackoff(); backoff.Steps == first.Steps { // report tells each
		klog.FromContext(ctx).Info("Waiting for the API server", "because", cause.Error())
	}
	report(cause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(backoff.Step()):
		return nil
	}
}
