package informer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// ClusterIdentity returns an identity that distinguishes the cluster behind cfg from
// others, for store.Scope.Cluster. It is the UID of the kube-system namespace; if that
// may not be read, the UID of the requesting ServiceAccount, which also belongs to one
// cluster; if the user has no UID, the host and its CA. An error means that the server
// could not be asked, or that no API server has answered.
func ClusterIdentity(ctx context.Context, cfg *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return identify(ctx, client, cfg, isRefusal)
}

// identify implements ClusterIdentity with a client. isRefusal reports whether the server
// has refused to answer, so that another way is tried.
func identify(ctx context.Context, client kubernetes.Interface, cfg *rest.Config, isRefusal func(error) bool) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err == nil {
		return "kube-system/" + string(ns.UID), nil
	}
	if !isRefusal(err) {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && self.Status.UserInfo.UID != "" {
		return "user/" + self.Status.UserInfo.UID, nil
	}
	if err != nil && !isRefusal(err) {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	ca, err := caDigest(cfg)
	if err != nil {
		return "", err
	}
	return "host/" + cfg.Host + "/" + ca, nil
}

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
func (t *scopeTransport) askIdentity(ctx context.Context, lw cache.ListerWatcher) (string, error) {
	answer := t.asking.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askPatience)
		defer cancel()
		return ask(ctx, t.f, lw, func(at *scopeTransport, r *http.Request) (string, error) {
			cluster, err := at.identify(ctx, r, isRefusal)
			if isNoAPI(err) && answers(ctx, lw) {
				// An API server without the core group, as one that others aggregate.
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
	if !t.verified {
		t.cluster, t.verified = cluster, true
	}
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
func (t *scopeTransport) isRefused(cluster, remembered string) bool {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	ways := []string{"", "host", "user", "kube-system"} // from weak to strong
	if slices.Index(ways, wayOf(cluster)) >= slices.Index(ways, wayOf(remembered)) {
		return false
	}
	if t.refusals.n++; t.refusals.n == 1 {
		t.refusals.since = time.Now()
	}
	return t.refusals.n < identityTries || time.Since(t.refusals.since) < refusedFor
}

// wayOf returns how a cluster was identified.
func wayOf(cluster string) string {
	way, _, _ := strings.Cut(cluster, "/")
	return way
}

// identify identifies the cluster with the credentials of a request that has reached the
// transport.
func (t *scopeTransport) identify(ctx context.Context, r *http.Request, isRefusal func(error) bool) (string, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:      (&url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: t.f.basePath()}).String(),
		Transport: sentLike{r, t.next},
		QPS:       -1,
	})
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return identify(ctx, client, t.f.cfg, isRefusal)
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
	_, err := endable.Call(ctx, func() (runtime.Object, error) {
		return cache.ToListerWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	}, nil)
	return err == nil || isServed(err)
}

// isServed reports whether an error is the server's answer to this request, and not to
// every request, as one of an API server whose etcd is away, or of a proxy without an API
// server.
func isServed(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && isAnswer(err) && !isNoAPI(err)
}

// isAnswer reports whether the server has answered, even with an error. What it, or a
// proxy, answers to every request in an outage is no answer to this one.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// identity returns the identity of the cluster. The server is asked once for all
// informers of a client. While the server is down, identity returns the one that the
// backend remembers, and each informer verifies it before it resumes. If there is none,
// identity asks until the server answers. The error is that of a server that answers
// without identifying its cluster. report is called with the errors before.
func (t *scopeTransport) identity(ctx context.Context, lw cache.ListerWatcher, report func(error)) (string, error) {
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
			t.cluster = cluster
			f.mu.Unlock()
			return cluster, nil
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

// serverBackoff returns the backoff of questions that the server has not answered.
func serverBackoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// awaitServer reports the error of such a question, and waits before it is asked again.
// It returns the error of ctx.
func awaitServer(ctx context.Context, backoff *wait.Backoff, cause error, report func(error)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	klog.FromContext(ctx).Info("Waiting for the API server", "because", cause.Error())
	report(cause)
	return sleep(ctx, backoff.Step())
}

// clusters is the ledger of the clusters that were last found at an address. A process
// that starts while the server is down serves the objects of that cluster until the
// server is back.
const clusters = "clusters"

func (f *Factory) remembered(ctx context.Context) string {
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
func (f *Factory) remember(ctx context.Context, cluster string) bool {
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

const (
	foreignCluster = "the server is another cluster than the one whose objects are stored"
	unknownCluster = "the server does not say which cluster it is"
	homeAgain      = "the server is the cluster whose objects are stored, again"
	// foreignContent is the reason of a checkpoint from when objects of another cluster
	// are stored, until the server is the right one and is listed.
	foreignContent = "objects of another cluster were stored"
)

// verify implements reflector.Options.Verify: it asks the server whether it is the
// cluster of the informer's scope. If it is another one, or has never identified itself,
// the informer lists and stores no resource version until the server is that cluster,
// because the scope belongs to another cluster. Only persisted informers of a Factory
// call it.
func (inf *Informer) verify(ctx context.Context) (relist string, err error) {
	cluster, err := inf.client.askIdentity(ctx, inf.lw)
	isDown := err != nil && !errors.Is(err, errRefused) && !isServed(err) && !answers(ctx, inf.lw)
	inf.mu.Lock()
	was := inf.hold.foreign
	inf.mu.Unlock()
	if was != "" {
		// What is still in the queue must not count as the right cluster's.
		if err := inf.queue.Idle(ctx); err != nil {
			return "", err
		}
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if err == nil && wayOf(cluster) != wayOf(inf.scope.Cluster) {
		err = errRefused
	}
	inf.identity.failed = err != nil
	is := ""
	switch {
	case err == nil:
		inf.identity = identity{verified: true}
		if cluster != inf.scope.Cluster {
			is = foreignCluster
		}
	case ctx.Err() != nil:
		return "", err
	case isDown:
		inf.identity.unanswered = 0
		return "", err
	default:
		// From then on, the informer continues at once until the server identifies
		// itself.
		if inf.identity.unanswered++; inf.identity.unanswered < identityTries {
			return "", err
		}
		klog.FromContext(ctx).Error(err, "Going on without knowing which cluster the server is")
		if inf.identity.verified {
			return "", nil // the last answer was the right cluster
		}
		is = unknownCluster
	}
	inf.hold.foreign = is
	switch is {
	case was:
		return "", nil
	case "":
		inf.reached = "" // of the other cluster
		return homeAgain, nil
	}
	return is, nil
}

// askedHow identifies the connection to a server, as a key of clusters: with other
// credentials, ClusterIdentity may return another identity.
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
	ca, err := caDigest(cfg)
	if err != nil {
		return "" // never used: ClusterIdentity fails, too
	}
	return strings.Join([]string{cfg.Host, ca, credentials}, " ")
}

// caDigest returns a digest of the CA certificates in cfg.
func caDigest(cfg *rest.Config) (string, error) {
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return "", fmt.Errorf("identify the cluster: %w", err)
		}
	}
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:8]), nil
}

// isRefusal reports whether the server has refused to answer.
func isRefusal(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)) && !isNoAPI(err)
}

// isNoAPI reports whether an error is a 404 without a Status, as of a proxy without an
// API server behind it, for which no path exists.
func isNoAPI(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
