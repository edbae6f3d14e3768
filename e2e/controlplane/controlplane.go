package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/internal/testport"
)

const (
	// pollInterval is the time between two checks whether a server is ready.
	pollInterval = 50 * time.Millisecond
	// stopTimeout is the time that etcd has to end by itself.
	stopTimeout = 10 * time.Second
)

// Options configure a control plane. All fields except Dir are optional.
type Options struct {
	// Dir contains data, certificates and logs. It is created if it does not exist.
	// Existing data is used again.
	Dir string
	// NoWatchCache makes the API server read everything from etcd.
	NoWatchCache bool
	// APIServerArgs and EtcdArgs are appended to the arguments of the programs. If a flag
	// is repeated, its last value counts.
	APIServerArgs []string
	EtcdArgs      []string
	// Log receives one line per step. Nil discards the lines. The output of the programs
	// goes to etcd.log and kube-apiserver.log in Dir.
	Log io.Writer
}

// ControlPlane is a running etcd with a kube-apiserver. The package comment says which
// methods are safe for concurrent use.
type ControlPlane struct {
	opts        Options
	binaries    Binaries
	credentials credentials
	ports       ports
	etcd        *process
	apiserver   *process
}

// ports are the ports of the servers. They stay the same over restarts.
type ports struct{ etcdClient, etcdPeer, apiserver int }

// Start builds the programs if they are not up to date, starts them and returns when the
// API server is ready. If ctx ends before that, Start stops what it has started. Later
// ctx has no effect: the caller must call Stop.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if opts.Dir == "" {
		return nil, errors.New("controlplane: Options.Dir is empty")
	}
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	binaries, err := Build(ctx, opts.Log)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the control plane's directory: %w", err)
	}
	c := &ControlPlane{opts: opts, binaries: binaries}
	if c.credentials, err = writeCredentials(opts.Dir); err != nil {
		return nil, err
	}
	if c.ports, err = freePorts(); err != nil {
		return nil, err
	}
	if err := c.writeKubeconfig(); err != nil {
		return nil, err
	}
	if err := c.startBoth(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Version returns the Kubernetes version of the API server.
func (c *ControlPlane) Version() string { return c.binaries.Version }

// APIServerPID returns the process ID of the API server, which must be running. The ID
// changes with each start.
func (c *ControlPlane) APIServerPID() int { return c.apiserver.process.Pid }

func (c *ControlPlane) startBoth(ctx context.Context) error {
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// StartAPIServer starts the API server on its port and returns when it is ready. It does
// nothing if the server is running.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	if c.apiserver != nil {
		return nil
	}
	client, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.CloseIdleConnections()
	c.apiserver, err = startProcess(c.binaries.APIServer, c.apiserverArgs(), c.path("kube-apiserver.log"))
	if err != nil {
		return err
	}
	return c.waitReady(ctx, c.apiserver, client, c.url()+"/readyz")
}

// StopAPIServer kills the API server, which cuts all watches. etcd continues to run.
// StopAPIServer does nothing if the server is not running.
func (c *ControlPlane) StopAPIServer(ctx context.Context) error {
	// A graceful shutdown would wait for the clients' watches.
	c.apiserver.stop(ctx, syscall.SIGKILL)
	c.apiserver = nil
	return nil
}

// RestartAPIServer stops and starts the API server. Port and certificates stay the same,
// but the watch cache is empty.
func (c *ControlPlane) RestartAPIServer(ctx context.Context) error {
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// Stop ends both programs and waits for them. It does not change Dir. A second call does
// nothing.
func (c *ControlPlane) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := c.StopAPIServer(ctx)
	c.stopEtcd(ctx)
	return err
}

func (c *ControlPlane) startEtcd(ctx context.Context) (err error) {
	c.etcd, err = startProcess(c.binaries.Etcd, c.etcdArgs(), c.path("etcd.log"))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	return c.waitReady(ctx, c.etcd, client, c.etcdURL()+"/readyz")
}

func (c *ControlPlane) stopEtcd(ctx context.Context) {
	c.etcd.stop(ctx, syscall.SIGTERM)
	c.etcd = nil
}

// waitReady polls url until it answers with 200, p ends or ctx ends.
func (c *ControlPlane) waitReady(ctx context.Context, p *process, client *http.Client, url string) error {
	fmt.Fprintf(c.opts.Log, "waiting for %s\n", p.name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", p.name, err)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.done:
			return p.exited()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s, see %s: %w", p.name, p.logPath, context.Cause(ctx))
		}
	}
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.opts.Dir, name) }

func (c *ControlPlane) url() string { return "https://" + address(c.ports.apiserver) }

func (c *ControlPlane) etcdURL() string { return "http://" + address(c.ports.etcdClient) }

func (c *ControlPlane) peerURL() string { return "http://" + address(c.ports.etcdPeer) }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePorts finds three ports. If another process takes one of them before it is used,
// Start fails.
func freePorts() (ports, error) {
	var free [3]int
	for k := range free {
		l, err := testport.Listen()
		if err != nil {
			return ports{}, fmt.Errorf("find a free port: %w", err)
		}
		// All three stay open until the last one is known, so that they differ.
		defer l.Close()
		free[k] = l.Addr().(*net.TCPAddr).Port
	}
	return ports{etcdClient: free[0], etcdPeer: free[1], apiserver: free[2]}, nil
}
