package bolt

import (
	"cmp"
	"slices"
	"strings"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Scopes implements store.Backend.
func (d *DB) Scopes() ([]store.Info, error) {
	var infos []store.Info
	var damaged error
	err := d.view("scopes", func(tx *bbolt.Tx) error {
		scopes := tx.Bucket(layout.Scopes)
		if scopes == nil {
			return nil
		}
		return scopes.ForEachBucket(func(id []byte) error {
			b := scopes.Bucket(id)
			m, err := layout.ReadManifest(string(id), b)
			if err != nil {
				damaged = cmp.Or(damaged, d.corrupt("scope "+string(id), err))
				return nil
			}
			info := store.Info{
				ID: string(id), Scope: m.Scope(), Objects: int(m.Objects.Count), Bytes: m.Bytes,
				Codec: m.Codec, TypeFingerprint: m.Fingerprint, TransformVersion: m.Transform,
				Checkpoint: m.Checkpoint(), Complete: m.Complete, Encrypted: m.Keys != "",
			}
			info.Log = store.LogInfo{Entries: int(m.Log.Entries), Bytes: m.Log.Bytes, Dropped: m.Log.Dropped, Unlogged: m.Log.Unlogged}
			info.Log.Begins = changelog.Begin(b)
			for _, name := range m.IndexNames() {
				if !m.Indexes[name].Ready {
					continue // built again when an informer opens the scope
				}
				info.Indexes = append(info.Indexes, store.IndexInfo{
					Name: name, Identity: m.Indexes[name].Identity, Values: countValues(b, name),
				})
			}
			infos = append(infos, info)
			return nil
		})
	})
	slices.SortFunc(infos, func(a, b store.Info) int { return strings.Compare(sortKey(a.Scope), sortKey(b.Scope)) })
	return infos, cmp.Or(err, damaged)
}

func sortKey(s store.Scope) string {
	return strings.Join([]string{s.Resource, s.Namespace, s.LabelSelector, s.FieldSelector, s.Form.String(), s.Cluster, s.Kind.Version}, "\x00")
}

// countValues counts the distinct values of a stored index. It seeks past the entries of
// each value.
func countValues(scope *bbolt.Bucket, name string) int {
	b := layout.Index(scope, name)
	if b == nil {
		return 0
	}
	n := 0
	c := b.Cursor()
	for k, v := c.First(); k != nil; n++ {
		value, _, ok := record.ParseIndexEntry(k, v)
		if !ok {
			break
		}
		k, v = c.Seek(append(record.AppendIndexPrefix(nil, value), 0xFF, 0xFF, 0xFF, 0xFF))
	}
	return n
}
