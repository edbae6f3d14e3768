package cli_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
)

var update = flag.Bool("update", false, "write the expected output of scripts anew")

// now is ten days after the creation of the objects in the scripts.
var now = time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	program := func() {
		streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
		os.Exit(cli.MainAt(context.Background(), streams, os.Args[1:], now)) //nolint:forbidigo // a process of its own
	}
	testscript.Main(checked{m}, map[string]func(){"informctl": program, "kubectl-informer": program})
}

// checked fails a run that leaves goroutines behind.
type checked struct{ *testing.M }

func (m checked) Run() int {
	// Else processes that tests start ignore SIGHUP under nohup.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	code := m.M.Run()
	signal.Stop(hangups)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
