package durable

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// failures is what is known of the failures of a key.
type failures struct {
	count int
	last  time.Duration // the last delay
}

// restorer is implemented by rate limiters that can be told how often a key has failed.
type restorer[T comparable] interface{ Restore(item T, failures int) }

// limits is a rate limiter that goes on from failures of an earlier process. Those
// limiters that count failures for each key get them: client-go's two, and any that
// implements Restore. For others, the delay is at least the last one until Forget: to
// call When of a token bucket again would delay every key.
type limits[T comparable] struct {
	workqueue.TypedRateLimiter[T]
	before map[T]failures // of keys whose limiter does not know them
}

// maxReplayed is how many failures of a key are replayed; client-go's limiters have
// reached their longest delay long before.
const maxReplayed = 1000

func (l *limits[T]) restore(item T, f failures) {
	if f.count == 0 {
		return
	}
	switch known := l.TypedRateLimiter.(type) {
	case restorer[T]:
		known.Restore(item, f.count)
	case *workqueue.TypedItemExponentialFailureRateLimiter[T], *workqueue.TypedItemFastSlowRateLimiter[T]:
		for range min(f.count, maxReplayed) {
			_ = l.TypedRateLimiter.When(item)
		}
	default:
		l.before[item] = f
	}
}

// When implements workqueue.TypedRateLimiter.
func (l *limits[T]) When(item T) time.Duration {
	return max(l.TypedRateLimiter.When(item), l.before[item].last)
}

// NumRequeues implements workqueue.TypedRateLimiter.
func (l *limits[T]) NumRequeues(item T) int {
	return l.TypedRateLimiter.NumRequeues(item) + l.before[item].count
}

// Forget implements workqueue.TypedRateLimiter.
func (l *limits[T]) Forget(item T) {
	delete(l.before, item)
	l.TypedRateLimiter.Forget(item)
}

// noLimiter is the rate limiter of the inner queue, which is not asked.
type noLimiter[T comparable] struct{}

func (noLimiter[T]) When(T) time.Duration { return 0 }
func (noLimiter[T]) Forget(T)             {}
func (noLimiter[T]) NumRequeues(T) int    { return 0 }
