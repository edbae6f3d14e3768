package reflector

import (
	"context"
	"time"
)

// callGrace is how long a request may take to return after its context has ended.
const callGrace = time.Second

// call runs a request, and returns what it returns. A ListerWatcher may ignore its
// context, as generated ones did before client-go v0.33: callGrace after the context's
// end such a request is left to itself, in the goroutine that it runs in, and call
// returns the context's error. late gets what it returns then; it may be nil.
func call[T any](ctx context.Context, request func() (T, error), late func(T)) (T, error) {
	type answer struct {
		value    T
		err      error
		panicked any
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			a.panicked = recover()
			answers <- a
		}()
		a.value, a.err = request()
	}()
	take := func(a answer) (T, error) {
		if a.panicked != nil {
			panic(a.panicked) // on the goroutine whose caller may recover it
		}
		return a.value, a.err
	}
	select {
	case a := <-answers:
		return take(a)
	case <-ctx.Done():
	}
	grace := time.NewTimer(callGrace)
	defer grace.Stop()
	select {
	case a := <-answers:
		return take(a)
	case <-grace.C:
	}
	go func() {
		if a := <-answers; a.err == nil && a.panicked == nil && late != nil {
			late(a.value)
		}
	}()
	var none T
	return none, ctx.Err()
}
