//go:build !race

package termtest

// Race says that the race detector is on.
const Race = false
