package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// indexDepth is the depth of index/<name>: root, scope, <id>, index, <name>.
const indexDepth = 4

// thoroughness specifies which parts of a file are checked.
type thoroughness int

const (
	// leading checks everything that leads to the entries. The entries are checked when
	// they are read.
	leading thoroughness = iota
	everything
)

// preflight checks the pages of a file as thoroughly as how says.
func preflight(path string, f io.ReaderAt, size int64, how thoroughness) error {
	check := pagefile.Check{Marker: layout.FormatPrefix}
	if how == leading {
		check.Passes = holdsEntries
	}
	return pagefile.Preflight(path, f, size, check)
}

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
func (d *DB) VerifyPages(ctx context.Context) error {
	d.handleMu.RLock()
	defer d.handleMu.RUnlock()
	if d.handle == nil {
		return d.noHandle()
	}
	return preflight(d.path, untilDone{ctx, d.lock}, d.file.Size(), everything)
}

// untilDone is a file whose reads fail after ctx has ended.
type untilDone struct {
	ctx context.Context
	*os.File
}

// ReadAt implements io.ReaderAt.
func (f untilDone) ReadAt(b []byte, off int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

// verify checks the manifest of every scope and the entries: the checksum of each record
// and header, that records and headers have the same keys, and that each bucket matches
// its tally in the manifest (promise 5). It holds one transaction and ends with ctx.
func verify(ctx context.Context, path string, tx *bbolt.Tx, how thoroughness) error {
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
			err = errNoKeys
		}
		if err == nil {
			where = "scope " + m.Scope().String()
			if how == everything {
				err = verifyScope(ctx, m, b)
			}
		}
		if err != nil {
			return &store.CorruptionError{Path: path, Where: where, Err: err}
		}
		return nil
	})
}

func verifyScope(ctx context.Context, m *record.Manifest, b *bbolt.Bucket) error {
	dictionaries, err := pack.Verify(m, b)
	if err == nil {
		err = verifyFormer(ctx, m, b, dictionaries)
	}
	if err != nil {
		return err
	}
	return verifyContent(ctx, m, b, dictionaries)
}

// verifyFormer checks the former content of a scope.
func verifyFormer(ctx context.Context, m *record.Manifest, b *bbolt.Bucket, dictionaries map[uint64]bool) error {
	if b = b.Bucket(layout.Former); b == nil {
		return nil
	}
	m, err := layout.ReadManifest(m.Scope().ID(), b)
	if err == nil {
		err = verifyContent(ctx, m, b, dictionaries)
	}
	if err != nil {
		return fmt.Errorf("former content: %w", err)
	}
	return nil
}

// verifyContent checks the headers, the objects and the indexes, which may use these
// dictionaries.
func verifyContent(ctx context.Context, m *record.Manifest, b *bbolt.Bucket, dictionaries map[uint64]bool) error {
	headers, objects := b.Bucket(layout.Headers), b.Bucket(layout.Objects)
	if headers == nil || objects == nil {
		return errors.New("headers or objects are missing")
	}
	indexes := map[string]*record.Tally{} // as the headers imply
	for name := range m.Indexes {
		indexes[name] = &record.Tally{}
	}
	var err error
	var view record.HeaderView
	var entry []byte
	var headerTally, objectTally record.Tally
	uses := record.Uses{}
	h, o := headers.Cursor(), objects.Cursor()
	hk, hv := h.First()
	ok, ov := o.First()
	for hk != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		key := string(hk)
		if err = view.Set(key, hv); err == nil {
			err = view.IndexValues(func(name, value []byte) {
				if t := indexes[string(name)]; t != nil {
					entry = append(record.AppendIndexPrefix(entry[:0], value), hk...)
					t.Add(record.Checksum(entry))
				}
			})
		}
		if err != nil {
			return fmt.Errorf("header %q: %w", key, err)
		}
		headerTally.Add(record.Sum(hv))
		hk, hv = h.Next()
		if key != string(ok) {
			return fmt.Errorf("header %q stands beside object %q", key, ok)
		}
		rec, err := record.Decode(key, ov)
		if err == nil && !dictionaries[rec.Dictionary] {
			err = fmt.Errorf("dictionary %d is missing", rec.Dictionary)
		}
		if err == nil && (rec.DataKey != 0) != (m.Keys != "") {
			err = errors.New("encrypted otherwise than its scope")
		}
		if err != nil {
			return fmt.Errorf("object %q: %w", key, err)
		}
		objectTally.Add(record.Sum(ov))
		uses.Add(ov)
		ok, ov = o.Next()
	}
	if ok != nil {
		return errors.New("headers and objects are not the same number")
	}
	if headerTally != m.Headers || objectTally != m.Objects {
		return fmt.Errorf("the checksums of %d headers and %d objects do not add up to the manifest's, of %d and %d",
			headerTally.Count, objectTally.Count, m.Headers.Count, m.Objects.Count)
	}
	if !maps.Equal(uses, m.Uses) {
		return fmt.Errorf("the dictionaries of the objects are used %v times; the manifest says %v", uses, m.Uses)
	}
	return verifyIndexes(m, b, indexes)
}

func verifyIndexes(m *record.Manifest, b *bbolt.Bucket, fromHeaders map[string]*record.Tally) error {
	for name, state := range m.Indexes {
		if !state.Ready {
			continue // built again when the scope is opened
		}
		var t record.Tally
		if bucket := layout.Index(b, name); bucket != nil {
			c := bucket.Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if _, _, ok := record.ParseIndexEntry(k, v); !ok {
					return fmt.Errorf("index %q has a key that is not an entry", name)
				}
				t.Add(record.Checksum(k))
			}
		}
		if implied := *fromHeaders[name]; t != state.Tally || t != implied {
			if t.Count == state.Tally.Count && t.Count == implied.Count {
				return fmt.Errorf("index %q has %w", name, errOtherEntries(t))
			}
			return fmt.Errorf("index %q has %d entries; the manifest says %d, the headers %d",
				name, t.Count, state.Tally.Count, implied.Count)
		}
	}
	return nil
}

// errOtherEntries describes damage that does not change the number of entries.
func errOtherEntries(t record.Tally) error {
	return fmt.Errorf("%d entries, as many as there should be, but not the same", t.Count)
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
				err = verifyScope(context.Background(), m, b)
			}
			for _, name := range [][]byte{layout.Headers, layout.Objects} {
				if err == nil {
					err = pagefile.CheckBucket(s.db.lock, uint64(b.Bucket(name).Root()))
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
func (s *scopeStore) verifyIndex(sn *snapshot, name string) error {
	if sn.scope == nil {
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
	m, err := layout.ReadManifest(s.id, sn.scope)
	if err == nil {
		var t record.Tally
		if b := layout.Index(sn.scope, name); b != nil {
			c := b.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				t.Add(record.Checksum(k))
			}
			err = pagefile.CheckBucket(s.db.lock, uint64(b.Root()))
		}
		if want := m.Indexes[name].Tally; err == nil && t != want {
			err = fmt.Errorf("%d entries instead of %d", t.Count, want.Count)
			if t.Count == want.Count {
				err = errOtherEntries(t)
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
func (s *scopeStore) isIndexThere(sn *snapshot, name string) error {
	if layout.Index(sn.scope, name) != nil {
		return nil
	}
	m, err := layout.ReadManifest(s.id, sn.scope)
	if err == nil && m.Indexes[name].Tally.Count > 0 {
		err = fmt.Errorf("%d entries are missing", m.Indexes[name].Tally.Count)
	}
	if err != nil {
		return s.db.corrupt(fmt.Sprintf("index %q of %s", name, s.scope), err)
	}
	return nil
}
