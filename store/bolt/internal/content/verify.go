package content

import (
	"context"
	"errors"
	"fmt"
	"maps"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Verify checks the dictionaries, the former content and the content of a scope: the
// checksum of each record and header, that they have the same keys, and that each bucket
// matches its tally in the manifest. It ends with ctx.
func Verify(ctx context.Context, m *record.Manifest, b *bbolt.Bucket) error {
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
				return fmt.Errorf("index %q has %w", name, OtherEntries(t))
			}
			return fmt.Errorf("index %q has %d entries; the manifest says %d, the headers %d",
				name, t.Count, state.Tally.Count, implied.Count)
		}
	}
	return nil
}

// OtherEntries describes damage that does not change the number of entries.
func OtherEntries(t record.Tally) error {
	return fmt.Errorf("%d entries, as many as there should be, but not the same", t.Count)
}
