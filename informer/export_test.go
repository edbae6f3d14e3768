package informer

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/store"
)

// SetBacklogLimits sets the limits of handler queues: the bytes in memory before the rest
// is spilled, the bytes of one file, and the bytes of all files.
func SetBacklogLimits(inf *Informer, first, chunk int, files int64) {
	inf.hub.Limits = delivery.Limits{First: first, Chunk: chunk, Files: files}
}

// InFiles returns the bytes of all spilled entries.
func InFiles(inf *Informer) int64 { return inf.hub.InFiles() }

// BackendOf returns an informer's Options.Backend.
func BackendOf(inf *Informer) store.Backend { return inf.opts.Backend }

// HeldExample returns the object that shows an informer the type of its objects.
func HeldExample(inf *Informer) runtime.Object { return inf.example }

// Leases returns how many informers hold a scope of a backend, or wait to be the first.
func Leases(backend store.Backend) (n int) {
	leases.mu.Lock()
	defer leases.mu.Unlock()
	for l := range leases.of {
		if l.backend == backend {
			n++
		}
	}
	return n
}
