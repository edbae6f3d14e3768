package bolt

import (
	"fmt"
	"maps"
	"slices"
	"time"

	bbolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
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
	format       = formatPrefix + "1"
)

// tally is the number of entries of a bucket and the sum of their CRC-32Cs. The sum is
// additive: one changed entry costs one subtraction and one addition, in the transaction
// that changes it. bbolt has checksums only for its meta pages, so only the tally shows a
// lost entry.
type tally struct {
	Count uint64 `msgpack:"c"`
	Sum   uint64 `msgpack:"s"`
}

func (t *tally) add(sum uint32)    { t.Count++; t.Sum += uint64(sum) }
func (t *tally) remove(sum uint32) { t.Count--; t.Sum -= uint64(sum) }

// indexState describes one stored index. Ready is false while its entries are being built
// from existing objects.
type indexState struct {
	Identity string `msgpack:"i"`
	Ready    bool   `msgpack:"r"`
	Tally    tally  `msgpack:"t"`
}

// manifest describes a scope. It changes in the same transaction as the scope.
type manifest struct {
	Cluster       string `msgpack:"cluster"`
	Resource      string `msgpack:"resource"`
	Group         string `msgpack:"group"`
	Version       string `msgpack:"version"`
	Kind          string `msgpack:"kind"`
	Namespace     string `msgpack:"namespace"`
	LabelSelector string `msgpack:"labels"`
	FieldSelector string `msgpack:"fields"`
	Form          uint8  `msgpack:"form"`

	Codec       string `msgpack:"codec"`
	Fingerprint string `msgpack:"type"`
	Transform   string `msgpack:"transform"`

	RV       string    `msgpack:"rv"`
	Reason   string    `msgpack:"reason"` // why RV is empty
	Time     time.Time `msgpack:"time"`   // of RV or Reason
	Complete bool      `msgpack:"complete"`

	Keys string `msgpack:"keys,omitempty"` // id of the keyring; "" if not encrypted

	Headers      tally                 `msgpack:"headers"`
	Objects      tally                 `msgpack:"objects"`
	Bytes        int64                 `msgpack:"bytes"` // of the records
	Dictionaries tally                 `msgpack:"dictionaries"`
	Departed     departedState         `msgpack:"departed"`
	Indexes      map[string]indexState `msgpack:"indexes"`
}

func newManifest(s store.Scope) *manifest {
	return &manifest{
		Cluster: s.Cluster, Resource: s.Resource,
		Group: s.Kind.Group, Version: s.Kind.Version, Kind: s.Kind.Kind,
		Namespace: s.Namespace, LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
		Form:    uint8(s.Form),
		Indexes: map[string]indexState{},
	}
}

func (m *manifest) scope() store.Scope {
	return store.Scope{
		Cluster: m.Cluster, Resource: m.Resource,
		Kind:      schema.GroupVersionKind{Group: m.Group, Version: m.Version, Kind: m.Kind},
		Namespace: m.Namespace, LabelSelector: m.LabelSelector, FieldSelector: m.FieldSelector,
		Form: store.Form(m.Form),
	}
}

// sealedWith returns the keyring that opens the stored content, or "" if nothing is
// sealed, for example after a wipe, which also drops the keys.
func (m *manifest) sealedWith() string {
	if m.Headers.Count == 0 && m.Departed.Tally.Count == 0 {
		return ""
	}
	return m.Keys
}

func (m *manifest) checkpoint() store.Checkpoint {
	return store.Checkpoint{RV: m.RV, Reason: m.Reason, Time: m.Time}
}

func (m *manifest) setCheckpoint(c store.Checkpoint) {
	m.RV, m.Reason, m.Time = c.RV, c.Reason, c.Time
}

func (m *manifest) indexNames() []string {
	return slices.Sorted(maps.Keys(m.Indexes))
}

// readManifest returns the manifest of a scope's bucket. It returns an error if the
// manifest belongs to a bucket of another name.
func readManifest(id string, b *bbolt.Bucket) (*manifest, error) {
	m := &manifest{}
	if err := unseal(b.Get(keyManifest), m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if got := m.scope().ID(); got != id {
		return nil, fmt.Errorf("manifest of scope %s", got)
	}
	if m.Indexes == nil {
		m.Indexes = map[string]indexState{}
	}
	return m, nil
}

func (m *manifest) write(b *bbolt.Bucket) error {
	data, err := sealed(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	return b.Put(keyManifest, data)
}

// scopeTally returns the tally of the ids of the stored scopes.
func scopeTally(tx *bbolt.Tx) (t tally, err error) {
	scopes := tx.Bucket(bucketScope)
	if scopes == nil {
		return t, nil
	}
	return t, scopes.ForEachBucket(func(id []byte) error {
		t.add(checksum(id))
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
	data, err := sealed(t)
	if err != nil {
		return fmt.Errorf("encode tally of scopes: %w", err)
	}
	return tx.Bucket(bucketMeta).Put(keyScopes, data)
}

func checkScopeTally(tx *bbolt.Tx) error {
	var want tally
	if err := unseal(tx.Bucket(bucketMeta).Get(keyScopes), &want); err != nil {
		return fmt.Errorf("tally of scopes: %w", err)
	}
	got, err := scopeTally(tx)
	if err == nil && got != want {
		err = fmt.Errorf("%d scopes instead of %d", got.Count, want.Count)
	}
	return err
}
