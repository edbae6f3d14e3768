// Package clocktest has times for tests that no test can wait for.
package clocktest

import (
	"time"
	"unsafe"
)

// Stepped returns what time.Now returned before the wall clock went on for d without the
// monotonic one, as while a machine sleeps. With a negative d it was set back.
func Stepped(d time.Duration) time.Time {
	t := time.Now().Add(-d)
	// A Time with a monotonic clock has that second, in nanoseconds.
	*(*int64)(unsafe.Add(unsafe.Pointer(&t), unsafe.Sizeof(uint64(0)))) += int64(d)
	return t
}
