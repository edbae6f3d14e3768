package ingest

import (
	"strconv"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// Metrics publishes the metrics of client-go's informers through the same provider: the
// number of queued changes, the duration of a batch, the store's resource version. Only
// client-go's own queue and store can reach a provider that was set for the process. So
// an informer with a name also runs these two: the queue contains a number for each
// queued change, the store nothing.
type Metrics struct {
	queue *cache.RealFIFO
	store cache.Store
	added atomic.Int64 // numbers added to the queue so far
	taken int64        // numbers taken from it; only applyWatch uses it
}

// NewMetrics returns the metrics of an informer. It returns nil, which publishes nothing,
// for an informer without a name, and for a second informer of the same name and
// resource.
func NewMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) *Metrics {
	if !id.Reserved() {
		return nil
	}
	key := func(obj interface{}) (string, error) { return strconv.FormatInt(obj.(int64), 10), nil }
	return &Metrics{
		queue: cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
			KeyFunction: key, AtomicEvents: true, UnlockWhileProcessing: true, Identifier: id, MetricsProvider: provider,
		}),
		store: cache.NewStore(key, cache.WithStoreMetrics(id, provider)),
	}
}

// pushed counts one queued change.
func (m *Metrics) pushed() {
	if m != nil {
		_ = m.queue.Add(m.added.Add(1)) // only the key function returns errors
	}
}

// processing runs process. waiting is the number of changes that are queued afterwards.
func (m *Metrics) processing(waiting int, process func() error) error {
	if m == nil {
		return process()
	}
	if m.added.Load() == m.taken {
		m.pushed() // PopBatch would find nothing and block
	}
	single := func(interface{}, bool) error {
		m.taken++
		return process()
	}
	err := m.queue.PopBatch(func(deltas []cache.Delta, _ bool) error {
		m.taken += int64(len(deltas))
		return process()
	}, single)
	for range int64(waiting) - (m.added.Load() - m.taken) {
		m.pushed() // PopBatch takes up to 1,000, whatever process took
	}
	return err
}

// stored publishes the resource version of the store.
func (m *Metrics) stored(rv string) {
	if m != nil && rv != "" {
		m.store.Bookmark(rv)
	}
}
