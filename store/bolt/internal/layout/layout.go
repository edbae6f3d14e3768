// Package layout says what is where in the file: the names of buckets, the manifest of a
// scope, and the tally of scopes. ARCHITECTURE.md shows all of it.
package layout

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/record"
)

// These are the names of the buckets and keys of the file.
var (
	Meta       = []byte("meta")
	KeyFormat  = []byte("format")
	KeyEpoch   = []byte("epoch")
	keyCreated = []byte("created")
	keyScopes  = []byte("scopes")
	Ledger     = []byte("ledger") // in Meta; has a bucket for each name
	// keyReached is in Meta, and has the resource versions that dropped scopes had
	// reached, by id.
	keyReached = []byte("reached")

	Scopes       = []byte("scope") // has a bucket for each scope, by id
	keyManifest  = []byte("manifest")
	Headers      = []byte("headers")
	Objects      = []byte("objects")
	Indexes      = []byte("index") // has a bucket for each index
	Dictionaries = []byte("dictionaries")
	Log          = []byte("log")
	Staging      = []byte("staging") // differing objects of a list
	Former       = []byte("former")  // headers, objects and manifest of earlier content
)

// Format is stored under meta/format. It is a sentence, so that a file without valid meta
// pages can still be recognized as ours.
const (
	FormatPrefix = "informctl cache format "
	Format       = FormatPrefix + "2"
)

// ReadManifest returns the manifest of a scope's bucket. It returns an error if the
// manifest belongs to a bucket of another name.
func ReadManifest(id string, b *bbolt.Bucket) (*record.Manifest, error) {
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

// CreateContent creates the buckets of an empty content, and writes its manifest.
func CreateContent(b *bbolt.Bucket, m *record.Manifest) error {
	for _, name := range [][]byte{Headers, Objects} {
		if _, err := b.CreateBucket(name); err != nil {
			return err
		}
	}
	return WriteManifest(b, m)
}

// WriteManifest writes the manifest of a scope's bucket.
func WriteManifest(b *bbolt.Bucket, m *record.Manifest) error {
	data, err := record.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	return b.Put(keyManifest, data)
}

// scopeTally returns the tally of the ids of the stored scopes.
func scopeTally(tx *bbolt.Tx) (t record.Tally, err error) {
	scopes := tx.Bucket(Scopes)
	if scopes == nil {
		return t, nil
	}
	return t, scopes.ForEachBucket(func(id []byte) error {
		t.Add(record.Checksum(id))
		return nil
	})
}

// WriteScopeTally is called in every transaction that adds or drops a scope. Without the
// tally a lost scope would look as if it had never been stored.
func WriteScopeTally(tx *bbolt.Tx) error {
	t, err := scopeTally(tx)
	if err != nil {
		return err
	}
	data, err := record.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode tally of scopes: %w", err)
	}
	return tx.Bucket(Meta).Put(keyScopes, data)
}

// CheckScopeTally returns an error if scopes are missing.
func CheckScopeTally(tx *bbolt.Tx) error {
	var want record.Tally
	if err := record.Unmarshal(tx.Bucket(Meta).Get(keyScopes), &want); err != nil {
		return fmt.Errorf("tally of scopes: %w", err)
	}
	got, err := scopeTally(tx)
	if err == nil && got != want {
		err = fmt.Errorf("%d scopes instead of %d", got.Count, want.Count)
	}
	return err
}

// IsFormat reports whether name is the format of some version of this program.
func IsFormat(name []byte) bool {
	version, ok := bytes.CutPrefix(name, []byte(FormatPrefix))
	_, err := strconv.ParseUint(string(version), 10, 16)
	return ok && err == nil
}

// CreateMeta creates the meta bucket of an empty file of an epoch.
func CreateMeta(tx *bbolt.Tx, epoch string) error {
	meta, err := tx.CreateBucket(Meta)
	if err != nil {
		return err
	}
	if err := meta.Put(keyCreated, []byte(time.Now().UTC().Format(time.RFC3339))); err != nil {
		return err
	}
	if epoch != "" {
		if err := meta.Put(KeyEpoch, []byte(epoch)); err != nil {
			return err
		}
	}
	return meta.Put(KeyFormat, []byte(Format))
}

// OnlyOurs returns an error if the root contains anything other than our buckets.
func OnlyOurs(tx *bbolt.Tx) error {
	c := tx.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if v != nil || !bytes.Equal(k, Meta) && !bytes.Equal(k, Scopes) {
			return errors.New("a bucket is missing")
		}
	}
	return nil
}

// Scope returns the bucket of a scope, nil if there is none.
func Scope(tx *bbolt.Tx, id string) *bbolt.Bucket {
	if scopes := tx.Bucket(Scopes); scopes != nil {
		return scopes.Bucket([]byte(id))
	}
	return nil
}

// Index returns the bucket of a stored index, nil if there is none.
func Index(scope *bbolt.Bucket, name string) *bbolt.Bucket {
	if b := scope.Bucket(Indexes); b != nil {
		return b.Bucket([]byte(name))
	}
	return nil
}
