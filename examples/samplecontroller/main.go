// Command samplecontroller is a controller whose informers survive its restart. It keeps
// a Deployment for each Greeter. README.md describes what to look at.
//
// # Usage
//
//	samplecontroller --kubeconfig ~/.kube/config --db samplecontroller.db
//
// Its exit code is 0 after SIGTERM or an interrupt, 1 after an error and 64 after wrong
// usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/examples/samplecontroller/v1alpha1"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

// The exit codes. 2 is not used, because the Go runtime uses it for a panic.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 64
)

func main() { os.Exit(execute(os.Args[1:])) }

// execute returns the exit code of the process.
func execute(args []string) int {
	opts, err := parse(args)
	code := exitUsage
	if err == nil {
		err, code = run(context.Background(), opts), exitError
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case code == exitUsage:
		err = fmt.Errorf("%w; see --help", err)
	}
	// Errors of other libraries may contain line breaks.
	line := strings.Join(strings.Fields(err.Error()), " ")
	_, _ = fmt.Fprintln(os.Stderr, "samplecontroller:", line)
	return code
}

// options are the flags.
type options struct {
	kubeconfig string
	db         string
	workers    int
}

// parse returns flag.ErrHelp if help was requested; then it has printed the help.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("samplecontroller", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the `file` that names the cluster; default $KUBECONFIG, ~/.kube/config, or the cluster it runs in")
	flags.StringVar(&o.db, "db", "samplecontroller.db", "the `file` that holds the informers' objects")
	flags.IntVar(&o.workers, "workers", 2, "the `number` of Greeters that are worked on at a time")
	var logging flag.FlagSet
	klog.InitFlags(&logging)
	flags.Var(logging.Lookup("v").Value, "v", "the `level` of logs")
	flags.SetOutput(io.Discard) // the caller prints the error
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Println("Usage: samplecontroller [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unknown argument %q", flags.Arg(0))
	case o.db == "":
		err = errors.New("--db is empty")
	case o.workers < 1:
		err = fmt.Errorf("--workers is %d, the least is 1", o.workers)
	}
	return o, err
}

// run blocks until a signal arrives and the informers and the file are closed.
func run(ctx context.Context, o options) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	cfg, err := clusterConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	// These two calls make informers that outlive the process. The
	// factory is created before the clients, because they must be created from the cfg
	// that it wraps. The file is closed after the informers have ended.
	db, err := bolt.Open(o.db, bolt.Options{Logger: klog.FromContext(ctx)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	greeters, err := v1alpha1.NewClient(cfg)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	// What is left to do is in the file, too. Version is that of sync: with another one,
	// sync is called for every Greeter once.
	consumer, err := durable.Open(db, "greeters", durable.Options{Version: "1"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	c, err := newController(ctx, kube, greeters, factory.NewInformer, consumer)
	if err != nil {
		return err
	}
	c.run(ctx, o.workers)
	return nil
}

func clusterConfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "samplecontroller"
	cfg.QPS = -1 // the server has its own rate limit
	return cfg, nil
}
