// Package view reads the content of one scope as of one moment: what the file has and,
// merged over it, what is not written yet. It locks nothing and begins no transaction.
package view

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/objcodec"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Snapshot is the content of a scope at one moment. It is valid as long as the
// transaction of its buckets, and one goroutine uses it.
type Snapshot struct {
	Codec   *objcodec.Codec
	Path    string // of the file, for errors
	Overlay overlay.View
	// Scope, Headers and Objects are nil if the file may not be seen.
	Scope, Headers, Objects *bbolt.Bucket
	Length                  int      // number of objects; -1 if it is not known
	Found                   []string // what an index in memory found
	// Tickets of the cache of decoded objects, if they were asked for.
	Tickets *objcache.Tickets
}

// Exists reports whether there is an object with a file key.
func (sn *Snapshot) Exists(key string) bool {
	if e, ok := sn.Overlay.Get(key); ok {
		return e.Head != nil
	}
	return sn.Headers != nil && sn.Headers.Get([]byte(key)) != nil
}

// isShort reports whether n differs from the number of objects, for example because a
// damaged page has lost some. It reports false if the number is not known.
func (sn *Snapshot) isShort(n int) bool { return sn.Length >= 0 && n != sn.Length }

// Header returns the header of one object, or nil if the object does not exist.
func (sn *Snapshot) Header(key string) (*record.Header, error) {
	if e, ok := sn.Overlay.Get(key); ok {
		return e.Head, nil
	}
	if sn.Headers == nil {
		return nil, nil
	}
	b := sn.Headers.Get([]byte(key))
	if b == nil {
		return nil, nil
	}
	h, err := sn.Codec.Seal.Header(seal.InScope, key, b)
	if err != nil {
		return nil, sn.Codec.Unreadable("header "+key, err)
	}
	return h, nil
}

// Raw returns a copy of the stored form of one object.
func (sn *Snapshot) Raw(key string) (store.Entry, bool, error) {
	if e, ok := sn.Overlay.Get(key); ok {
		return sn.Codec.Pending(e), e.Head != nil, nil
	}
	if sn.Objects == nil {
		return store.Entry{}, false, nil
	}
	b := sn.Objects.Get([]byte(key))
	if b == nil {
		if sn.Headers.Get([]byte(key)) != nil {
			return store.Entry{}, false, sn.Codec.Corrupt("object "+key, errors.New("missing"))
		}
		return store.Entry{}, false, nil
	}
	e, err := sn.Codec.Stored(key, b)
	if err == nil {
		err = sn.named(&e)
	}
	return e, err == nil, err
}

// named replaces the file key of an entry by the object's own key.
func (sn *Snapshot) named(e *store.Entry) error {
	name, err := sn.name(e.Key)
	if err != nil {
		return sn.Codec.Corrupt("header "+e.Key, err)
	}
	e.Key = name
	return nil
}

// Hash returns the hash of an object's content, nil if it cannot be read.
func (sn *Snapshot) Hash(key string) []byte {
	if e, ok := sn.Overlay.Get(key); ok {
		return e.Head.Hash
	}
	var view record.HeaderView
	if sn.Headers == nil || view.Set(key, sn.Headers.Get([]byte(key))) != nil {
		return nil
	}
	return bytes.Clone(view.Hash)
}

// IndexKeys returns the sorted file keys of the objects that have a value in a stored
// index. stored is the form of the value in the file.
func (sn *Snapshot) IndexKeys(name, value, stored string) []string {
	var found []byte // the keys, concatenated
	var ends []int
	if sn.Scope != nil {
		if b := layout.Index(sn.Scope, name); b != nil {
			prefix := record.IndexPrefix(stored)
			c := b.Cursor()
			for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
				found = append(found, k[len(prefix):]...)
				ends = append(ends, len(found))
			}
		}
	}
	keys := make([]string, 0, len(ends))
	all, begin := string(found), 0
	for _, end := range ends {
		key := all[begin:end]
		if begin = end; !sn.Overlay.Has(key) {
			keys = append(keys, key)
		}
	}
	inFile := len(keys)
	sn.Overlay.ByIndex(name, value, func(e *overlay.Entry) { keys = append(keys, e.Key) })
	if len(keys) > inFile {
		slices.Sort(keys)
	}
	return keys
}

// IndexValues returns the sorted distinct values of a stored index.
func (sn *Snapshot) IndexValues(name string) ([]string, error) {
	values := map[string]struct{}{}
	err := sn.EachIndexed(name, func(key, value string) {
		if !sn.Overlay.Has(key) {
			values[value] = struct{}{}
		}
	})
	sn.Overlay.Scan(func(e *overlay.Entry) bool {
		if e.Head != nil {
			for _, value := range e.Head.Index[name] {
				values[value] = struct{}{}
			}
		}
		return true
	})
	return slices.Sorted(maps.Keys(values)), err
}

// name returns the own key of the object with a file key.
func (sn *Snapshot) name(key string) (string, error) {
	if !record.IsHashed(key) {
		return key, nil
	}
	if e, ok := sn.Overlay.Get(key); ok {
		return e.Name, nil
	}
	if sn.Headers == nil {
		return "", fmt.Errorf("header is missing")
	}
	return record.HeaderName(key, sn.Headers.Get([]byte(key)))
}

// Scan returns up to limit entries with keys greater than after, in key order. It reads
// no headers.
func (sn *Snapshot) Scan(after string, limit int) (entries []store.Entry, err error) {
	// The headers come first, so that an object that a damaged page has lost is noticed.
	var records *bbolt.Cursor
	var k, v []byte
	order := sn.Overlay.Merge(sn.Headers, record.FileKey(after), func(key string, p *overlay.Entry, _ []byte) bool {
		if p == nil && records != nil {
			k, v = records.Next()
		}
		if p == nil && string(k) != key {
			records = sn.Objects.Cursor()
			k, v = records.Seek([]byte(key))
		}
		var e store.Entry
		switch {
		case p != nil:
			e = sn.Codec.Pending(p)
		case string(k) != key:
			err = sn.Codec.Corrupt("object "+key, errors.New("missing"))
		default:
			if e, err = sn.Codec.Stored(key, v); err == nil {
				err = sn.named(&e)
			}
		}
		if err != nil {
			return false
		}
		entries = append(entries, e)
		return len(entries) < limit
	})
	if err == nil && order != nil {
		err = sn.Codec.Corrupt("scope "+sn.Codec.Scope.String(), order)
	}
	return entries, err
}

// Keys returns up to limit keys after the given one. A negative limit means all keys.
func (sn *Snapshot) Keys(after string, limit int) (keys []string, err error) {
	var damage error
	err = sn.Overlay.Merge(sn.Headers, record.FileKey(after), func(key string, p *overlay.Entry, v []byte) bool {
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
	if err == nil && after == "" && limit < 0 && sn.Headers != nil && sn.isShort(len(keys)) {
		err = fmt.Errorf("%d headers instead of %d", len(keys), sn.Length)
	}
	return keys, err
}

// EachIndexed calls fn with each entry of a stored index in the file. The index entries
// of an encrypted scope are HMACs, so their values are taken from the headers.
func (sn *Snapshot) EachIndexed(name string, fn func(key, value string)) error {
	if sn.Scope == nil || layout.Index(sn.Scope, name) == nil {
		return nil
	}
	if sn.Codec.Seal == nil {
		return layout.Index(sn.Scope, name).ForEach(func(k, v []byte) error {
			if value, key, ok := record.ParseIndexEntry(k, v); ok {
				fn(string(key), string(value))
			}
			return nil
		})
	}
	return sn.Headers.ForEach(func(k, v []byte) error {
		key := string(k)
		h, err := sn.Codec.Seal.Header(seal.InScope, key, v)
		if err != nil {
			return sn.Codec.Unreadable("header "+key, err)
		}
		for _, value := range h.Index[name] {
			fn(key, value)
		}
		return nil
	})
}

// NamedKeys returns the objects' own keys of what find finds.
func (sn *Snapshot) NamedKeys(find Finder) ([]string, error) {
	keys, err := find(sn)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		if keys[i], err = sn.name(key); err != nil {
			return nil, sn.Codec.Corrupt("header "+key, err)
		}
	}
	return keys, nil
}
