package informer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ClusterIdentity returns what tells the cluster behind cfg from others, for
// store.Scope.Cluster: the UID of its kube-system namespace; where that may not
// be read, the UID of the ServiceAccount that asks, which is one of the cluster,
// too; where it has none, the host and its CA. The error is that of a server that
// could not be asked.
func ClusterIdentity(ctx context.Context, cfg *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
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
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		if ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return "", fmt.Errorf("identify the cluster: %w", err)
		}
	}
	sum := sha256.Sum256(ca)
	return "host/" + cfg.Host + "/" + hex.EncodeToString(sum[:8]), nil
}

// isRefusal reports whether the server answered that it will not say.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
