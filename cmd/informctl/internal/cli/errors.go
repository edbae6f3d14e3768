package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// The exit codes. 2 is not used: the Go runtime exits with it after a panic.
const (
	exitOK     = 0
	exitError  = 1
	exitDamage = 3
	exitUsage  = 64

	exitDiffers = 1 // of diff
	exitTrouble = 4 // of diff, where exitError means a difference
)

// statusError ends a command with its own exit code.
type statusError struct {
	code int
	err  error // nil: nothing to print
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// usageError is an error in the command line.
type usageError struct {
	command string // the command whose help explains the usage
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{command: cmd.CommandPath(), err: fmt.Errorf(format, args...)}
}

// exitCode returns the exit code of the process for an error of a command.
func exitCode(err error) int {
	var usage *usageError
	var status *statusError
	switch {
	case err == nil, errors.Is(err, errNoReader):
		return exitOK
	case errors.As(err, &status):
		return status.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, store.ErrCorrupt):
		return exitDamage
	}
	return exitError
}

// completes is what the user can do about a scope whose first list is not complete.
const completes = "informctl run completes it, informctl wipe drops it"

// withHint adds to an error what the user can do about it.
func withHint(err error) error {
	var sent *wire.Failure
	var copied *copyError
	var damage *store.CorruptionError
	switch {
	case errors.Is(err, store.ErrIncomplete):
		return fmt.Errorf("%w; %s", err, completes)
	case errors.Is(err, store.ErrTrimmed), errors.Is(err, store.ErrLineage):
		return fmt.Errorf("%w; --initial begins with what is there", err)
	case errors.Is(err, store.ErrNoKey) && errors.As(err, &sent):
		return fmt.Errorf("%w; start the process that holds the file with its key", err)
	case errors.Is(err, store.ErrNoKey) && strings.HasSuffix(err.Error(), "no key was given"):
		return fmt.Errorf("%w; name it with --key-file or --key-command", err)
	case !errors.Is(err, store.ErrCorrupt):
		return err
	case errors.As(err, &damage) && isBesideObjects(damage):
		return fmt.Errorf("%w; the objects are whole: informctl run goes on with the file", err)
	case errors.As(err, &sent), errors.As(err, &copied):
		return fmt.Errorf("%w; the process that holds the file lists it again, or sets it aside when it starts next", err)
	}
	return fmt.Errorf("%w; informctl run sets such a file aside and begins a new one", err)
}

// copyError is an error about a copy of the file that a process has made.
type copyError struct {
	err        error
	copy, path string // the error names the path instead of the copy
}

func (e *copyError) Error() string { return strings.ReplaceAll(e.err.Error(), e.copy, e.path) }
func (e *copyError) Unwrap() error { return e.err }

// oneLine returns an error's text without line breaks, which joined errors and errors of
// other libraries contain. A line that is there again, maybe with a hint, is left out:
// two steps may have failed for one reason.
func oneLine(err error) string {
	var lines []string
	for line := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)
		lines = slices.DeleteFunc(lines, func(before string) bool { return strings.HasPrefix(line+"; ", before+"; ") })
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}
