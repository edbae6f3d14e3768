package cmdutil

import (
	"context"
	"time"
)

// Persist calls try until it succeeds or returns an error that does not pass, which it
// returns. It tells the first error that passes, and pauses after each. The error is that
// of ctx if it ends meanwhile.
func Persist[T any](ctx context.Context, pause func() time.Duration, try func() (T, error), passes func(error) bool, tell func(error)) (T, error) {
	for told := false; ; told = true {
		v, err := try()
		if err == nil || !passes(err) {
			return v, err
		}
		if !told && ctx.Err() == nil {
			tell(err)
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(pause()):
		}
	}
}
