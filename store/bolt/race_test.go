//go:build race

package bolt_test

import "flag"

// fewer divides the number of repetitions in tests, because the race detector is slow.
const fewer = 8

func init() {
	if err := flag.Set("rapid.checks", "25"); err != nil { // 100 by default
		panic(err)
	}
}
