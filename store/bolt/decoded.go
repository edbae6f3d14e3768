package bolt

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/runtime"
)

// defaultDecoded is the budget for decoded objects, in bytes of heap.
const defaultDecoded = 64 << 20

// sized is a decoded object and what it was decoded from: how many bytes, and
// their hash; nil where that is not known.
type sized struct {
	object  runtime.Object
	encoded int
	hash    []byte
}

// decodedWeight estimates an object's heap: a pod of 9.6 KB is 21 KB of it.
func decodedWeight(key string, v sized) uint32 {
	return uint32(len(key) + 3*v.encoded + 256)
}

var groupSeed = maphash.MakeSeed()

func group(key string) int { return int(maphash.String(groupSeed, key) % 256) }

// offer puts an object into the cache, unless its key may have changed since the
// read that it is of began, at that generation.
func (s *Store) offer(key string, v sized, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generations[group(key)] == generation {
		s.decoded.Set(key, v)
	}
}
