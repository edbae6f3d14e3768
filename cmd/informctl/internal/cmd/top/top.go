// Package top is the command that shows how the process is that keeps a file, again and
// again.
package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	screen "github.com/informctl/informctl/cmd/informctl/internal/top"
	"github.com/informctl/informctl/informer"
)

// options are the options of top.
type options struct {
	env      cmdutil.Env
	database source.FileFlags
	interval time.Duration
}

// shortestInterval is the shortest time between two queries.
const shortestInterval = 100 * time.Millisecond

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e, interval: time.Second}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show how the process is that keeps a file, again and again",
		Long: cmdutil.Describe(`Show how the process is that keeps a file, again and again, in a terminal: what
status says, a row for each scope, with its events a second. The process is asked
through its socket, FILE.sock. Where it goes away the last picture stays until one
answers again.

Keys: q quits, ? names the others and says what the columns are.`),
		Example: `  informctl top --db informers.db
  informctl top -d 5`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			err := run(ctx, o)
			if ctx.Err() != nil {
				return nil
			}
			return err
		},
	}
	o.database.AddPath(o.env, cmd)
	cmd.Flags().FuncP("interval", "d", "How long to wait between two looks, in seconds or such as 500ms; 1 by default.", func(s string) error {
		var err error
		o.interval, err = parseInterval(s)
		return err
	})
	return cmd
}

func parseInterval(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if seconds, notSeconds := strconv.ParseFloat(s, 64); notSeconds == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d < shortestInterval || d > time.Hour {
		return 0, fmt.Errorf("want seconds such as 2, or a time such as 500ms, from %s to 1h", shortestInterval)
	}
	return d, nil
}

func run(ctx context.Context, o *options) error {
	in, out := terminalFile(o.env.Streams.In), terminalFile(o.env.Streams.Out)
	if in == nil || out == nil {
		return errors.New("top needs a terminal that can move its cursor; status says the same once")
	}
	err := screen.Run(ctx, screen.Options{
		File: o.database.Path, Interval: o.interval, Now: o.env.Now, In: in, Out: out,
		Ask: func(ctx context.Context) ([]informer.Status, error) { return source.AskStatus(ctx, o.database.Path) },
	})
	if errors.Is(err, source.ErrNobody) {
		return source.Unanswered(o.database.Path, err)
	}
	return err
}

// terminalFile returns the stream if it is a terminal that can move its cursor, otherwise
// nil.
func terminalFile(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}
