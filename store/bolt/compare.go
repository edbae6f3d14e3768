package bolt

import (
	"bytes"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Compare implements store.Store.
func (s *scopeStore) Compare(obj kruntime.Object) (held store.Header, same bool, err error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return held, false, err
	}
	if s, err = s.reader(); err != nil {
		return held, false, err
	}
	var h *record.Header
	err = s.read("header "+key, func(sn *snapshot) (err error) {
		h, err = sn.Header(record.FileKey(key))
		return err
	})
	if err == nil && h == nil {
		err = s.checks.stored()
	}
	if err != nil {
		return held, false, err
	}
	if h == nil {
		_, err = s.codec.Hash(key, obj) // whether it can be stored
		return held, false, err
	}
	same, err = s.scope.SameButKind(obj, func() (bool, error) {
		hash, err := s.codec.Hash(key, obj)
		return hash != nil && bytes.Equal(h.Hash, hash), err
	})
	if err != nil {
		return held, false, err
	}
	return h.Public(key), same, nil
}
