// Command demo shows on a real API server what informctl saves at a restart.
//
// It must be started in the module that requires the API server and etcd:
//
//	go run ./demo
//
// It starts a control plane in a temporary directory and loads objects into it. It runs
// informctl with an empty file, kills it, changes some pods and starts informctl again.
// Then it compares the two starts, and each object in the file with the server's. At the
// end it stops the API server, and shows what kubectl reads of the file. -pods sets the
// number of pods.
//
// With -postgres it starts a PostgreSQL, too, which must be installed. Two publishers
// bring the objects there, one of them is killed, a file follows the database, and SQL
// asks about what is and what was.
//
// The demo removes everything that it created, also after an error or an interrupt.
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
	// Without SIGPIPE a reader that goes away causes a write error, after which the demo
	// stops its processes.
	signal.Ignore(syscall.SIGPIPE)
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	var opts options
	flags.IntVar(&opts.Pods, "pods", 5000, "number of pods to begin with")
	postgres := flags.Bool("postgres", false, "show publishers, a follower and SQL in PostgreSQL")
	err := flags.Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(1) // flags has printed the error
	}
	play := run
	if *postgres {
		play = runPostgres
	}
	if err := play(ctx, os.Stdout, opts); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", oneLine(err))
		os.Exit(1)
	}
}

// oneLine joins the lines of an error message into one.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
