package bolt

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// seal encrypts one scope. Records and headers are sealed with AES-256-GCM, bound to the
// scope, the bucket, the object's key and the clear fields of the record or header, so
// that none can replace another. Values that are compared without decryption are
// HMAC-SHA-256: the hash of a payload, bound to the object's key, and index values, bound
// to the index name. A nil seal means that the scope is not encrypted.
type seal struct {
	err         error // why nothing can be decrypted: a reader does not have the key
	keys        *keyring
	scope       string // the scope's id
	hash, index []byte // HMAC keys
}

// These are the places that sealed bytes are bound to.
const (
	inScope    = 0
	inStaging  = 1
	inDeparted = 2
)

func newSeal(keys *keyring, scope string) (*seal, error) {
	s := &seal{keys: keys, scope: scope}
	for purpose, key := range map[string]*[]byte{"hash": &s.hash, "index": &s.index} {
		var err error
		if *key, err = hkdf.Key(sha256.New, keys.root[:], nil, "informctl "+purpose+" "+scope, sha256.Size); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// keysID returns the keyring id for the manifest, or "" if the scope is not encrypted.
func (s *seal) keysID() string {
	if s == nil {
		return ""
	}
	return s.keys.id
}

// persistKeys writes the keys. It is called in each transaction that writes sealed
// content.
func (s *seal) persistKeys(tx *bbolt.Tx) error {
	if s == nil {
		return nil
	}
	return s.keys.persist(tx)
}

// sealOf returns the seal for opening a scope. It depends on the stored manifest and on
// the options.
func (d *DB) sealOf(scope store.Scope) (*seal, error) {
	stored := record.NewManifest(scope)
	id := scope.ID()
	err := d.view("manifest", func(tx *bbolt.Tx) error {
		scopes := tx.Bucket(bucketScope)
		if scopes == nil || scopes.Bucket([]byte(id)) == nil {
			return nil
		}
		m, err := readManifest(id, scopes.Bucket([]byte(id)))
		if err != nil {
			return d.corrupt("scope "+scope.String(), err)
		}
		stored = m
		return nil
	})
	if err != nil {
		return nil, err
	}
	if d.readOnly {
		return d.readersSeal(stored)
	}
	if d.opts.Keys == nil {
		if scope.IsSecret() {
			return nil, fmt.Errorf("%s: a Secret is not written to disk without a key: %w was given", scope, store.ErrNoKey)
		}
		return nil, nil
	}
	if stored.Keys == "" && !d.opts.EncryptAll && !scope.IsSecret() {
		return nil, nil
	}
	keys, err := d.loadKeys(true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", scope, err)
	}
	return newSeal(keys, id)
}

// readersSeal returns the seal for reading a scope. Without the right key it returns a
// seal whose err is set: keys and counts can be read, but no content.
func (d *DB) readersSeal(m *record.Manifest) (*seal, error) {
	id := m.SealedWith()
	if id == "" {
		return nil, nil
	}
	keys, err := d.loadKeys(false)
	if err == nil && keys.id != id {
		err = errOtherKey
	}
	if err != nil {
		return &seal{err: fmt.Errorf("%s is encrypted: %w", m.Scope(), err)}, nil
	}
	return newSeal(keys, m.Scope().ID())
}

// payloadHash returns the hash of a payload for its header.
func (s *seal) payloadHash(key string, payload []byte) []byte {
	if s == nil {
		return record.PayloadHash(payload)
	}
	return mac(s.hash, key, payload)
}

// indexValue returns the form of a value in an index bucket.
func (s *seal) indexValue(name, value string) (string, error) {
	switch {
	case s == nil:
		return value, nil
	case s.err != nil:
		return "", s.err
	}
	return string(mac(s.index, name, []byte(value))), nil
}

// mac returns an HMAC that is short enough for each object and each index entry, and long
// enough that two values never share it by chance.
func mac(key []byte, name string, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(binary.AppendUvarint(nil, uint64(len(name))))
	h.Write([]byte(name))
	h.Write(b)
	return h.Sum(nil)[:16]
}

// boundRecord returns the bytes that a record's payload is bound to.
func (s *seal) boundRecord(place byte, key string, r record.Record) []byte {
	b := append([]byte(s.scope), 'r', place, r.Codec)
	b = binary.AppendUvarint(b, r.Dictionary)
	b = binary.AppendUvarint(b, r.DataKey)
	return append(b, key...)
}

// boundHeader returns the bytes that a header is bound to.
func (s *seal) boundHeader(place byte, key string, h *record.Header) []byte {
	b := append([]byte(s.scope), 'h', place)
	b = binary.AppendUvarint(b, h.DataKey)
	b = binary.AppendUvarint(b, uint64(h.Size))
	b = append(b, h.Hash...)
	return append(b, key...)
}

// lock seals, in place, the payloads that pack has compressed. It leaves half of the
// cores to other goroutines, as pack does.
func (s *seal) lock(place byte, codecID byte, entries []*entry, out []packed) error {
	if s == nil {
		return nil
	}
	id, aead := s.keys.take(2 * len(entries))
	return parallel.DoBeside(len(entries), func(i int) error {
		e, p := entries[i], &out[i]
		if e.head == nil {
			return nil
		}
		p.dataKey = id
		r := record.Record{Codec: codecID, Dictionary: p.dictionary, DataKey: id}
		p.bytes = aead.Seal(nil, nil, p.bytes, s.boundRecord(place, e.key, r))
		secret, err := msgpack.Marshal(record.Header{UID: e.head.UID, RV: e.head.RV, Labels: e.head.Labels, Index: e.head.Index, Created: e.head.Created})
		if err != nil {
			return fmt.Errorf("encode header: %w", err)
		}
		h := &record.Header{Hash: e.head.Hash, Size: e.head.Size, DataKey: id, Name: e.head.Name, Index: make(map[string][]string, len(e.head.Index))}
		for name, values := range e.head.Index {
			hidden := make([]string, len(values))
			for j, value := range values {
				if hidden[j], err = s.indexValue(name, value); err != nil {
					return err
				}
			}
			h.Index[name] = hidden
		}
		h.Sealed = aead.Seal(nil, nil, secret, s.boundHeader(place, e.key, h))
		p.head = h
		return nil
	})
}

// lockPayload seals one payload.
func (s *seal) lockPayload(place, codecID byte, key string, p packed) packed {
	id, aead := s.keys.take(1)
	r := record.Record{Codec: codecID, Dictionary: p.dictionary, DataKey: id}
	return packed{dictionary: p.dictionary, dataKey: id, bytes: aead.Seal(nil, nil, p.bytes, s.boundRecord(place, key, r))}
}

var (
	errNotSealed = errors.New("not encrypted, in a scope that is")
	errSealed    = errors.New("encrypted, in a scope that is not")
	errForged    = errors.New("not what was sealed here")
)

// open appends the decrypted bytes to dst.
func (s *seal) open(dst []byte, id uint64, b, bound []byte) ([]byte, error) {
	aead, err := s.keys.opener(id)
	if err != nil {
		return nil, err
	}
	if dst, err = aead.Open(dst, nil, b, bound); err != nil {
		return nil, errForged
	}
	return dst, nil
}

// appendPayload appends a record's decrypted payload, which may be compressed, to dst.
func (s *seal) appendPayload(dst []byte, place byte, key string, r record.Record) ([]byte, error) {
	switch {
	case s == nil && r.DataKey == 0:
		return append(dst, r.Payload...), nil
	case s == nil:
		return nil, errSealed
	case s.err != nil:
		return nil, s.err
	case r.DataKey == 0:
		return nil, errNotSealed
	}
	return s.open(dst, r.DataKey, r.Payload, s.boundRecord(place, key, r))
}

// header returns a stored header, decrypted.
func (s *seal) header(place byte, key string, b []byte) (*record.Header, error) {
	h, err := record.DecodeHeader(key, b)
	switch {
	case err != nil || s == nil && h.DataKey == 0:
		return h, err
	case s == nil:
		return nil, errSealed
	case s.err != nil:
		return nil, s.err
	case h.DataKey == 0:
		return nil, errNotSealed
	}
	plain, err := s.open(nil, h.DataKey, h.Sealed, s.boundHeader(place, key, h))
	if err != nil {
		return nil, err
	}
	open := &record.Header{}
	if err := msgpack.Unmarshal(plain, open); err != nil {
		return nil, err
	}
	open.Hash, open.Size, open.Name = h.Hash, h.Size, h.Name
	return open, nil
}

// otherSeal returns why a scope cannot be used whose stored encryption differs from the
// requested one.
func (s *Store) otherSeal(m *record.Manifest) string {
	why := "the key that it was encrypted with is lost"
	switch {
	case s.seal == nil:
		why = "it is encrypted and no key was given"
	case m.Keys == "":
		why = "it was stored without encryption"
	}
	s.db.opts.Logger.Info("Dropping what is stored of a scope", "scope", s.scope.String(), "because", why)
	return why
}

// checkRecord returns an error if a stored record cannot be read.
func (s *Store) checkRecord(key string, b []byte) error {
	r, err := record.Decode(key, b)
	if err == nil && s.seal != nil {
		_, err = s.seal.appendPayload(nil, inScope, key, r)
	}
	return err
}

// eachIndexed calls fn with each entry of a stored index in the file. The index entries
// of an encrypted scope are HMACs, so their values are taken from the headers.
func (s *Store) eachIndexed(sn *snapshot, name string, fn func(key, value string)) error {
	if sn.scope == nil || indexBucket(sn.scope, name) == nil {
		return nil
	}
	if s.seal == nil {
		return indexBucket(sn.scope, name).ForEach(func(k, v []byte) error {
			if value, key, ok := record.ParseIndexEntry(k, v); ok {
				fn(string(key), string(value))
			}
			return nil
		})
	}
	return sn.headers.ForEach(func(k, v []byte) error {
		key := string(k)
		h, err := s.seal.header(inScope, key, v)
		if err != nil {
			return s.db.unreadable("header "+key, err)
		}
		for _, value := range h.Index[name] {
			fn(key, value)
		}
		return nil
	})
}

// unreadable returns the error of a failed read: a missing key is not damage.
func (d *DB) unreadable(where string, err error) error {
	if errors.Is(err, store.ErrNoKey) {
		return err
	}
	return d.corrupt(where, err)
}
