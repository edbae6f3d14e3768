//go:build !race

package termtest

// Race reports whether the race detector is on.
const Race = false
