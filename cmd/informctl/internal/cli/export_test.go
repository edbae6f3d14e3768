package cli

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmd/run"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/durable"
)

// Commands returns all commands, to test their help.
func Commands() []*cobra.Command {
	root := newRootCommand(cmdutil.Env{})
	// This is a copy, because the root appends to its own list.
	return slices.Concat(root.Commands(), []*cobra.Command{root})
}

// OpenError describes to a user why a file cannot be opened.
var OpenError = source.OpenError

// MainAt is Main with a fixed time.
func MainAt(ctx context.Context, streams genericiooptions.IOStreams, args []string, now time.Time) int {
	return MainWith(ctx, streams, args, func() time.Time { return now })
}

// MainWith is Main with a clock.
func MainWith(ctx context.Context, streams genericiooptions.IOStreams, args []string, now func() time.Time) int {
	return execute(ctx, cmdutil.Env{Streams: streams, Now: now}, args)
}

// SetRediscoverEvery changes how often run --all asks for the server's resources.
func SetRediscoverEvery(d time.Duration) (restore func()) {
	was := run.RediscoverEvery
	run.RediscoverEvery = d
	return func() { run.RediscoverEvery = was }
}

// PrintConsumers prints consumers as the command does.
func PrintConsumers(w io.Writer, format string, found []durable.Status) error {
	return printer.Consumers(w, printer.TableFlags{Format: format, NoHeaders: true}, found)
}
