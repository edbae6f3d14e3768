package bolt

import (
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/record"
)

// These are the names of the buckets and keys of the file.
var (
	bucketMeta    = []byte("meta")
	keyFormat     = []byte("format")
	keyEpoch      = []byte("epoch")
	keyCreated    = []byte("created")
	keyScopes     = []byte("scopes")
	bucketScope   = []byte("scope")
	keyManifest   = []byte("manifest")
	bucketHeaders = []byte("headers")
	bucketObjects = []byte("objects")
	bucketIndex   = []byte("index")
	bucketStaging = []byte("staging")
)

// format is stored under meta/format. It is a sentence, so that a file without valid meta
// pages can still be recognized as ours.
const (
	formatPrefix = "informctl cache format "
	format       = formatPrefix + "2"
)

// readManifest returns the manifest of a scope's bucket. It returns an error if the
// manifest belongs to a bucket of another name.
func readManifest(id string, b *bbolt.Bucket) (*record.Manifest, error) {
	m := &record.Manifest{}
	if err := record.Unmarshal(b.Get(keyManifest), m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if got := m.Scope().ID(); got != id {
		return nil, fmt.Errorf("manifest of scope %s", got)
	}
	if m.Indexes == nil {
		m.Indexes = map[string]record.IndexState{}
	}
	if m.Uses == nil {
		m.Uses = record.Uses{}
	}
	return m, nil
}

func writeManifest(b *bbolt.Bucket, m *record.Manifest) error {
	data, err := record.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	return b.Put(keyManifest, data)
}

// scopeTally returns the tally of the ids of the stored scopes.
func scopeTally(tx *bbolt.Tx) (t record.Tally, err error) {
	scopes := tx.Bucket(bucketScope)
	if scopes == nil {
		return t, nil
	}
	return t, scopes.ForEachBucket(func(id []byte) error {
		t.Add(record.Checksum(id))
		return nil
	})
}

// writeScopeTally is called in every transaction that adds or drops a scope. Without the
// tally a lost scope would look as if it had never been stored.
func writeScopeTally(tx *bbolt.Tx) error {
	t, err := scopeTally(tx)
	if err != nil {
		return err
	}
	data, err := record.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode tally of scopes: %w", err)
	}
	return tx.Bucket(bucketMeta).Put(keyScopes, data)
}

func checkScopeTally(tx *bbolt.Tx) error {
	var want record.Tally
	if err := record.Unmarshal(tx.Bucket(bucketMeta).Get(keyScopes), &want); err != nil {
		return fmt.Errorf("tally of scopes: %w", err)
	}
	got, err := scopeTally(tx)
	if err == nil && got != want {
		err = fmt.Errorf("%d scopes instead of %d", got.Count, want.Count)
	}
	return err
}
