package durable

import "time"

// prioritizedQueue is a queue whose inner queue knows priorities.
type prioritizedQueue[T comparable] struct{ *queue[T] }

// AddWithPriority implements Prioritized.
func (q *prioritizedQueue[T]) AddWithPriority(item T, after time.Duration, priority *int) {
	q.addOne(item, after, priority)
}

// AddRateLimitedWithPriority is AddRateLimited with a priority.
func (q *prioritizedQueue[T]) AddRateLimitedWithPriority(item T, priority *int) {
	q.addRateLimited(item, priority)
}

// GetWithPriority implements Prioritized.
func (q *prioritizedQueue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, priority, shutdown = q.inner.GetWithPriority()
	q.got(item, shutdown)
	return item, priority, shutdown
}

// Get implements workqueue.TypedInterface.
func (q *prioritizedQueue[T]) Get() (item T, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}
