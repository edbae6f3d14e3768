package informer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

const (
	// askPatience bounds one question for the identity: a server that accepts and does
	// not answer must not keep from serving what is stored.
	askPatience = 5 * time.Second
	// identityTries is how often in a row a server may answer that question with an
	// error, before what waits for it goes on without: a broken namespaces API must not
	// keep everything from starting.
	identityTries = 5
)

// askIdentity identifies the cluster and has the backend remember it. Informers that ask
// at the same time share one answer.
func (f *Factory) askIdentity(ctx context.Context) (string, error) {
	answer := f.asking.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askPatience)
		defer cancel()
		return ClusterIdentity(ctx, f.cfg)
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
	f.mu.Lock()
	known := f.cluster == cluster && f.verified
	if !f.verified {
		f.cluster, f.verified = cluster, true
	}
	f.mu.Unlock()
	if backend, ok := f.backend.(store.Identities); ok && !known {
		if err := backend.SetIdentity(askedHow(f.cfg), cluster); err != nil {
			klog.FromContext(ctx).Error(err, "The identity of the cluster could not be stored")
		}
	}
	return cluster, nil
}

// isAnswer reports whether the server has answered, if not what it was asked.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// identity asks the server once for all informers. While it is down, that
// identity serves which the backend remembers, and each informer has it verified
// before it resumes; where there is none, the server is asked again and again. The
// error is that of a server that answers, but not whose cluster it is.
func (f *Factory) identity(ctx context.Context) (string, error) {
	backoff := wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
	for answered := 0; ; {
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
		if answered++; !isAnswer(err) {
			answered = 0
		}
		if answered >= identityTries {
			return "", err
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

const (
	foreignCluster = "the server is another cluster than the one whose objects are stored"
	unknownCluster = "the server does not say which cluster it is"
	homeAgain      = "the server is the cluster whose objects are stored, again"
)

// verify implements reflector.Options.Verify: it asks the server whether it is the
// cluster of the informer's scope. If it is not, or does not say so before it ever has,
// the informer lists, and stores no resource version until it is that cluster: the scope
// is that of another one. Only an informer of a Factory that is persisted does so.
func (inf *Informer) verify(ctx context.Context) (relist string, err error) {
	cluster, err := inf.factory.askIdentity(ctx)
	inf.mu.Lock()
	defer inf.mu.Unlock()
	is := ""
	switch {
	case err == nil:
		inf.unanswered, inf.verified = 0, true
		if cluster != inf.scope.Cluster {
			is = foreignCluster
		}
	case ctx.Err() != nil || !isAnswer(err):
		return "", err
	default:
		if inf.unanswered++; inf.unanswered < identityTries {
			return "", err
		}
		inf.unanswered = 0
		klog.FromContext(ctx).Error(err, "Going on without knowing which cluster the server is")
		if inf.verified {
			return "", nil // it was the right one when it answered last
		}
		is = unknownCluster
	}
	was := inf.foreign
	inf.foreign = is
	switch is {
	case was:
		return "", nil
	case "":
		return homeAgain, nil
	}
	return is, nil
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
