//go:build race

package bolt_test

// fewer divides what tests do many times: the race detector makes it slow.
const fewer = 5
