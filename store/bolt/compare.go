package bolt

import (
	"bytes"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// Compare implements store.Store.
func (s *Store) Compare(obj kruntime.Object) (held store.Header, same bool, err error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return held, false, err
	}
	var hash []byte
	if s.opts.Codec != nil {
		payload, err := s.opts.Codec.Encode(obj)
		if err != nil {
			return held, false, &store.ObjectError{Key: key, Err: err}
		}
		hash = s.seal.payloadHash(key, payload)
	}
	var h *header
	err = s.read("header "+key, nil, func(sn *snapshot) (err error) {
		if p, ok := sn.pending.Get(key); ok {
			h = p.head
			return nil
		}
		if sn.headers == nil {
			return nil
		}
		if b := sn.headers.Get([]byte(key)); b != nil {
			if h, err = s.seal.header(inScope, key, b); err != nil {
				return s.db.unreadable("header "+key, err)
			}
		}
		return nil
	})
	if err == nil && h == nil && s.db.readOnly {
		err = s.verifyStored()
	}
	if err != nil || h == nil {
		return held, false, err
	}
	return h.public(key), hash != nil && bytes.Equal(h.Hash, hash), nil
}

// public is what the store says of a header.
func (h *header) public(key string) store.Header {
	return store.Header{Key: key, UID: h.UID, RV: h.RV, Labels: h.Labels, Bytes: h.Size}
}
