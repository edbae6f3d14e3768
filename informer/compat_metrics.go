package informer

import (
	"strconv"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// metrics publishes what client-go's informers do, through the same provider:
// changes that wait, how long a batch takes, the store's resource version. A
// provider that was set for the process can be reached only by client-go's own
// queue and store, so where an informer has a name these two run along: the queue
// holds a number for each change that waits, the store nothing.
type metrics struct {
	queue *cache.RealFIFO
	store cache.Store
	added atomic.Int64 // numbers put into the queue so far
	taken int64        // of these, numbers taken out; processLoop's
}

// newMetrics returns nil, which publishes nothing, for an informer without a name
// and for a second one of the same name and resource.
func newMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) *metrics {
	if !id.Reserved() {
		return nil
	}
	key := func(obj interface{}) (string, error) { return strconv.FormatInt(obj.(int64), 10), nil }
	return &metrics{
		queue: cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
			KeyFunction: key, AtomicEvents: true, UnlockWhileProcessing: true, Identifier: id, MetricsProvider: provider,
		}),
		store: cache.NewStore(key, cache.WithStoreMetrics(id, provider)),
	}
}

// pushed counts a change that waits.
func (m *metrics) pushed() {
	if m != nil {
		_ = m.queue.Add(m.added.Add(1)) // its errors are those of the key function
	}
}

// processing runs process, after which the given number of changes waits.
func (m *metrics) processing(waiting int, process func() error) error {
	if m == nil {
		return process()
	}
	m.pushed() // or PopBatch might find nothing, and block
	single := func(interface{}, bool) error {
		m.taken++
		return process()
	}
	err := m.queue.PopBatch(func(deltas []cache.Delta, _ bool) error {
		m.taken += int64(len(deltas))
		return process()
	}, single)
	for range int64(waiting) - (m.added.Load() - m.taken) {
		m.pushed() // it takes up to 1,000, whatever process has taken
	}
	return err
}

// stored publishes the resource version of the store.
func (m *metrics) stored(rv string) {
	if m != nil && rv != "" {
		m.store.Bookmark(rv)
	}
}
