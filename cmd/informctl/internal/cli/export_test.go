package cli

import (
	"context"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// MainAt is Main at a time that does not pass.
func MainAt(ctx context.Context, streams genericiooptions.IOStreams, args []string, now time.Time) int {
	return execute(ctx, env{streams: streams, now: func() time.Time { return now }}, args)
}
