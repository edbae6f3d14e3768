package seal

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Seal encrypts one scope. Records and headers are sealed with AES-256-GCM, bound to the
// scope, the bucket, the object's key and the clear fields of the record or header, so
// that none can replace that of another object. Values that are compared without
// decryption are HMAC-SHA-256: the hash of a payload, bound to the object's key, and
// index values, bound to the index name. A nil Seal means that the scope is not
// encrypted. It is safe for concurrent use.
type Seal struct {
	err         error // why nothing can be decrypted: a reader does not have the key
	keys        *Keyring
	scope       string // the scope's id
	hash, index []byte // HMAC keys
}

// Place is a bucket that sealed bytes are bound to.
type Place byte

// These are the places.
const (
	InScope Place = iota
	InStaging
	InDeparted
)

// For returns the Seal of a scope.
func For(keys *Keyring, scope string) (*Seal, error) {
	s := &Seal{keys: keys, scope: scope}
	for purpose, key := range map[string]*[]byte{"hash": &s.hash, "index": &s.index} {
		var err error
		if *key, err = hkdf.Key(sha256.New, keys.root[:], nil, "informctl "+purpose+" "+scope, sha256.Size); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Unreadable returns a Seal that decrypts nothing: its methods return err.
func Unreadable(err error) *Seal { return &Seal{err: err} }

// Err returns why nothing can be decrypted; nil if it can.
func (s *Seal) Err() error { return s.err }

// KeysID returns the keyring id for the manifest, or "" if the scope is not encrypted.
func (s *Seal) KeysID() string {
	if s == nil {
		return ""
	}
	return s.keys.id
}

// Persist writes the keys. It is called in each transaction that writes sealed content.
func (s *Seal) Persist(tx *bbolt.Tx) error {
	if s == nil {
		return nil
	}
	return s.keys.Persist(tx)
}

// PayloadHash returns the hash of a payload for its header.
func (s *Seal) PayloadHash(key string, payload []byte) []byte {
	if s == nil {
		return record.PayloadHash(payload)
	}
	return mac(s.hash, key, payload)
}

// IndexValue returns the form of a value in an index bucket.
func (s *Seal) IndexValue(name, value string) (string, error) {
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
func (s *Seal) boundRecord(place Place, key string, r record.Record) []byte {
	b := append([]byte(s.scope), 'r', byte(place), r.Codec)
	b = binary.AppendUvarint(b, r.Dictionary)
	b = binary.AppendUvarint(b, r.DataKey)
	return append(b, key...)
}

// boundHeader returns the bytes that a header is bound to.
func (s *Seal) boundHeader(place Place, key string, h *record.Header) []byte {
	b := append([]byte(s.scope), 'h', byte(place))
	b = binary.AppendUvarint(b, h.DataKey)
	b = binary.AppendUvarint(b, uint64(h.Size))
	b = append(b, h.Hash...)
	return append(b, key...)
}

// Sealer seals records and headers with one data key. It is safe for concurrent use.
type Sealer struct {
	s    *Seal
	id   uint64
	aead cipher.AEAD
}

// Begin returns a Sealer for n seals. Each record and each header is one. The scope must
// be encrypted.
func (s *Seal) Begin(n int) Sealer {
	id, aead := s.keys.take(n)
	return Sealer{s, id, aead}
}

// Record seals the payload of a record.
func (x Sealer) Record(place Place, key string, r record.Record) record.Record {
	r.DataKey = x.id
	r.Payload = x.aead.Seal(nil, nil, r.Payload, x.s.boundRecord(place, key, r))
	return r
}

// Header seals a header.
func (x Sealer) Header(place Place, key string, plain *record.Header) (*record.Header, error) {
	secret := (&record.Header{UID: plain.UID, RV: plain.RV, Labels: plain.Labels, Index: plain.Index, Created: plain.Created}).AppendFields(nil)
	h := &record.Header{Hash: plain.Hash, Size: plain.Size, DataKey: x.id, Name: plain.Name, Index: make(map[string][]string, len(plain.Index))}
	for name, values := range plain.Index {
		hidden := make([]string, len(values))
		for i, value := range values {
			var err error
			if hidden[i], err = x.s.IndexValue(name, value); err != nil {
				return nil, err
			}
		}
		h.Index[name] = hidden
	}
	h.Sealed = x.aead.Seal(nil, nil, secret, x.s.boundHeader(place, key, h))
	return h, nil
}

var (
	errNotSealed = errors.New("not encrypted, in a scope that is")
	errSealed    = errors.New("encrypted, in a scope that is not")
	errForged    = errors.New("not what was sealed here")
)

// open appends the decrypted bytes to dst.
func (s *Seal) open(dst []byte, id uint64, b, bound []byte) ([]byte, error) {
	now, wiped := s.keys.openers(id)
	if now == nil && wiped == nil {
		return nil, fmt.Errorf("data key %d is missing", id)
	}
	for _, aead := range []cipher.AEAD{now, wiped} {
		if aead == nil {
			continue
		}
		if plain, err := aead.Open(dst, nil, b, bound); err == nil {
			return plain, nil
		}
	}
	return nil, errForged
}

// AppendPayload appends a record's decrypted payload, which may be compressed, to dst.
func (s *Seal) AppendPayload(dst []byte, place Place, key string, r record.Record) ([]byte, error) {
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

// Header returns a stored header, decrypted.
func (s *Seal) Header(place Place, key string, b []byte) (*record.Header, error) {
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
	open, err := record.DecodeFields(plain)
	if err != nil {
		return nil, err
	}
	open.Hash, open.Size, open.Name = h.Hash, h.Size, h.Name
	return open, nil
}

// AppendRaw checks a stored record and appends its raw form. It uses the capacity of buf
// beyond its length: as many bytes as the record has are enough.
func (s *Seal) AppendRaw(buf []byte, place Place, key string, stored []byte) ([]byte, error) {
	r, err := record.Decode(key, stored)
	if err != nil {
		return nil, err
	}
	if buf = buf[len(buf):]; cap(buf) < len(stored) {
		buf = make([]byte, 0, len(stored))
	}
	if buf, err = s.AppendPayload(record.AppendRawHead(buf, r.Codec, r.Dictionary), place, key, r); err != nil {
		return nil, err
	}
	return slices.Clip(buf), nil
}
