package record

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
)

// Tally is the number of entries of a bucket and the sum of their CRC-32Cs. The sum is
// additive: one changed entry costs one subtraction and one addition, in the transaction
// that changes it. bbolt has checksums only for its meta pages, so only the tally shows a
// lost entry.
type Tally struct {
	Count uint64 `msgpack:"c"`
	Sum   uint64 `msgpack:"s"`
}

// Add counts an entry with the given CRC-32C.
func (t *Tally) Add(sum uint32) { t.Count++; t.Sum += uint64(sum) }

// Remove is the inverse of Add.
func (t *Tally) Remove(sum uint32) { t.Count--; t.Sum -= uint64(sum) }

// IndexState describes one stored index. Ready is false while its entries are being built
// from existing objects.
type IndexState struct {
	Identity string `msgpack:"i"`
	Ready    bool   `msgpack:"r"`
	Tally    Tally  `msgpack:"t"`
	// Since is the number in the log behind which the entries follow each change.
	Since uint64 `msgpack:"n,omitempty"`
}

// Manifest describes a scope. It changes in the same transaction as the scope.
type Manifest struct {
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

	Headers      Tally                 `msgpack:"headers"`
	Objects      Tally                 `msgpack:"objects"`
	Bytes        int64                 `msgpack:"bytes"` // of the records
	Dictionaries Tally                 `msgpack:"dictionaries"`
	Uses         Uses                  `msgpack:"uses"`
	Log          LogState              `msgpack:"log"`
	Indexes      map[string]IndexState `msgpack:"indexes"`
}

// Uses is the number of records in the objects bucket by the dictionary that they are
// compressed with, 0 for none. Each number is at least 1.
type Uses map[uint64]uint64

// Add counts an intact record.
func (u Uses) Add(rec []byte) { u[dictionaryOf(rec)]++ }

// Remove is the inverse of Add.
func (u Uses) Remove(rec []byte) {
	id := dictionaryOf(rec)
	if u[id]--; u[id] == 0 {
		delete(u, id)
	}
}

// NewManifest returns the manifest of a scope without content.
func NewManifest(s store.Scope) *Manifest {
	return &Manifest{
		Cluster: s.Cluster, Resource: s.Resource,
		Group: s.Kind.Group, Version: s.Kind.Version, Kind: s.Kind.Kind,
		Namespace: s.Namespace, LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
		Form:    uint8(s.Form),
		Uses:    Uses{},
		Indexes: map[string]IndexState{},
	}
}

// Scope returns the described scope.
func (m *Manifest) Scope() store.Scope {
	return store.Scope{
		Cluster: m.Cluster, Resource: m.Resource,
		Kind:      schema.GroupVersionKind{Group: m.Group, Version: m.Version, Kind: m.Kind},
		Namespace: m.Namespace, LabelSelector: m.LabelSelector, FieldSelector: m.FieldSelector,
		Form: store.Form(m.Form),
	}
}

// SealedWith returns the keyring that opens the stored content, or "" if nothing is
// sealed, for example after a wipe, which also drops the keys.
func (m *Manifest) SealedWith() string {
	if m.Headers.Count == 0 && m.Log.Entries == 0 {
		return ""
	}
	return m.Keys
}

// Checkpoint returns the stored checkpoint.
func (m *Manifest) Checkpoint() store.Checkpoint {
	return store.Checkpoint{RV: m.RV, Reason: m.Reason, Time: m.Time}
}

// SetCheckpoint sets the checkpoint to store.
func (m *Manifest) SetCheckpoint(c store.Checkpoint) {
	m.RV, m.Reason, m.Time = c.RV, c.Reason, c.Time
}

// IndexNames returns the names of the stored indexes, in order.
func (m *Manifest) IndexNames() []string {
	return slices.Sorted(maps.Keys(m.Indexes))
}
