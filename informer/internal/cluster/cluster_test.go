package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// server answers requests for the namespace kube-system, and fails all others.
type server struct {
	uid   types.UID
	code  int // of the answer
	lists int // requests that are not for the namespace
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
		s.lists++
		return answer(r, http.StatusForbidden, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden})
	}
	if s.code != http.StatusOK {
		return answer(r, s.code, &metav1.Status{Status: metav1.StatusFailure, Code: int32(s.code)})
	}
	return answer(r, s.code, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: s.uid}})
}

func answer(r *http.Request, code int, obj any) (*http.Response, error) {
	body, err := json.Marshal(obj)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(string(body))),
	}, err
}

// newFinder returns a Finder, and the ListerWatcher of two selected pods of a namespace.
func newFinder(t *testing.T, s *server) (*cluster.Finder, cache.ListerWatcher) {
	t.Helper()
	cfg := &rest.Config{Host: "http://server.example/below", Transport: s}
	f := cluster.NewFinder(mem.New(), rest.CopyConfig(cfg))
	cfg.Wrap(f.Wrap)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "apps", fields.OneTermEqualSelector("spec.nodeName", "n"))
}

func TestScope(t *testing.T) {
	s := &server{uid: "u", code: http.StatusOK}
	f, lw := newFinder(t, s)
	got, _, err := f.Scope(t.Context(), lw, &corev1.Pod{}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	want := store.Scope{
		Cluster: "kube-system/u", Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod"),
		Namespace: "apps", FieldSelector: "spec.nodeName=n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scope (-want +got):\n%s", diff)
	}
	if s.lists > 0 {
		t.Errorf("%d requests of the ListerWatcher have reached the network", s.lists)
	}
}

func TestScopeOfAnotherClient(t *testing.T) {
	f, _ := newFinder(t, &server{})
	_, lw := newFinder(t, &server{})
	if _, _, err := f.Scope(t.Context(), lw, &corev1.Pod{}, func(error) {}); !errors.Is(err, cluster.ErrNoTransport) {
		t.Errorf("got error %v, want ErrNoTransport", err)
	}
}

func TestVerifier(t *testing.T) {
	s := &server{uid: "u", code: http.StatusOK}
	f, lw := newFinder(t, s)
	scope, client, err := f.Scope(t.Context(), lw, &corev1.Pod{}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	v := cluster.NewVerifier(client, lw, scope.Cluster)
	steps := []struct {
		uid    types.UID
		code   int
		want   string
		judged bool
		failed bool
	}{
		{uid: "u", code: http.StatusOK, judged: true},
		{uid: "other", code: http.StatusOK, want: cluster.Foreign, judged: true},
		{uid: "u", code: http.StatusOK, judged: true},
		{code: http.StatusInternalServerError, failed: true},
		{uid: "u", code: http.StatusOK, judged: true},
	}
	for i, step := range steps {
		s.uid, s.code = step.uid, step.code
		is, judged, err := v.Judge(t.Context(), v.Ask(t.Context()))
		if is != step.want || judged != step.judged || v.Failed() != step.failed || (err != nil) != step.failed {
			t.Errorf("step %d: got %q, %t, failed %t, %v", i, is, judged, v.Failed(), err)
		}
	}
}

// TestVerifierGoesOn is a server that never identifies itself, and so is unknown.
func TestVerifierGoesOn(t *testing.T) {
	s := &server{uid: "u", code: http.StatusOK}
	f, lw := newFinder(t, s)
	_, client, err := f.Scope(t.Context(), lw, &corev1.Pod{}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	s.code = http.StatusInternalServerError
	v := cluster.NewVerifier(client, lw, "kube-system/u")
	ask := func(ctx context.Context) (string, bool) {
		is, judged, _ := v.Judge(ctx, v.Ask(ctx))
		return is, judged
	}
	for i := range 4 {
		if is, judged := ask(t.Context()); judged {
			t.Fatalf("after %d answers the server is %q", i+1, is)
		}
	}
	if is, judged := ask(t.Context()); !judged || is != cluster.Unknown {
		t.Errorf("got %q, %t, want %q", is, judged, cluster.Unknown)
	}
}

func TestComplete(t *testing.T) {
	got, err := cluster.Complete(store.Scope{Cluster: "c", LabelSelector: "b=2,a=1"}, &corev1.Pod{})
	want := store.Scope{
		Cluster: "c", Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod"),
		LabelSelector: "a=1,b=2", Form: store.Typed,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

// TestIdentityOfUser checks that the UID of a ServiceAccount is that of a cluster, and
// the UID of another user is not: several clusters may know it.
func TestIdentityOfUser(t *testing.T) {
	for name, want := range map[string]string{
		"system:serviceaccount:apps:web": "user/7",
		"jane@example.com":               "host/http://server.example/",
	} {
		review := &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: name, UID: "7"},
		}}
		cfg := &rest.Config{Host: "http://server.example", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
				return answer(r, http.StatusCreated, review)
			}
			return answer(r, http.StatusForbidden, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
		})}
		if got, err := cluster.Identity(t.Context(), cfg); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: the identity is %q, %v, want %s", name, got, err, want)
		}
	}
}

// TestIdentityOfProxy checks that what a proxy, or a stub of a server, answers in an
// outage gives the cluster no other name, and that a proxy may let some requests through.
func TestIdentityOfProxy(t *testing.T) {
	html := func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"text/html"}}, Request: r,
			Body: io.NopCloser(strings.NewReader("<html>Access denied</html>")),
		}, nil
	}
	for name, c := range map[string]struct {
		answers func(*http.Request) (*http.Response, error)
		want    string // how the identity begins; "" for none
	}{
		"refuses everything": {answers: html},
		"lets pods through": {answers: func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				return answer(r, http.StatusOK, &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}})
			}
			return html(r)
		}, want: "host/"},
		"has no UID": {answers: func(r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusOK, map[string]string{})
		}, want: "host/"},
	} {
		cfg := &rest.Config{Host: "http://server.example", Transport: roundTripper(c.answers)}
		f := cluster.NewFinder(mem.New(), rest.CopyConfig(cfg))
		cfg.Wrap(f.Wrap)
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		asked := false
		scope, _, err := f.Scope(ctx, cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything()), &corev1.Pod{}, func(error) {
			asked = true
			cancel() // it would ask again
		})
		if c.want == "" && !asked || c.want != "" && (err != nil || !strings.HasPrefix(scope.Cluster, c.want)) {
			t.Errorf("%s: the scope is %v, %v, want a cluster %s", name, scope, err, c.want)
		}
		cancel()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
