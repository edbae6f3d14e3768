package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/internal/cadigest"
)

// Identity returns an identity that distinguishes the cluster behind cfg from others, for
// store.Scope.Cluster. It is the UID of the kube-system namespace; if that may not be
// read, the UID of the requesting ServiceAccount, which also belongs to one cluster; for
// any other user, whose UID several clusters may know, the host and its CA. An error
// means that the server could not be asked, or that no API server has answered.
func Identity(ctx context.Context, cfg *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return identify(ctx, client, cfg, isRefusal)
}

// serviceAccounts begins the user name of every ServiceAccount, see
// k8s.io/apiserver/pkg/authentication/serviceaccount.
const serviceAccounts = "system:serviceaccount:"

// identify implements Identity with a client. isRefusal reports whether the server
// has refused to answer, so that another way is tried.
func identify(ctx context.Context, client kubernetes.Interface, cfg *rest.Config, isRefusal func(error) bool) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err == nil && ns.UID != "" {
		return "kube-system/" + string(ns.UID), nil
	}
	// What has no UID has not come from a cluster's own store.
	if err != nil && !isRefusal(err) {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && self.Status.UserInfo.UID != "" && strings.HasPrefix(self.Status.UserInfo.Username, serviceAccounts) {
		return "user/" + self.Status.UserInfo.UID, nil
	}
	if err != nil && !isRefusal(err) {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	ca, err := cadigest.Of(cfg)
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return "host/" + cfg.Host + "/" + ca, nil
}

// ways are those by which a cluster is identified, from weak to strong.
var ways = []string{"", "host", "user", "kube-system"}

// areOfTwoWays reports whether two identities, which are not the program's own names, do
// not say whether they are of one cluster.
func areOfTwoWays(a, b string) bool {
	a, b = wayOf(a), wayOf(b)
	return a != b && slices.Contains(ways, a) && slices.Contains(ways, b)
}

// wayOf returns how a cluster was identified.
func wayOf(cluster string) string {
	way, _, _ := strings.Cut(cluster, "/")
	return way
}

// isServed reports whether an error is the server's answer to this request, and not to
// every request, as one of an API server whose etcd is away, or of a proxy without an API
// server.
func isServed(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && isAnswer(err) && !isNoAPI(err) && !isOfProxy(err)
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

// isRefusal reports whether the server has refused to answer.
func isRefusal(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)) && !isNoAPI(err)
}

// isOfProxy reports whether an error is a refusal in a text, as of a proxy, which may
// refuse every request.
func isOfProxy(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	// client-go calls all that is no text unknown.
	return ok && isRefusal(err) && cause.Message != "unknown"
}

// isNoAPI reports whether an error is a 404 without a Status, as of a proxy without an
// API server behind it, for which no path exists.
func isNoAPI(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
