package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/informctl/informctl/store"
)

// Header contains what must be known about an object without decoding it: a relist
// compares hashes, a label selector filters, and an update finds the index values that it
// replaces. Old index values are never computed from an old object, because the function
// may have changed. The tags say what AppendFields writes.
type Header struct {
	UID    string            `msgpack:"u"`
	RV     string            `msgpack:"r"`
	Labels map[string]string `msgpack:"l"`
	Hash   []byte            `msgpack:"h"` // of the payload before compression
	Size   int64             `msgpack:"s"` // of the payload before compression
	// Index maps index names to values. It contains stored indexes only.
	Index map[string][]string `msgpack:"i"`
	// Created is the creation timestamp in seconds since 1970. 0 means unknown: the
	// object has none, or was written before headers contained it.
	Created int64 `msgpack:"c,omitempty"`
	// Name is the object's own key, if it differs from the file key: see FileKey.
	Name string `msgpack:"n,omitempty"`

	// In the file of an encrypted scope, Sealed contains UID, RV, Labels, Index and
	// Created. Index is also present outside of Sealed, with HMACs as values. Hash is an
	// HMAC.
	DataKey uint64 `msgpack:"k,omitempty"`
	Sealed  []byte `msgpack:"x,omitempty"`
}

// PayloadHash returns a hash that is short enough to be kept for every object and long
// enough that two contents never share it by chance.
func PayloadHash(payload []byte) []byte {
	h := sha256.Sum256(payload)
	return h[:16]
}

// IsAnother reports whether the headers are known to be of two objects: one has taken the
// name of the other.
func (h *Header) IsAnother(than *Header) bool {
	return h.UID != "" && than.UID != "" && h.UID != than.UID
}

// SameContent reports whether the stored header h describes the same object as now, with
// the same index values. It does not compare resource versions: a new default of a CRD
// changes objects without a new resource version.
func (h *Header) SameContent(now *Header) bool {
	if !bytes.Equal(h.Hash, now.Hash) {
		return false
	}
	for name, values := range now.Index {
		if !slices.Equal(values, h.Index[name]) {
			return false
		}
	}
	return true
}

// Encode returns the header with its CRC-32C in front. The sum covers the key although
// the bytes do not contain it, for the same reason that a record contains its key.
func (h *Header) Encode(key string) []byte {
	b := h.AppendFields(make([]byte, 4, 256))
	binary.LittleEndian.PutUint32(b, headerSum(key, b))
	return b
}

// Public returns the store.Header of a header. key is the file key or the object's own
// key.
func (h *Header) Public(key string) store.Header {
	if h.Name != "" {
		key = h.Name
	}
	out := store.Header{Key: key, UID: h.UID, RV: h.RV, Labels: h.Labels, Bytes: h.Size}
	if h.Created != 0 {
		out.Created = time.Unix(h.Created, 0)
	}
	return out
}

func headerSum(key string, b []byte) uint32 {
	return Checksum(b[4:]) ^ Checksum([]byte(key))
}

// DecodeHeader checks and decodes the header that is stored under key.
func DecodeHeader(key string, b []byte) (*Header, error) {
	if err := checkHeader(key, b); err != nil {
		return nil, err
	}
	return DecodeFields(b[4:])
}

func checkHeader(key string, b []byte) error {
	if len(b) < 4 {
		return ErrShort
	}
	if got, want := headerSum(key, b), Sum(b); got != want {
		return fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	return nil
}

// Marshal returns v as msgpack after four bytes of CRC-32C.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	buf.Write(make([]byte, 4))
	enc := msgpack.NewEncoder(&buf)
	enc.SetSortMapKeys(true)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	b := buf.Bytes()
	binary.LittleEndian.PutUint32(b, Checksum(b[4:]))
	return b, nil
}

// Unmarshal checks b and decodes it into v.
func Unmarshal(b []byte, v any) error {
	if len(b) < 4 {
		return ErrShort
	}
	if got, want := Checksum(b[4:]), Sum(b); got != want {
		return fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	return msgpack.Unmarshal(b[4:], v)
}
