// Package clocktest has times for tests that no test can wait for.
package clocktest

import (
	"time"
	"unsafe"
)

// Slept returns what time.Now returned when a machine fell asleep that has just woken up:
// its wall clock has gone on for d, and its monotonic clock has stood still.
func Slept(d time.Duration) time.Time {
	t := time.Now().Add(-d)
	// A Time with a monotonic clock has that second, in nanoseconds.
	*(*int64)(unsafe.Add(unsafe.Pointer(&t), unsafe.Sizeof(uint64(0)))) += int64(d)
	return t
}
