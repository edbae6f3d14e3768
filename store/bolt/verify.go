package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
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

// checks are what an Open for reading has left out: they are made when an answer depends
// on them. A writer's Open has checked everything. They are safe for concurrent use.
type checks struct {
	s    *scopeStore
	once sync.Once
	err  error // of stored

	mu      sync.Mutex // protects indexes
	indexes map[string]error
}

// stored checks every entry of the scope, once. It is called where an answer might be
// incomplete without a failing checksum: nothing was found, or everything was listed.
func (c *checks) stored() error {
	s := c.s
	if !s.db.readOnly {
		return nil
	}
	c.once.Do(func() {
		where := "scope " + s.scope.String()
		c.err = s.db.view(where, func(tx *bbolt.Tx) error {
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
	return c.err
}

// all checks that a walk has found all objects.
func (c *checks) all(n int) error {
	if want := c.s.Len(); c.s.db.readOnly && n != want {
		return c.s.db.corrupt("scope "+c.s.scope.String(), fmt.Errorf("%d objects instead of %d", n, want))
	}
	return nil
}

// log checks that the log is whole.
func (c *checks) log() error {
	s := c.s
	if !s.db.readOnly {
		return nil
	}
	return s.read("log of "+s.scope.String(), func(sn *snapshot) error {
		if sn.Scope == nil {
			return nil
		}
		m, err := layout.ReadManifest(s.id, sn.Scope)
		if err == nil {
			err = changelog.VerifyTally(m, sn.Scope)
		}
		if err != nil {
			return s.db.corrupt("log of "+s.scope.String(), err)
		}
		return nil
	})
}

// index checks that an index exists. After an Open for reading it also checks the index's
// tally: unlike the objects, index entries are few bytes.
func (c *checks) index(sn *view.Snapshot, name string) error {
	if sn.Scope == nil {
		return nil
	}
	if !c.s.db.readOnly {
		err := isIndexThere(c.s.id, sn.Scope, name)
		if errors.Is(err, store.ErrNoIndex) {
			return fmt.Errorf("index %q of %s is not kept any more: %w", name, c.s.scope, err)
		}
		return c.indexError(name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err, done := c.indexes[name]
	if done {
		return err
	}
	m, err := layout.ReadManifest(c.s.id, sn.Scope)
	if err == nil {
		var t record.Tally
		if b := layout.Index(sn.Scope, name); b != nil {
			cursor := b.Cursor()
			for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
				t.Add(record.Checksum(k))
			}
			err = c.s.db.file.CheckBucket(b)
		}
		if want := m.Indexes[name].Tally; err == nil && t != want {
			err = fmt.Errorf("%d entries instead of %d", t.Count, want.Count)
			if t.Count == want.Count {
				err = content.OtherEntries(t)
			}
		}
	}
	if c.indexes == nil {
		c.indexes = map[string]error{}
	}
	c.indexes[name] = c.indexError(name, err)
	return c.indexes[name]
}

func (c *checks) indexError(name string, err error) error {
	if err == nil {
		return nil
	}
	return c.s.db.corrupt(fmt.Sprintf("index %q of %s", name, c.s.scope), err)
}

// isIndexThere returns an error if the manifest counts entries of an index whose bucket
// is missing, and store.ErrNoIndex if a store that was opened since has dropped it: a
// lookup in it would silently find nothing.
func isIndexThere(id string, scope *bbolt.Bucket, name string) error {
	if layout.Index(scope, name) != nil {
		return nil
	}
	m, err := layout.ReadManifest(id, scope)
	if err != nil {
		return err
	}
	state, is := m.Indexes[name]
	if !is {
		return store.ErrNoIndex
	}
	if state.Tally.Count > 0 {
		return fmt.Errorf("%d entries are missing", state.Tally.Count)
	}
	return nil
}
