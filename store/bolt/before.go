package bolt

import (
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// moment identifies the content that a Before describes.
type moment struct {
	of            *state
	turns, latest uint64
	// exists says of each file key whether it has an object; nil if that cannot be told
	// for a batch: what is applied beside a first list is counted in another way.
	exists map[string]bool
}

// Before implements store.Store. It takes from memory what is there, and reads the rest
// in one transaction.
func (s *scopeStore) Before(keys []string) (store.Before, error) {
	s, err := s.reader()
	if err != nil {
		return store.Before{}, err
	}
	m := &moment{}
	b := store.Before{Held: make(map[string]store.Held, len(keys)), Moment: m}
	var inMemory bool
	look := func(st *state) { inMemory = st.recall(keys, b.Held, m) && !s.db.isClosed() }
	if s.locked(look); inMemory {
		return b, nil
	}
	err = s.readAs("objects", want{also: look}, func(sn *snapshot) error {
		for _, key := range keys {
			fileKey := record.FileKey(key)
			if m.exists != nil {
				m.exists[fileKey] = sn.Exists(fileKey)
			}
			if held, ok := sn.held(fileKey, b.Held[key]); ok {
				b.Held[key] = held
			}
		}
		return nil
	})
	if err == nil && len(b.Held) < len(keys) {
		err = s.checks.stored()
	}
	if err != nil {
		return store.Before{}, err
	}
	return b, nil
}

// recall notes the moment and takes the objects from memory that are there. It reports
// whether that is all there is to know.
func (s *state) recall(keys []string, held map[string]store.Held, m *moment) (all bool) {
	clear(held)
	*m = moment{of: s, turns: s.turns, latest: s.latest}
	if s.phase != phaseReady {
		return false
	}
	m.exists = make(map[string]bool, len(keys))
	all = true
	for _, key := range keys {
		fileKey := record.FileKey(key)
		v, ok := s.objects.Peek(fileKey)
		if !ok {
			all = false
			continue
		}
		h := store.Held{Entry: v.Entry(key)}
		if pending, ok := s.overlay.Get(fileKey); ok && pending.Head != nil {
			h.UID, h.RV = pending.Head.UID, pending.Head.RV
		} else if accessor, err := meta.Accessor(h.Entry.Object); err == nil {
			h.UID, h.RV = string(accessor.GetUID()), accessor.GetResourceVersion()
		} else {
			all = false
		}
		held[key], m.exists[fileKey] = h, true
	}
	return all
}

// held completes what memory has of an object. ok is false if there is no object.
func (sn *snapshot) held(key string, h store.Held) (_ store.Held, ok bool) {
	if h.UID != "" || h.RV != "" {
		return h, true
	}
	head, err := sn.Header(key)
	if h.Err = err; err == nil && head != nil {
		h.UID, h.RV = head.UID, head.RV
	}
	if h.Entry.Key == "" {
		if h.Entry, ok, err = sn.Raw(key); err != nil {
			h.Entry, h.Err = store.Entry{}, err
		} else if !ok {
			return store.Held{}, false
		}
	}
	if h.Err == nil && head == nil { // a damaged page has lost it
		h.Err = sn.Codec.Corrupt("header "+key, errors.New("missing"))
	}
	return h, true
}

// existedAt returns what a Before says of the entries, if nothing has changed since.
func (s *state) existedAt(m *moment, entries []*overlay.Entry) (existed []bool, ok bool) {
	if m == nil || m.exists == nil || m.of != s || m.turns != s.turns || m.latest != s.latest || s.phase != phaseReady {
		return nil, false
	}
	existed = make([]bool, len(entries))
	for i, e := range entries {
		if existed[i], ok = m.exists[e.Key]; !ok {
			return nil, false
		}
	}
	return existed, true
}
