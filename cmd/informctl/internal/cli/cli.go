// Package cli is the command line of informctl: its commands, their output and their exit
// codes.
//
// # Streams
//
// Standard output contains only data. Standard error contains everything else: notes,
// progress, logs and the single line of an error. If the reader of standard output goes
// away early, the command ends without an error.
//
// # Concurrency
//
// Main is called once per process.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmd/audit"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/compact"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/completion"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/consumers"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/diff"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/dump"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/exportimport"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/history"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/indexes"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/info"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/postgres"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/publish"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/query"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/rekey"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/restore"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/run"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/serve"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/snapshot"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/status"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/top"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/verify"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/version"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/watch"
	"github.com/informctl/informctl/cmd/informctl/internal/cmd/wipe"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// Main runs one command line and returns the exit code of the process: 0, 1 for an error,
// 3 for a damaged file, or 64 for wrong usage. It blocks until the command has ended.
func Main(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	// A write to a pipe without a reader then returns an error, and the command can close
	// the file before the process ends.
	signal.Ignore(syscall.SIGPIPE)
	return execute(ctx, cmdutil.Env{Streams: streams, Now: time.Now}, args)
}

func execute(ctx context.Context, e cmdutil.Env, args []string) int {
	e.Plugin = filepath.Base(os.Args[0]) == cmdutil.PluginName
	root := newRootCommand(e)
	if e.Plugin {
		describeAsPlugin(root)
	}
	root.SetArgs(args)
	root.SetIn(e.Streams.In)
	help := &helpOutput{Writer: cmdutil.StandardOutput{Writer: e.Streams.Out}}
	root.SetOut(help)
	root.SetErr(e.Streams.ErrOut)
	err := root.ExecuteContext(ctx)
	if err == nil && help.err != nil {
		err = fmt.Errorf("write output: %w", help.err)
	}
	code := cmdutil.ExitCode(err)
	if status := (*cmdutil.StatusError)(nil); errors.As(err, &status) && status.Err == nil {
		return code
	}
	if code != cmdutil.ExitOK {
		e.Note("%s", cmdutil.OneLine(cmdutil.WithHint(err)))
		var pointed *cmdutil.PointedError
		if errors.As(err, &pointed) {
			_, _ = fmt.Fprintln(e.Streams.ErrOut, pointed.Point())
		}
		var usage *cmdutil.UsageError
		if errors.As(err, &usage) {
			_, _ = fmt.Fprintf(e.Streams.ErrOut, "See '%s --help'.\n", usage.Command)
		}
	}
	return code
}

// helpOutput is where cobra writes help and completions. It keeps the first error, which
// cobra ignores.
type helpOutput struct {
	io.Writer
	err error
}

func (o *helpOutput) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

func newRootCommand(e cmdutil.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "informctl",
		Short: "Keep Kubernetes objects in a file and read them from it",
		Long:  cmdutil.Describe("Keep Kubernetes objects in a file and read them from it."),
		Example: `  informctl run pods configmaps --db informers.db
  informctl query pods --index namespace=default --db informers.db`,
		SuggestionsMinimumDistance: 2,

		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, args[0])
			}
			return cmdutil.Usagef(cmd, "no command given")
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var value *pflag.InvalidValueError
		var number *strconv.NumError // its text names Go's functions
		if errors.As(err, &value) && errors.As(err, &number) {
			return cmdutil.Usagef(cmd, "--%s: %q is no %s", value.GetFlag().Name, value.GetValue(), value.GetFlag().Value.Type())
		}
		return cmdutil.Usagef(cmd, "%w", err)
	})
	root.AddCommand(
		run.NewCommand(e),
		serve.NewCommand(e),
		serve.NewKubeconfigCommand(e),
		publish.NewCommand(e),
		postgres.NewCommand(e),
		dump.NewCommand(e),
		query.NewCommand(e),
		watch.NewCommand(e),
		consumers.NewCommand(e),
		history.NewCommand(e),
		restore.NewCommand(e),
		info.NewCommand(e),
		status.NewCommand(e),
		top.NewCommand(e),
		indexes.NewCommand(e),
		verify.NewCommand(e),
		exportimport.NewExportCommand(e),
		exportimport.NewImportCommand(e),
		diff.NewCommand(e),
		snapshot.NewCommand(e),
		compact.NewCommand(e),
		rekey.NewCommand(e),
		audit.NewCommand(e),
		wipe.NewCommand(e),
		completion.NewCommand(e),
		version.NewCommand(e),
	)
	root.SetHelpCommand(newHelpCommand())
	return root
}

// unknown returns the error for a command that there is not, with those that are close.
func unknown(cmd *cobra.Command, name string) error {
	if names := cmd.Root().SuggestionsFor(name); len(names) > 0 {
		return cmdutil.Usagef(cmd, "unknown command %q; did you mean %s?", name, strings.Join(names, " or "))
	}
	return cmdutil.Usagef(cmd, "unknown command %q", name)
}

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknown(cmd, args[len(args)-1])
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// describeAsPlugin rewrites help, usage and examples to what a user of kubectl types.
func describeAsPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: cmdutil.PluginCalled}
	rewrite(root)
}

func rewrite(cmd *cobra.Command) {
	cmd.Short, cmd.Long, cmd.Example = cmdutil.AsPlugin(cmd.Short), cmdutil.AsPlugin(cmd.Long), cmdutil.AsPlugin(cmd.Example)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = cmdutil.AsPlugin(f.Usage) })
	for _, sub := range cmd.Commands() {
		rewrite(sub)
	}
}
