package bolt

import (
	"errors"
	"fmt"
	"iter"

	bbolt "go.etcd.io/bbolt"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// scanAs returns up to limit entries with keys greater than after, in key order and as of
// one moment. It reads no headers; readAs explains loaded.
func (s *scopeStore) scanAs(loaded bool, after string, limit int) (entries []store.Entry, err error) {
	err = s.readAs("objects", want{loaded: loaded}, func(sn *snapshot) (err error) {
		entries, err = s.scan(sn, after, limit)
		return err
	})
	return entries, err
}

func (s *scopeStore) scan(sn *snapshot, after string, limit int) (entries []store.Entry, err error) {
	// The headers come first, so that an object that a damaged page has lost is noticed.
	var records *bbolt.Cursor
	var k, v []byte
	order := sn.over.Merge(sn.headers, record.FileKey(after), func(key string, p *overlay.Entry, _ []byte) bool {
		if p == nil && records != nil {
			k, v = records.Next()
		}
		if p == nil && string(k) != key {
			records = sn.objects.Cursor()
			k, v = records.Seek([]byte(key))
		}
		var e store.Entry
		switch {
		case p != nil:
			e = s.codec.Pending(p)
		case string(k) != key:
			err = s.db.corrupt("object "+key, errors.New("missing"))
		default:
			if e, err = s.codec.Stored(key, v); err == nil {
				err = s.named(sn, &e)
			}
		}
		if err != nil {
			return false
		}
		entries = append(entries, e)
		return len(entries) < limit
	})
	if err == nil && order != nil {
		err = s.db.corrupt("scope "+s.scope.String(), order)
	}
	return entries, err
}

// All implements store.Store.
func (s *scopeStore) All() iter.Seq2[kruntime.Object, error] {
	return func(yield func(kruntime.Object, error) bool) {
		s, err := s.reader()
		if err == nil {
			err = s.whyIncomplete()
		}
		if err != nil {
			yield(nil, err)
			return
		}
		n := 0
		for after := ""; ; {
			entries, err := s.scanAs(false, after, chunk)
			n += len(entries)
			if err == nil && len(entries) < chunk {
				err = s.isWhole(n)
			}
			var objects []kruntime.Object
			if err == nil {
				objects, err = store.DecodeAll[kruntime.Object](s, entries)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, obj := range objects {
				if !yield(obj, nil) {
					return
				}
			}
			if len(entries) < chunk {
				return
			}
			after = entries[len(entries)-1].Key
		}
	}
}

// HeadersOf implements store.Store.
func (s *scopeStore) HeadersOf(keys []string) ([]store.Header, error) {
	s, err := s.reader()
	if err != nil {
		return nil, err
	}
	headers := make([]store.Header, 0, len(keys))
	err = s.read("headers", func(sn *snapshot) error {
		for _, key := range keys {
			h, err := s.header(sn, record.FileKey(key))
			if err != nil {
				return err
			}
			if h != nil {
				headers = append(headers, h.Public(key))
			}
		}
		return nil
	})
	if err == nil && len(headers) < len(keys) && s.db.readOnly {
		err = s.verifyStored()
	}
	if err != nil {
		return nil, err
	}
	return headers, nil
}

// isWhole checks that a walk over a scope that was opened read-only has found all
// objects.
func (s *scopeStore) isWhole(n int) error {
	if want := s.Len(); s.db.readOnly && n != want {
		return s.db.corrupt("scope "+s.scope.String(), fmt.Errorf("%d objects instead of %d", n, want))
	}
	return nil
}

// keys returns up to limit keys after the given one. A negative limit means all keys.
func (sn *snapshot) keys(after string, limit int) (keys []string, err error) {
	var damage error
	err = sn.over.Merge(sn.headers, record.FileKey(after), func(key string, p *overlay.Entry, v []byte) bool {
		if p != nil {
			key = p.Name
		} else if key, damage = record.HeaderName(key, v); damage != nil {
			return false
		}
		keys = append(keys, key)
		return limit < 0 || len(keys) < limit
	})
	if err == nil {
		err = damage
	}
	if err == nil && after == "" && limit < 0 && sn.headers != nil && sn.isShort(len(keys)) {
		err = fmt.Errorf("%d headers instead of %d", len(keys), sn.length)
	}
	return keys, err
}
