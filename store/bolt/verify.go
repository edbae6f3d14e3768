package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

// indexDepth is the depth of index/<name>: root, scope, <id>, index, <name>.
const indexDepth = 4

// holdsEntries reports whether a bucket holds entries, and leads to nothing else.
func holdsEntries(depth int, name []byte) bool {
	if depth+1 >= indexDepth {
		return true
	}
	return slices.ContainsFunc([][]byte{layout.Headers, layout.Objects, layout.Staging, layout.Log}, func(holds []byte) bool {
		return bytes.Equal(name, holds)
	})
}

// VerifyPages checks every page of a database that was opened read-only, and the
// freelist, as Open does before it writes. It ends with ctx. Errors:
// *store.CorruptionError, and that of ctx.
func (d *DB) VerifyPages(ctx context.Context) error { return d.file.VerifyPages(ctx) }

// verify checks the manifest of every scope and the entries: the checksum of each record
// and header, that records and headers have the same keys, and that each bucket matches
// its tally in the manifest (promise 5). It holds one transaction and ends with ctx.
func verify(ctx context.Context, path string, tx *bbolt.Tx, how boltfile.Thoroughness) error {
	if err := layout.CheckScopeTally(tx); err != nil {
		return &store.CorruptionError{Path: path, Where: "scopes", Err: err}
	}
	keys, err := seal.Read(tx)
	if err != nil {
		return &store.CorruptionError{Path: path, Where: "meta", Err: err}
	}
	scopes := tx.Bucket(layout.Scopes)
	if scopes == nil {
		return nil
	}
	return scopes.ForEach(func(id, v []byte) error {
		if v != nil {
			return &store.CorruptionError{Path: path, Where: "scope " + string(id), Err: errors.New("no bucket")}
		}
		b := scopes.Bucket(id)
		m, err := layout.ReadManifest(string(id), b)
		where := "scope " + string(id)
		if err == nil && m.SealedWith() != "" && keys == nil {
			err = seal.ErrMissing
		}
		if err == nil {
			where = "scope " + m.Scope().String()
			if how == boltfile.Everything {
				err = content.Verify(ctx, m, b)
			}
		}
		if err != nil {
			return &store.CorruptionError{Path: path, Where: where, Err: err}
		}
		return nil
	})
}

// verifyStored checks every entry of a scope that was opened read-only, once: a writer's
// Open has checked them, a reader's has not. It is called where an answer might be
// incomplete without a failing checksum: nothing was found, or everything was listed.
func (s *scopeStore) verifyStored() error {
	s.verifyOnce.Do(func() {
		where := "scope " + s.scope.String()
		s.verifyErr = s.db.view(where, func(tx *bbolt.Tx) error {
			b := s.bucket(tx)
			m, err := layout.ReadManifest(s.id, b)
			if err == nil {
				err = content.Verify(context.Background(), m, b)
			}
			for _, name := range [][]byte{layout.Headers, layout.Objects} {
				if err == nil {
					err = s.db.file.CheckBucket(b.Bucket(name))
				}
			}
			if err != nil {
				return s.db.corrupt(where, err)
			}
			return nil
		})
	})
	return s.verifyErr
}

// verifyIndex checks that an index exists. For a scope that was opened read-only it also
// checks the index's tally: unlike the objects, index entries are few bytes.
func (s *scopeStore) verifyIndex(sn *view.Snapshot, name string) error {
	if sn.Scope == nil {
		return nil
	}
	if !s.db.readOnly {
		return s.isIndexThere(sn, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err, done := s.indexErrs[name]
	if done {
		return err
	}
	m, err := layout.ReadManifest(s.id, sn.Scope)
	if err == nil {
		var t record.Tally
		if b := layout.Index(sn.Scope, name); b != nil {
			c := b.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				t.Add(record.Checksum(k))
			}
			err = s.db.file.CheckBucket(b)
		}
		if want := m.Indexes[name].Tally; err == nil && t != want {
			err = fmt.Errorf("%d entries instead of %d", t.Count, want.Count)
			if t.Count == want.Count {
				err = content.OtherEntries(t)
			}
		}
	}
	if err != nil {
		err = s.db.corrupt(fmt.Sprintf("index %q of %s", name, s.scope), err)
	}
	s.indexErrs[name] = err
	return err
}

// isIndexThere returns an error if the manifest counts entries of an index whose bucket
// is missing: a lookup in it would silently find nothing.
func (s *scopeStore) isIndexThere(sn *view.Snapshot, name string) error {
	if layout.Index(sn.Scope, name) != nil {
		return nil
	}
	m, err := layout.ReadManifest(s.id, sn.Scope)
	if err == nil && m.Indexes[name].Tally.Count > 0 {
		err = fmt.Errorf("%d entries are missing", m.Indexes[name].Tally.Count)
	}
	if err != nil {
		return s.db.corrupt(fmt.Sprintf("index %q of %s", name, s.scope), err)
	}
	return nil
}
