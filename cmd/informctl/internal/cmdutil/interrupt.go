package cmdutil

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted indicates that a signal ended the command.
var ErrInterrupted = errors.New("interrupted, nothing was changed")

// Interruptible returns a context that ends with the signals of ending. A second signal
// ends the process at once.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, ending()...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// ending returns the signals that end a command, which then leaves nothing behind: an
// interrupt, that of a service manager, and that of a terminal that goes away, unless the
// process was started to outlive that, as by nohup.
func ending() []os.Signal {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// UnlessInterrupted returns err, or ErrInterrupted once ctx has ended.
func UnlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// FirstCause returns the first error that is not a result of ending the others. failed
// holds the errors of all; nothing is sent to it any more.
func FirstCause(failed chan error) error {
	for len(failed) > 0 {
		if err := <-failed; !errors.Is(err, ErrInterrupted) {
			return err
		}
	}
	return nil
}
