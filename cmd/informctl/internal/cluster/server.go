// Package cluster reaches an API server: the kubeconfig that names it, what it serves,
// and the objects of one resource.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/cadigest"
)

// Config returns the client configuration that kubectl's flags and files give.
func Config(kube *genericclioptions.ConfigFlags) (*rest.Config, error) {
	config, err := kube.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if err := namesCluster(kube, config); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.UserAgent = fmt.Sprintf("informctl/%s (%s/%s)", cmdutil.Version(), runtime.GOOS, runtime.GOARCH)
	config.QPS = -1 // mostly watches; the server limits by itself
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}

// AddressOf identifies the address of a server: its host and its CA. It is "" if the CA
// cannot be read.
func AddressOf(config *rest.Config) string {
	ca, err := cadigest.Of(config)
	if err != nil {
		return ""
	}
	return config.Host + " " + ca
}

// namesCluster returns an error if the configuration is only client-go's default, a
// server at localhost:8080, because no file names a cluster, no flag a server, and this
// is no pod.
func namesCluster(kube *genericclioptions.ConfigFlags, config *rest.Config) error {
	loader := kube.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return err
	}
	if len(raw.Clusters) > 0 || *kube.APIServer != "" || os.Getenv("KUBERNETES_MASTER") != "" || config.Host != clientcmd.ClusterDefaults.Server {
		return nil
	}
	files := loader.ConfigAccess().GetLoadingPrecedence()
	verb := "name"
	if len(files) == 1 {
		verb = "names"
	}
	return fmt.Errorf("%s %s no cluster; give --kubeconfig or --server", strings.Join(files, " and "), verb)
}

// NewFlags returns kubectl's flags without those that have no use here: a timeout would
// end every watch, and discovery is not cached on disk.
func NewFlags() *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(true)
	flags.Timeout, flags.CacheDir = nil, nil
	return flags
}

// GivenFlag returns the name of one of NewFlags that the command line has, but none of
// others. It is "" if there is none.
func GivenFlag(cmd *cobra.Command, others ...string) (name string) {
	kubectl := pflag.NewFlagSet("", pflag.ContinueOnError)
	NewFlags().AddFlags(kubectl)
	kubectl.VisitAll(func(f *pflag.Flag) {
		if name == "" && cmd.Flags().Changed(f.Name) && !slices.Contains(others, f.Name) {
			name = f.Name
		}
	})
	return name
}

// Server is an API server with the client that all of its collections share.
type Server struct {
	Config  *rest.Config
	client  *http.Client
	dynamic dynamic.Interface
	asking  singleflight.Group // shares requests for the identity
}

// Identify asks which cluster answers: informer.ClusterIdentity, once for all that ask at
// the same time.
func (srv *Server) Identify(ctx context.Context) (string, error) {
	answer := srv.asking.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return informer.ClusterIdentity(ctx, srv.Config)
	})
	select {
	case a := <-answer:
		identity, _ := a.Val.(string)
		return identity, a.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// NewServer returns the server of a configuration. It makes no request.
func NewServer(config *rest.Config) (*Server, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &Server{Config: config, client: client, dynamic: dyn}, nil
}

// Discovery returns a client that asks the server for its resources. It waits for each
// answer as long as kubectl does.
func (s *Server) Discovery() (*discovery.DiscoveryClient, error) {
	client := *s.client
	client.Timeout = 32 * time.Second
	d, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config, &client)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return d, nil
}

// Mapper asks the server for its resources. It returns what they are found by, by the
// names that kubectl takes, and the answers.
func (s *Server) Mapper(ctx context.Context) (discovery.DiscoveryInterfaceWithContext, meta.RESTMapper, error) {
	d, err := s.Discovery()
	if err != nil {
		return nil, nil, err
	}
	cached := memory.NewMemCacheClient(d)
	ctx = unlogged(ctx)
	answers := discovery.ToDiscoveryInterfaceWithContext(cached)
	groups, err := restmapper.GetAPIGroupResourcesWithContext(ctx, answers)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the server's resources: %w", err)
	}
	return answers, restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), cached, nil), nil
}

// unlogged returns a context for requests of client-go, which logs the errors that it
// returns.
func unlogged(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// Backoff is how long a command waits for a server that cannot be reached.
func Backoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
}

// DescribeUnreached says what to do about an error of the first request to a server.
func DescribeUnreached(err error, host string) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("not logged in to %s: %w; renew the token or certificate of the kubeconfig", host, err)
	case Unreachable(err):
		return fmt.Errorf("server %s cannot be reached: %w", host, err)
	}
	return err
}

// Version asks the server for its version, "" if it does not say.
func (s *Server) Version(ctx context.Context) string {
	d, err := s.Discovery()
	if err != nil {
		return ""
	}
	info, err := d.ServerVersionWithContext(unlogged(ctx))
	if err != nil {
		return ""
	}
	return info.GitVersion
}

// LacksNamespace reports whether the server says that it has no such namespace.
func (s *Server) LacksNamespace(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := s.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Passes reports whether the first requests to a server may be answered later: it was not
// reached, has failed, or could not name the resources of a group.
func Passes(err error) bool {
	var status apierrors.APIStatus
	var stale discovery.StaleGroupVersionError
	return Unreachable(err) || errors.As(err, &stale) ||
		errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// Unreachable reports whether the server did not answer, or asked the client to retry.
func Unreachable(err error) bool {
	var network net.Error
	var operation *net.OpError
	return errors.As(err, &network) || errors.As(err, &operation) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}
