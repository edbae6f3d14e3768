package informer

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// keptDecoded is how many notifications wait for a handler as objects. Those
// behind them wait encoded, which takes a third of the memory, and are decoded
// when the handler comes to them.
const keptDecoded = 1024

// slimmer has the encoded form of objects that are about to be told. It is filled
// outside the informer's lock and before any handler holds the objects.
type slimmer map[runtime.Object]store.Entry

// add encodes objects. What cannot be encoded stays as it is.
func (s slimmer) add(in store.Store, objects ...runtime.Object) {
	for _, obj := range objects {
		if obj == nil {
			continue
		}
		if e, err := in.Encode(obj); err == nil {
			s[obj] = e
		}
	}
}

func (s slimmer) entry(e store.Entry) store.Entry {
	if encoded, ok := s[e.Object]; ok && e.Object != nil {
		return encoded
	}
	return e
}

// noteBacklogLocked notes for the next batch whether encoded objects are wanted.
func (inf *Informer) noteBacklogLocked() {
	long := false
	for h := range inf.handlers {
		long = long || len(h.queue) >= keptDecoded
	}
	inf.backlogged.Store(long)
}
