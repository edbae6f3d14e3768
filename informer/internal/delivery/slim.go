package delivery

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// Slim contains the encoded form of objects that are about to be appended to long queues.
// It is filled before any handler holds the objects.
type Slim struct {
	store   Store // nil if no queue is long
	encoded map[runtime.Object]store.Entry
}

// NewSlim returns a Slim for one call of Do. It stays empty if no queue is long.
func (h *Hub) NewSlim() Slim {
	if !h.backlogged.Load() {
		return Slim{}
	}
	return Slim{store: h.store, encoded: map[runtime.Object]store.Entry{}}
}

// Add encodes objects. Objects that cannot be encoded are left out. It must not be called
// while Do runs.
func (s Slim) Add(objects ...runtime.Object) {
	if s.store == nil {
		return
	}
	for _, obj := range objects {
		if obj == nil {
			continue
		}
		if e, err := s.store.Encode(obj); err == nil {
			s.encoded[obj] = e
		}
	}
}

func (s Slim) entry(e store.Entry) store.Entry {
	if encoded, ok := s.encoded[e.Object]; ok && e.Object != nil {
		return encoded
	}
	e.Cell = nil // else it would keep the object decoded
	return e
}
