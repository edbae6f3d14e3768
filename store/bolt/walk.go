package bolt

import (
	"fmt"
	"iter"

	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// scanAs returns up to limit entries with keys greater than after, in key order and as of
// one moment. It reads no headers; readAs explains loaded.
func (s *scopeStore) scanAs(loaded bool, after string, limit int) (entries []store.Entry, err error) {
	err = s.readAs("objects", want{loaded: loaded}, func(sn *snapshot) (err error) {
		entries, err = sn.Scan(after, limit)
		return err
	})
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
			if err == nil && s.isOutdated() {
				err = fmt.Errorf("%s was closed, and is listed anew: %w", s.scope, store.ErrClosed)
			}
			n += len(entries)
			if err == nil && len(entries) < chunk {
				err = s.checks.all(n)
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
			h, err := sn.Header(record.FileKey(key))
			if err != nil {
				return err
			}
			if h != nil {
				headers = append(headers, h.Public(key))
			}
		}
		return nil
	})
	if err == nil && len(headers) < len(keys) {
		err = s.checks.stored()
	}
	if err != nil {
		return nil, err
	}
	return headers, nil
}
