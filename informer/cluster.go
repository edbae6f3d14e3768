package informer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
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
	ca, err := caDigest(cfg)
	if err != nil {
		return "", err
	}
	return "host/" + cfg.Host + "/" + ca, nil
}

// askPatience bounds one question for the identity: a server that accepts and does
// not answer must not keep from serving what is stored.
const askPatience = 5 * time.Second

// askIdentity identifies the cluster and has the backend remember it.
func (f *Factory) askIdentity(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	cluster, err := ClusterIdentity(ctx, f.cfg)
	if err != nil {
		return "", err
	}
	if backend, ok := f.backend.(store.Identities); ok {
		if err := backend.SetIdentity(askedHow(f.cfg), cluster); err != nil {
			klog.FromContext(ctx).Error(err, "The identity of the cluster could not be stored")
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.verified {
		f.cluster, f.verified = cluster, true
	}
	return cluster, nil
}

// identity asks the server once for all informers. While it is down, that
// identity serves which the backend remembers, and each informer has it verified
// before it resumes; where there is none, the server is asked again and again.
func (f *Factory) identity(ctx context.Context) (string, error) {
	backoff := wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
	for {
		f.mu.Lock()
		cluster := f.cluster
		f.mu.Unlock()
		if cluster != "" {
			return cluster, nil
		}
		cluster, err := f.askIdentity(ctx)
		if err == nil {
			return cluster, nil
		}
		if cluster := f.remembered(); cluster != "" && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Serving what is stored of the cluster that was here last", "cluster", cluster, "because", err.Error())
			f.mu.Lock()
			f.cluster = cluster
			f.mu.Unlock()
			return cluster, nil
		}
		klog.FromContext(ctx).Info("Waiting for the API server", "because", err.Error())
		t := time.NewTimer(backoff.Step())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return "", ctx.Err()
		}
	}
}

func (f *Factory) remembered() string {
	backend, ok := f.backend.(store.Identities)
	if !ok {
		return ""
	}
	cluster, err := backend.Identity(askedHow(f.cfg))
	if err != nil {
		return ""
	}
	return cluster
}

// verify asks the server, if nobody has, whether it is the cluster of an
// informer's scope. If it is not, the informer lists, and never stores a resource
// version: the scope is that of another cluster.
func (f *Factory) verify(ctx context.Context, inf *Informer) (relist string, err error) {
	f.mu.Lock()
	cluster, verified := f.cluster, f.verified
	f.mu.Unlock()
	if !verified {
		if cluster, err = f.askIdentity(ctx); err != nil {
			return "", err
		}
	}
	if cluster == inf.Scope().Cluster {
		return "", nil
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.foreign = "the server is another cluster than the one whose objects are stored"
	return inf.foreign, nil
}

// askedHow identifies how a server is asked, for store.Identities: another
// identity may be found with other credentials.
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
		return "" // nothing is remembered under it: the server cannot be asked either
	}
	return strings.Join([]string{cfg.Host, ca, credentials}, " ")
}

// caDigest stands for the certificates that vouch for the server.
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

// isRefusal reports whether the server answered that it will not say.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
