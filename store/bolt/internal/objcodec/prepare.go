package objcodec

import (
	"errors"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// PrepareChange returns the overlay's entry of a change. Its error is a
// *store.ObjectError.
func (c *Codec) PrepareChange(in *indexes.Set, change store.Change) (*overlay.Entry, error) {
	if change.IsDeletion() && change.Key == "" {
		return nil, &store.ObjectError{Err: errors.New("deletion without a key")}
	}
	e := &overlay.Entry{Key: record.FileKey(change.Key), Name: change.Key, Indexes: in}
	if !change.IsDeletion() {
		var err error
		if e, err = c.PrepareEntry(in, change.Entry()); err != nil {
			return nil, err
		}
	}
	e.DeletedAt = change.RV
	switch {
	case change.Departs:
		e.Departing, e.Last = true, c.Final(change.Last)
	case change.IsDeletion() && change.Short.Key != "":
		// A state that cannot be encoded counts as unknown.
		if e.Before, _ = c.PrepareEntry(&indexes.Set{}, change.Short); e.Before != nil {
			e.Before.Object, e.Before.Encoded = nil, store.Entry{}
		}
	}
	return e, nil
}

// PrepareListed returns the overlay's entry of an object of a list, which may be encoded.
func (c *Codec) PrepareListed(in *indexes.Set, obj runtime.Object) (*overlay.Entry, error) {
	o, ok := obj.(*store.EncodedObject)
	if !ok {
		return c.Prepare(in, "", obj, nil)
	}
	e, err := c.EncodedEntry(o)
	if err != nil {
		return nil, err
	}
	return c.PrepareEntry(in, e)
}

// PrepareEntry returns the overlay's entry of an object, which may be encoded.
func (c *Codec) PrepareEntry(in *indexes.Set, e store.Entry) (*overlay.Entry, error) {
	if payload, m, ok := c.message(e); ok {
		return c.prepareMessage(in, e, payload, m)
	}
	obj, err := c.Decode(e, nil)
	if err != nil {
		return nil, &store.ObjectError{Key: e.Key, Err: err}
	}
	return c.Prepare(in, e.Key, obj, nil)
}

// Prepare encodes an object and computes its index values. If key is "", it computes the
// key from the object. indexes.Set.Values explains failed.
func (c *Codec) Prepare(in *indexes.Set, key string, obj runtime.Object, failed func(error)) (*overlay.Entry, error) {
	var err error
	if key == "" {
		if key, err = store.KeyOf(cache.MetaNamespaceKeyFunc, obj); err != nil {
			return nil, err
		}
	}
	fail := func(err error) (*overlay.Entry, error) { return nil, &store.ObjectError{Key: key, Err: err} }
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return fail(err)
	}
	if c.Codec == nil {
		return fail(ErrNone)
	}
	payload, err := c.Payload(obj)
	if err != nil {
		return fail(err)
	}
	e := c.newEntry(in, key, payload)
	e.Object = obj
	e.Head.UID, e.Head.RV, e.Head.Labels = string(accessor.GetUID()), accessor.GetResourceVersion(), maps.Clone(accessor.GetLabels())
	if created := accessor.GetCreationTimestamp(); !created.IsZero() {
		e.Head.Created = created.Unix()
	}
	if e.Head.Index, e.Volatile, err = in.Values(obj, failed); err != nil {
		return fail(err)
	}
	return e, nil
}

// newEntry returns the entry of an encoded object. Its header lacks what is read from the
// object.
func (c *Codec) newEntry(in *indexes.Set, key string, payload []byte) *overlay.Entry {
	e := &overlay.Entry{Key: record.FileKey(key), Name: key, Indexes: in, Payload: record.Packed{Bytes: payload}}
	e.Head = &record.Header{Hash: c.Seal.PayloadHash(key, payload), Size: int64(len(payload))}
	if record.IsHashed(e.Key) {
		e.Head.Name = key
	}
	return e
}

// message returns the payload of an entry, and the metadata in it, if the entry is
// encoded in the scope's codec, without compression, and can be stored as it is.
func (c *Codec) message(e store.Entry) (payload []byte, m codec.Metadata, ok bool) {
	if c.Codec == nil || e.Object != nil {
		return nil, m, false
	}
	id, compressed, payload, err := record.ParseRaw(e.Raw)
	if err != nil || id != c.Codec.ID() || compressed != dictionary.None {
		return nil, m, false
	}
	m, ok = codec.MetadataOf(c.Codec, payload)
	return payload, m, ok
}

// prepareMessage prepares an encoded object. It decodes the object only if an index
// function needs it, or if every object is kept decoded.
func (c *Codec) prepareMessage(in *indexes.Set, raw store.Entry, payload []byte, m codec.Metadata) (*overlay.Entry, error) {
	if raw.Key == "" {
		raw.Key = cache.NewObjectName(string(m.Namespace), string(m.Name)).String()
	}
	if raw.Key == "" {
		return nil, &store.ObjectError{Err: errors.New("object without a name")}
	}
	e := c.newEntry(in, raw.Key, payload)
	e.Head.UID, e.Head.RV, e.Head.Created = string(m.UID), string(m.RV), m.Created
	for key, value := range m.Labels() {
		if e.Head.Labels == nil {
			e.Head.Labels = map[string]string{}
		}
		e.Head.Labels[string(key)] = string(value)
	}
	obj := runtime.Object(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: string(m.Name), Namespace: string(m.Namespace)}})
	var err error
	if e.Encoded = raw; c.DecodesAll || !in.AreOfNames() {
		if obj, err = c.Decode(raw, nil); err != nil {
			return nil, &store.ObjectError{Key: raw.Key, Err: err}
		}
		e.Object = obj
	}
	if e.Head.Index, e.Volatile, err = in.Values(obj, nil); err != nil {
		return nil, &store.ObjectError{Key: raw.Key, Err: err}
	}
	return e, nil
}
