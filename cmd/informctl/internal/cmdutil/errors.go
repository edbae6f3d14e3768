package cmdutil

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// The exit codes. 2 is not used: the Go runtime exits with it after a panic.
const (
	ExitOK     = 0
	ExitError  = 1
	exitDamage = 3
	exitUsage  = 64

	ExitDiffers = 1 // of diff
	exitTrouble = 4 // of diff, where ExitError means a difference
)

// StatusError ends a command with its own exit code.
type StatusError struct {
	Code int
	Err  error // nil: nothing to print
}

func (e *StatusError) Error() string { return e.Err.Error() }
func (e *StatusError) Unwrap() error { return e.Err }

// UsageError is an error in the command line.
type UsageError struct {
	Command string // the command whose help explains the usage
	err     error
}

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// Usagef returns an error in the command line of a command.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{Command: cmd.CommandPath(), err: fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code of the process for an error of a command.
func ExitCode(err error) int {
	var usage *UsageError
	var status *StatusError
	switch {
	case err == nil, errors.Is(err, errNoReader):
		return ExitOK
	case errors.As(err, &status):
		return status.Code
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, store.ErrCorrupt):
		return exitDamage
	}
	return ExitError
}

// Completes is what the user can do about a scope whose first list is not complete.
const Completes = "informctl run completes it, informctl wipe drops it"

// WithHint adds to an error what the user can do about it.
func WithHint(err error) error {
	var sent *wire.Failure
	var copied *CopyError
	var damage *store.CorruptionError
	switch {
	case errors.Is(err, store.ErrIncomplete):
		return fmt.Errorf("%w; %s", err, Completes)
	case errors.Is(err, codec.ErrNoType):
		return fmt.Errorf("%w; a table, -o name and --count need none", err)
	case errors.Is(err, store.ErrNoKey) && errors.As(err, &sent):
		return fmt.Errorf("%w; start the process that holds the file with its key", err)
	case errors.Is(err, store.ErrNoKey) && strings.HasSuffix(err.Error(), "no key was given"):
		return fmt.Errorf("%w; name it with --key-file or --key-command", err)
	case !errors.Is(err, store.ErrCorrupt):
		return err
	case errors.As(err, &damage) && IsBesideObjects(damage):
		return fmt.Errorf("%w; the objects are whole: informctl run goes on with the file", err)
	case errors.As(err, &sent), errors.As(err, &copied):
		return fmt.Errorf("%w; the process that holds the file lists it again, or sets it aside when it starts next", err)
	}
	return fmt.Errorf("%w; informctl run sets such a file aside and begins a new one", err)
}

// CopyError is an error about a copy of the file that a process has made.
type CopyError struct {
	Err        error
	Copy, Path string // the error names the path instead of the copy
}

func (e *CopyError) Error() string { return strings.ReplaceAll(e.Err.Error(), e.Copy, e.Path) }
func (e *CopyError) Unwrap() error { return e.Err }

// OneLine returns an error's text without line breaks, which joined errors and errors of
// other libraries contain. A line that is there again, maybe with a hint, is left out:
// two steps may have failed for one reason.
func OneLine(err error) string {
	var lines []string
	for line := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)
		lines = slices.DeleteFunc(lines, func(before string) bool { return strings.HasPrefix(line+"; ", before+"; ") })
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// Trouble changes the exit code of an error that would otherwise mean that there are
// differences.
func Trouble(err error) error {
	if ExitCode(err) != ExitError {
		return err
	}
	if status := (*StatusError)(nil); errors.As(err, &status) && status.Err == nil {
		return &StatusError{Code: exitTrouble} // it was printed
	}
	return &StatusError{Code: exitTrouble, Err: err}
}

// Found returns what a command has found as its error, also where nobody reads the output
// to the end: its exit code says it. err is that of the output.
func Found(found, err error) error {
	if found != nil && (err == nil || errors.Is(err, errNoReader)) {
		return found
	}
	return err
}

// Compared returns the error of a command that looks for differences. Those that were
// found count, too, where nobody reads them to the end.
func Compared(differs bool, err error) error {
	switch {
	case differs && (err == nil || errors.Is(err, errNoReader)):
		return &StatusError{Code: ExitDiffers}
	case err != nil:
		return Trouble(err)
	}
	return nil
}

// PointedError is an error at a position in the user's text.
type PointedError struct {
	Err    error
	Source string
	Column int // from 0, in characters
}

func (e *PointedError) Error() string { return e.Err.Error() }

// Point returns the source and, below it, a mark at the column.
func (e *PointedError) Point() string {
	return "  " + strings.ReplaceAll(e.Source, "\t", " ") + "\n  " + strings.Repeat(" ", e.Column) + "^"
}

// BesideObjects is where a file is damaged whose objects are whole.
const BesideObjects = "logs or ledgers"

// IsBesideObjects reports whether the objects do not depend on what is damaged.
func IsBesideObjects(damage *store.CorruptionError) bool {
	return damage.Where == BesideObjects || strings.HasPrefix(damage.Where, "log of ") || strings.HasPrefix(damage.Where, "ledger ")
}
