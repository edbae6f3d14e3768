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
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Main runs one command line and returns the exit code of the process: 0, 1 for an error,
// 3 for a damaged file, or 64 for wrong usage. It blocks until the command has ended.
func Main(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	// A write to a pipe without a reader then returns an error, and the command can close
	// the file before the process ends.
	signal.Ignore(syscall.SIGPIPE)
	return execute(ctx, env{streams: streams, now: time.Now}, args)
}

// env is the environment of a command.
type env struct {
	streams genericiooptions.IOStreams
	now     func() time.Time
	plugin  bool // called by kubectl
}

// note prints a message that is neither data nor an error.
func (e env) note(format string, args ...any) {
	program, text := "informctl", fmt.Sprintf(format, args...)
	if e.plugin {
		program, text = pluginCalled, asPlugin(text)
	}
	_, _ = fmt.Fprintf(e.streams.ErrOut, "%s: %s\n", program, text)
}

// incomplete ends a command that has printed what it could. It prints each error.
func (e env) incomplete(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	for _, err := range errs {
		e.note("%s", oneLine(withHint(err)))
	}
	return &statusError{code: exitError}
}

// output calls fn with a buffered writer to standard output.
func (e env) output(fn func(io.Writer) error) error {
	w := bufio.NewWriterSize(standardOutput{e.streams.Out}, 64<<10)
	if err := fn(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// standardOutput is standard output. It distinguishes a reader that has gone away, which is no
// error of the command, from other broken connections.
type standardOutput struct{ io.Writer }

var errNoReader = errors.New("nobody reads the output")

// Write implements io.Writer.
func (o standardOutput) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		err = errNoReader
	}
	return n, err
}

func execute(ctx context.Context, e env, args []string) int {
	e.plugin = filepath.Base(os.Args[0]) == pluginName
	root := newRootCommand(e)
	if e.plugin {
		describeAsPlugin(root)
	}
	root.SetArgs(args)
	root.SetIn(e.streams.In)
	root.SetOut(e.streams.Out)
	root.SetErr(e.streams.ErrOut)
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	if status := (*statusError)(nil); errors.As(err, &status) && status.err == nil {
		return code
	}
	if code != exitOK {
		e.note("%s", oneLine(withHint(err)))
		var pointed *pointedError
		if errors.As(err, &pointed) {
			_, _ = fmt.Fprintln(e.streams.ErrOut, pointed.point())
		}
		var usage *usageError
		if errors.As(err, &usage) {
			_, _ = fmt.Fprintf(e.streams.ErrOut, "See '%s --help'.\n", usage.command)
		}
	}
	return code
}

func newRootCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:   "informctl",
		Short: "Keep Kubernetes objects in a file and read them from it",
		Long:  describe("Keep Kubernetes objects in a file and read them from it."),
		Example: `  informctl run pods configmaps --db informers.db
  informctl query pods --index namespace=default --db informers.db`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "unknown command %q", args[0])
			}
			return usagef(cmd, "no command given")
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var value *pflag.InvalidValueError
		var number *strconv.NumError // its text names Go's functions
		if errors.As(err, &value) && errors.As(err, &number) {
			return usagef(cmd, "--%s: %q is no %s", value.GetFlag().Name, value.GetValue(), value.GetFlag().Value.Type())
		}
		return usagef(cmd, "%w", err)
	})
	root.AddCommand(
		newRunCommand(e),
		newDumpCommand(e),
		newQueryCommand(e),
		newWatchCommand(e),
		newConsumersCommand(e),
		newHistoryCommand(e),
		newInfoCommand(e),
		newStatusCommand(e),
		newTopCommand(e),
		newIndexesCommand(e),
		newVerifyCommand(e),
		newExportCommand(e),
		newImportCommand(e),
		newDiffCommand(e),
		newSnapshotCommand(e),
		newCompactCommand(e),
		newRekeyCommand(e),
		newAuditCommand(e),
		newWipeCommand(e),
		newCompletionCommand(e),
		newVersionCommand(e),
	)
	root.SetHelpCommand(newHelpCommand())
	return root
}

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef(cmd, "unknown command %q", args[len(args)-1])
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// describe appends the exit codes to the help of a command.
func describe(text string) string {
	return text + `

Exit codes: 0 done, 1 error, 3 the file is damaged, 64 wrong usage.`
}
