package replay

// Fences count the notifications of one handler, so that it is known when the handler has
// returned from all that were queued at some time. Those of the log do not count.
type Fences struct {
	queued  uint64 // since the handler was added
	handled uint64 // those from which the handler has returned, or that were dropped
	inWork  uint64 // those that its goroutine has taken
	failed  bool   // it has not received one of them, or has panicked
	ended   bool   // its goroutine has ended
}

// Queue notes that notifications were queued.
func (f *Fences) Queue(n int) { f.queued += uint64(n) }

// Take notes that the handler's goroutine has taken n notifications.
func (f *Fences) Take(n int) { f.inWork = uint64(n) }

// IsInWork reports whether notifications that were taken still count: Drop drops them.
func (f *Fences) IsInWork() bool { return f.inWork > 0 }

// Return notes that the handler has returned from what was taken.
func (f *Fences) Return() { f.handled, f.inWork = f.handled+f.inWork, 0 }

// Drop notes that all notifications were dropped.
func (f *Fences) Drop() { f.handled, f.inWork = f.queued, 0 }

// Lose notes that n notifications were lost, so that no fence is passed any more.
func (f *Fences) Lose(n int) { f.handled, f.failed = f.handled+uint64(n), true }

// Fail notes that the handler has not received a notification, or has panicked: no fence
// is passed any more.
func (f *Fences) Fail() { f.failed = true }

// End notes that the handler's goroutine has ended: the handler returns from nothing
// more.
func (f *Fences) End() { f.ended = true }

// Fence returns the fence behind everything that is queued. ok is false if it will not be
// passed.
func (f *Fences) Fence() (fence uint64, ok bool) {
	return f.queued, !f.failed && (!f.ended || f.handled >= f.queued)
}

// Passed reports whether the handler has returned from everything before a fence.
func (f *Fences) Passed(fence uint64) bool { return f.handled >= fence && !f.failed }

// IsBefore reports whether the notification at i, of those that were taken, or the next
// one, was queued before a fence.
func (f *Fences) IsBefore(fence uint64, i int) bool { return f.handled+uint64(i) < fence }
