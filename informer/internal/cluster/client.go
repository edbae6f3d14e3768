package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

// Client is the transport of one client of the configuration. It is safe for concurrent
// use.
type Client struct {
	f      *Finder
	next   http.RoundTripper
	asking singleflight.Group // shares requests for the identity

	// f.mu protects the fields below.
	cluster  string // the last one that answered, or that is remembered; "" if none
	stored   string // what askIdentity has stored last
	losses   uint64 // of the ledger before that
	refusals refusals
}

// RoundTrip implements http.RoundTripper.
func (t *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	nonce := r.URL.Query().Get("continue")
	if !strings.HasPrefix(nonce, noncePrefix) {
		return t.next.RoundTrip(r)
	}
	t.f.mu.Lock()
	q := t.f.asked[nonce]
	t.f.mu.Unlock()
	if q == nil {
		return t.next.RoundTrip(r)
	}
	if err := q(t, r); apierrors.IsUnauthorized(err) {
		// What gives requests their credentials renews them after this answer.
		return &http.Response{
			StatusCode: http.StatusUnauthorized, Status: "401 Unauthorized", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, Request: r,
		}, nil
	}
	return nil, errAnswered
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t *Client) WrappedRoundTripper() http.RoundTripper { return t.next }

const (
	// askPatience is the timeout of one request for the identity: a server that accepts
	// the request but does not answer must not prevent the stored objects from being
	// served.
	askPatience = 5 * time.Second
	// identityTries is the number of consecutive times that the server does not identify
	// itself, although it answers, after which the caller continues without the identity:
	// a broken namespaces API must not block every start.
	identityTries = 5
)

// askIdentity identifies the cluster and stores the identity in the backend. It asks with
// the client of the ListerWatcher. Informers of one client that call it at the same time
// share one answer.
func (t *Client) askIdentity(ctx context.Context, lw cache.ListerWatcher) (string, error) {
	answer := t.asking.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askPatience)
		defer cancel()
		return ask(ctx, t.f, lw, func(at *Client, r *http.Request) (string, error) {
			cluster, err := at.identify(ctx, r, func(err error) bool { return isRefusal(err) && !isOfProxy(err) })
			if (isNoAPI(err) || isOfProxy(err)) && answers(ctx, lw) {
				// An API server without the core group, as one that others aggregate, or
				// a proxy that lets some requests through.
				return at.identify(ctx, r, func(err error) bool { return isRefusal(err) || isNoAPI(err) })
			}
			return cluster, err
		})
	})
	var cluster string
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-answer:
		if a.Err != nil {
			return "", a.Err
		}
		cluster = a.Val.(string)
	}
	f := t.f
	losses := uint64(0)
	if backend, ok := f.backend.(store.Ledger); ok {
		losses = backend.LedgerLosses()
	}
	f.mu.Lock()
	stored := t.stored
	known := stored == cluster && t.losses == losses
	f.mu.Unlock()
	if !known {
		was := f.remembered(ctx)
		if t.isRefused(cluster, cmp.Or(was, stored)) {
			return "", errRefused
		}
		known = was == cluster || f.remember(ctx, cluster)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t.refusals = refusals{}
	if known {
		t.stored, t.losses = cluster, losses
	}
	t.cluster = cluster // another one may answer at the address by now
	return cluster, nil
}

// errRefused is the error of a server that refuses what has identified its cluster
// before.
var errRefused = errors.New("the server does not identify its cluster as it did")

// refusals are identities in a row of a weaker way than the remembered one.
type refusals struct {
	since time.Time // of the first one
	n     int
}

// refusedFor is the least duration of refusals, of which there are identityTries at
// least, after which the weaker identity is the cluster's.
const refusedFor = 10 * time.Second

// isRefused reports whether an identity is of a weaker way than the remembered one,
// because the server has refused the stronger one. An API server that has just started
// does so for some seconds.
func (t *Client) isRefused(cluster, remembered string) bool {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if slices.Index(ways, wayOf(cluster)) >= slices.Index(ways, wayOf(remembered)) {
		return false
	}
	if t.refusals.n++; t.refusals.n == 1 {
		t.refusals.since = time.Now()
	}
	return t.refusals.n < identityTries || time.Since(t.refusals.since) < refusedFor
}

// identify identifies the cluster with the credentials of a request that has reached the
// transport.
func (t *Client) identify(ctx context.Context, r *http.Request, isRefusal func(error) bool) (string, error) {
	client, err := t.clientset(r)
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return identify(ctx, client, t.f.cfg, isRefusal)
}

// clientset returns a client of the server and with the credentials of a request that has
// reached the transport.
func (t *Client) clientset(r *http.Request) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(&rest.Config{
		Host:      (&url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: t.f.basePath()}).String(),
		Transport: sentLike{r, t.next},
		QPS:       -1,
	})
}

// sentLike sends requests with the headers of another one, for example its credentials.
type sentLike struct {
	other *http.Request
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s sentLike) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range s.other.Header {
		if _, own := r.Header[name]; !own {
			r.Header[name] = values
		}
	}
	r.Host = s.other.Host
	return s.next.RoundTrip(r)
}

// answers reports whether the server answers a request of the ListerWatcher. If it does
// not, nothing but waiting helps.
func answers(ctx context.Context, lw cache.ListerWatcher) bool {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	_, err := call(ctx, func() (runtime.Object, error) {
		return cache.ToListerWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	}, nil)
	return err == nil || isServed(err)
}

// identity returns the identity of the cluster. The server is asked once for all
// informers of a client, and again by each that runs: what it has said last counts. While
// the server is down, identity returns the one that the backend remembers, and each
// informer verifies it before it resumes. If there is none,
// identity asks until the server answers. The error is that of a server that answers
// without identifying its cluster. report is called with the errors before.
func (t *Client) identity(ctx context.Context, lw cache.ListerWatcher, report func(error)) (string, error) {
	f := t.f
	backoff := serverBackoff()
	for answered := 0; ; {
		f.mu.Lock()
		cluster := t.cluster
		f.mu.Unlock()
		if cluster != "" {
			return cluster, nil
		}
		cluster, err := t.askIdentity(ctx, lw)
		if err == nil {
			return cluster, nil
		}
		if cluster := f.remembered(ctx); cluster != "" && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Serving what is stored of the cluster that was here last", "cluster", cluster, "because", err.Error())
			f.mu.Lock()
			defer f.mu.Unlock()
			// The server may have answered another informer meanwhile.
			t.cluster = cmp.Or(t.cluster, cluster)
			return t.cluster, nil
		}
		if answered++; !isServed(err) && !answers(ctx, lw) {
			answered = 0
		}
		if answered >= identityTries {
			return "", err
		}
		if err := awaitServer(ctx, &backoff, err, report); err != nil {
			return "", err
		}
	}
}
