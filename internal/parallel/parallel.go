// Package parallel runs loops on several cores.
package parallel

import (
	"runtime"

	"golang.org/x/sync/errgroup"
)

// share is the number of calls for which another goroutine is started.
const share = 16

// Loop is the type of Do and DoBeside.
type Loop func(n int, fn func(i int) error) error

// Do calls fn with 0 to n-1 and returns the first error. After an error, calls may be
// left out. Do uses all cores, or only the caller's goroutine if n is small.
func Do(n int, fn func(i int) error) error { return on(runtime.GOMAXPROCS(0), n, fn) }

// DoBeside is like Do but uses half of the cores, for work that must not delay other
// work. It yields to other goroutines before every call.
func DoBeside(n int, fn func(i int) error) error {
	return on(max(1, runtime.GOMAXPROCS(0)/2), n, func(i int) error {
		runtime.Gosched()
		return fn(i)
	})
}

func on(cores, n int, fn func(i int) error) error {
	workers := min(cores, 1+n/share)
	part := func(first int) error {
		for i := first; i < n; i += workers {
			if err := fn(i); err != nil {
				return err
			}
		}
		return nil
	}
	if workers == 1 {
		return part(0)
	}
	var g errgroup.Group
	for w := range workers {
		g.Go(func() error { return part(w) })
	}
	return g.Wait()
}
