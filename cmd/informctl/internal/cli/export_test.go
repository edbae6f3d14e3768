package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Commands are all commands, for what their help says.
func Commands() []*cobra.Command {
	root := newRootCommand(env{})
	return slices.Concat(root.Commands(), []*cobra.Command{root}) // a copy: the root adds to its own
}

// OpenError says in a user's words why a file does not open.
var OpenError = openError

// MainAt is Main at a time that does not pass.
func MainAt(ctx context.Context, streams genericiooptions.IOStreams, args []string, now time.Time) int {
	return execute(ctx, env{streams: streams, now: func() time.Time { return now }}, args)
}
