//go:build race

package informer_test

// fewer divides the number of repetitions in tests, because the race detector is slow.
const fewer = 8
