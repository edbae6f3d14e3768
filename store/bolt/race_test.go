//go:build race

package bolt_test

import "flag"

// fewer divides the number of repetitions in tests, because the race detector is slow.
const fewer = 8

func init() {
	for name, value := range map[string]string{
		"rapid.checks": "25", // 100 by default
		"depth":        "4",  // 6 by default
	} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}
