// Command controlplane runs a kube-apiserver with an etcd until it is interrupted.
//
// It must be started in the module that requires the two programs:
//
//	go run ./controlplane/cmd/controlplane --dir /tmp/cp --pods 1000
//
// When the server is ready and loaded, the command prints one line to standard output,
// for the shell that uses it: export KUBECONFIG=PATH.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/informctl/informctl/e2e/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "directory of data, certificates and logs")
	buildOnly := flags.Bool("build-only", false, "build the programs and end")
	var load controlplane.LoadOptions
	flags.IntVar(&load.Pods, "pods", 0, "number of pods to create")
	flags.IntVar(&load.Widgets, "widgets", 0, "number of custom resources to create")
	flags.Int64Var(&load.Seed, "seed", 1, "seed of the objects' content")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *buildOnly {
		_, err := controlplane.Build(ctx, stderr)
		return err
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: *dir, Log: stderr})
	if err != nil {
		return err
	}
	if load.Pods+load.Widgets > 0 {
		if err := controlplane.Load(ctx, cp.Config(), load); err != nil {
			return errors.Join(err, cp.Stop())
		}
	}
	fmt.Fprintln(stdout, "export KUBECONFIG="+cp.Kubeconfig())
	fmt.Fprintln(stderr, "controlplane: ready; Ctrl-C ends it")
	<-ctx.Done()
	return cp.Stop()
}
