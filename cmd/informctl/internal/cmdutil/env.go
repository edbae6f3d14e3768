// Package cmdutil has what the commands share: their environment, errors and exit codes,
// arguments, moments, signals, and the progress on a terminal.
//
// # Concurrency
//
// A Terminal and a Meter may be used by several goroutines; the rest is used by one.
package cmdutil

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Env is the environment of a command.
type Env struct {
	Streams genericiooptions.IOStreams
	Now     func() time.Time
	Plugin  bool // called by kubectl
}

// Note prints a message that is neither data nor an error.
func (e Env) Note(format string, args ...any) {
	program, text := "informctl", fmt.Sprintf(format, args...)
	if e.Plugin {
		program, text = PluginCalled, AsPlugin(text)
	}
	_, _ = fmt.Fprintf(e.Streams.ErrOut, "%s: %s\n", program, text)
}

// Incomplete ends a command that has printed what it could. It prints each error.
func (e Env) Incomplete(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	for _, err := range errs {
		e.Note("%s", OneLine(WithHint(err)))
	}
	return &StatusError{Code: ExitError}
}

// Output calls fn with a buffered writer to standard output.
func (e Env) Output(fn func(io.Writer) error) error {
	w := bufio.NewWriterSize(StandardOutput{e.Streams.Out}, 64<<10)
	if err := fn(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// StandardOutput is standard output. It distinguishes a reader that has gone away, which
// is no error of the command, from other broken connections.
type StandardOutput struct{ io.Writer }

var errNoReader = errors.New("nobody reads the output")

// Write implements io.Writer.
func (o StandardOutput) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		err = errNoReader
	}
	return n, err
}
