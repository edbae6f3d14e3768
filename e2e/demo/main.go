// Command demo shows on a real API server what informctl saves at a restart.
//
// It must be started in the module that requires the API server and etcd:
//
//	go run ./demo
//
// It starts a control plane in a temporary directory and loads it, lets
// informctl follow it into an empty file and kills it, changes some pods and
// starts informctl again. Then it compares the two starts, and each object of the
// file with the server's. -pods sets how many pods there are.
//
// Nothing is left behind, also after an error or an interrupt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// With a reader that goes away the output is an error like others, so that all is stopped.
	signal.Ignore(syscall.SIGPIPE)
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	var opts options
	flags.IntVar(&opts.Pods, "pods", 5000, "number of pods to begin with")
	err := flags.Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(1) // flags has told
	}
	if err := run(ctx, os.Stdout, opts); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", oneLine(err))
		os.Exit(1)
	}
}

// oneLine puts what a program printed over several lines into one.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
