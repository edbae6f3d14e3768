// Package endable ends requests that ignore their context.
package endable

import (
	"context"
	"time"
)

// Grace is how long a request may run after its context has ended.
const Grace = time.Second

// Call runs a request and returns its result. A ListerWatcher may ignore its context, as
// generated ones did before client-go v0.33. If the request has not returned Grace
// after the end of the context, Call abandons it in its goroutine and returns the
// context's error. late receives a value that the request returns afterwards; it may be
// nil.
func Call[T any](ctx context.Context, request func() (T, error), late func(T)) (T, error) {
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
	grace := time.NewTimer(Grace)
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
