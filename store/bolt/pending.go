package bolt

import (
	"encoding/binary"

	"github.com/tidwall/btree"

	"github.com/informctl/informctl/store/bolt/internal/record"
)

// setPendingLocked makes an entry the newest state of its key.
func (s *scopeStore) setPendingLocked(e *entry) {
	if old, replaced := s.pending.Set(e.key, e); replaced {
		s.addPendingLocked(-old.size())
		s.indexPendingLocked(old, false)
	}
	s.addPendingLocked(e.size())
	s.indexPendingLocked(e, true)
}

// dropPendingOfLocked removes a written entry from pending.
func (s *scopeStore) dropPendingOfLocked(e *entry) {
	s.pending.Delete(e.key)
	s.addPendingLocked(-e.size())
	s.indexPendingLocked(e, false)
}

// dropPendingLocked discards all pending entries.
func (s *scopeStore) dropPendingLocked() {
	s.addPendingLocked(-s.pendingBytes)
	s.pending, s.indexed = &btree.Map[string, *entry]{}, &btree.Map[string, *entry]{}
}

func (s *scopeStore) indexPendingLocked(e *entry, is bool) {
	if e.head == nil {
		return
	}
	for name, values := range e.head.Index {
		for _, value := range values {
			if k := pendingIndexPrefix(name, value) + e.key; is {
				s.indexed.Set(k, e)
			} else {
				s.indexed.Delete(k)
			}
		}
	}
}

// pendingIndexPrefix returns the prefix of the keys in scopeStore.indexed for a value of
// a stored index. No prefix is the beginning of another.
func pendingIndexPrefix(name, value string) string {
	b := binary.AppendUvarint(nil, uint64(len(name)))
	return string(record.AppendIndexPrefix(append(b, name...), []byte(value)))
}

// addPendingLocked adds n bytes, which may be negative, to the number of waiting bytes.
func (s *scopeStore) addPendingLocked(n int) {
	s.pendingBytes += n
	s.db.pending.Add(int64(n))
}
