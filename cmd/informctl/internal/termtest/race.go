//go:build race

package termtest

// Race reports whether the race detector is on. Bubble Tea's own goroutines race when a
// program ends by a signal or a panic.
const Race = true
