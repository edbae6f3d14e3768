// Package objcodec makes entries of the objects of one scope, and objects of stored
// entries. It knows the scope's codec, seal and dictionaries, and no file.
package objcodec

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// ErrNone indicates that a scope was opened without a codec, so that no object can be
// encoded.
var ErrNone = errors.New("the scope was opened without a codec")

// Codec encodes and decodes the objects of one scope. It is safe for concurrent use. The
// exported fields are set before it is used.
type Codec struct {
	Scope store.Scope
	Codec codec.Codec // nil: objects are only decoded, by the codec that a record names
	Seal  *seal.Seal  // nil if the scope is not encrypted
	// DecodesAll is set if every object is kept decoded.
	DecodesAll bool
	// Decompress appends to buf a payload that was compressed with a dictionary of the
	// scope. It returns a payload that is not compressed as it is.
	Decompress func(id uint64, payload, buf []byte) ([]byte, error)
	// Corrupt returns the error of damaged content, and Unreadable that of a record that
	// cannot be read, because of damage or because a key is missing.
	Corrupt, Unreadable func(where string, err error) error

	Encodes, Decodes Work
}

// Work counts operations and their time.
type Work struct{ count, took atomic.Int64 }

// Add counts n operations that began at the given time and end now.
func (w *Work) Add(n int64, began time.Time) {
	w.count.Add(n)
	w.took.Add(int64(time.Since(began)))
}

// Read returns what was counted.
func (w *Work) Read() store.Work {
	return store.Work{Count: uint64(w.count.Load()), Took: time.Duration(w.took.Load())}
}

// ID returns the ID of the codec, or 0 if there is none: then only deletions can be
// written.
func (c *Codec) ID() byte {
	if c.Codec == nil {
		return 0
	}
	return c.Codec.ID()
}

// Encode returns the entry of an object, which is not changed. Its error is a
// *store.ObjectError.
func (c *Codec) Encode(obj runtime.Object) (store.Entry, error) {
	return c.entry(obj, nil, func() ([]byte, error) { return c.Payload(obj.DeepCopyObject()) })
}

// EncodedEntry returns the entry of an object as the server has sent it. Its error is a
// *store.ObjectError.
func (c *Codec) EncodedEntry(o *store.EncodedObject) (store.Entry, error) {
	return c.entry(o, o.Cell, func() ([]byte, error) { return o.Data, nil })
}

func (c *Codec) entry(obj runtime.Object, cell *store.Cell, payload func() ([]byte, error)) (store.Entry, error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return store.Entry{}, err
	}
	if c.Codec == nil {
		return store.Entry{}, &store.ObjectError{Key: key, Err: ErrNone}
	}
	b, err := payload()
	if err != nil {
		return store.Entry{}, &store.ObjectError{Key: key, Err: err}
	}
	return store.Entry{Key: key, Raw: c.raw(c.ID(), record.Packed{Bytes: b}), Cell: cell}, nil
}

// Payload encodes an object, which the codec may change. The scope must have a codec.
func (c *Codec) Payload(obj runtime.Object) ([]byte, error) {
	defer c.Encodes.Add(1, time.Now())
	return c.Codec.Encode(obj)
}

// Hash returns the hash of the content of an object, which may be encoded; nil without a
// codec.
func (c *Codec) Hash(key string, obj runtime.Object) ([]byte, error) {
	if c.Codec == nil {
		return nil, nil
	}
	if o, ok := obj.(*store.EncodedObject); ok {
		return c.Seal.PayloadHash(key, o.Data), nil
	}
	payload, err := c.Payload(obj)
	if err != nil {
		return nil, &store.ObjectError{Key: key, Err: err}
	}
	return c.Seal.PayloadHash(key, payload), nil
}

// Final encodes the final state of an object that is gone. A state that cannot be encoded
// counts as unknown.
func (c *Codec) Final(last runtime.Object) record.Packed {
	if last == nil || c.Codec == nil {
		return record.Packed{}
	}
	payload, err := c.Payload(last)
	if err != nil {
		return record.Packed{}
	}
	return record.Packed{Bytes: payload}
}

// FinalEntry returns the entry of such a state.
func (c *Codec) FinalEntry(name string, last record.Packed) store.Entry {
	return store.Entry{Key: name, Raw: c.raw(c.ID(), last)}
}

// Pending returns the entry of an object that is not written yet; one without Raw if it
// was deleted.
func (c *Codec) Pending(e *overlay.Entry) store.Entry {
	if e.Head == nil {
		return store.Entry{Key: e.Name}
	}
	return store.Entry{Key: e.Name, Raw: c.raw(cmp.Or(e.Codec, c.ID()), e.Payload)}
}

// Stored returns the entry of a record of the scope, with its file key. The result does
// not refer to the file's memory.
func (c *Codec) Stored(key string, b []byte) (store.Entry, error) {
	raw, err := c.AppendRaw(nil, key, b)
	return store.Entry{Key: key, Raw: raw}, err
}

// AppendRaw is seal.Seal.AppendRaw for a record of the scope.
func (c *Codec) AppendRaw(buf []byte, key string, b []byte) ([]byte, error) {
	raw, err := c.Seal.AppendRaw(buf, seal.InScope, key, b)
	if err != nil {
		return nil, c.Unreadable("object "+key, err)
	}
	return raw, nil
}

// Check returns an error if a stored record cannot be read.
func (c *Codec) Check(key string, b []byte) error {
	r, err := record.Decode(key, b)
	if err == nil && c.Seal != nil {
		_, err = c.Seal.AppendPayload(nil, seal.InScope, key, r)
	}
	return err
}

// raw returns the raw form of a packed payload.
func (c *Codec) raw(id byte, p record.Packed) []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen64+len(p.Bytes))
	return record.AppendRaw(b, id, p.Dictionary, p.Bytes)
}

// Decode returns the object of an entry. later is the Codec of the store that has taken
// the place of the entry's one, or nil: it is tried first.
func (c *Codec) Decode(e store.Entry, later *Codec) (runtime.Object, error) {
	switch {
	case e.Object != nil:
		return e.Object, nil
	case e.Cell != nil:
		return e.Cell.Decode(func() (runtime.Object, error) { return c.decodeEntry(e, later, !e.Cell.IsShared()) })
	default:
		return c.decodeEntry(e, later, false)
	}
}

// decodeEntry decodes an entry. isAlone means that nothing else is in the memory of its
// Raw, so that the object may keep it.
func (c *Codec) decodeEntry(e store.Entry, later *Codec, isAlone bool) (runtime.Object, error) {
	if later != nil {
		if obj, err := later.decodeEntry(e, nil, isAlone); err == nil {
			return obj, nil
		}
	}
	obj, err := c.decode(e.Raw, isAlone)
	switch {
	case c.Codec == nil && errors.Is(err, codec.ErrNoType):
		return nil, fmt.Errorf("object %s: %w", e.Key, err) // others have the type
	case err != nil:
		return nil, c.Corrupt("object "+e.Key, err)
	}
	return obj, nil
}

func (c *Codec) decode(raw []byte, isAlone bool) (runtime.Object, error) {
	defer c.Decodes.Add(1, time.Now())
	codecID, id, payload, err := record.ParseRaw(raw)
	if err != nil {
		return nil, err
	}
	// In memory of its own, because the object may refer to it.
	payload, err = c.Decompress(id, payload, nil)
	if err != nil {
		return nil, err
	}
	owned := id != dictionary.None
	if !owned && !isAlone {
		payload, owned = bytes.Clone(payload), true
	}
	switch {
	case c.Codec != nil && c.Codec.ID() == codecID:
		return codec.DecodeAliased(c.Codec, payload, owned)
	case c.Scope.Form == store.Metadata:
		return decodeMetadata(payload, owned)
	default:
		return codec.DecodeAny(codecID, c.Scope.Kind, payload)
	}
}

func decodeMetadata(payload []byte, owned bool) (runtime.Object, error) {
	c, err := codec.For(&metav1.PartialObjectMetadata{})
	if err != nil {
		return nil, err
	}
	return codec.DecodeAliased(c, payload, owned)
}
