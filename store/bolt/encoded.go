package bolt

import (
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

var _ store.EncodedTaker = (*scopeStore)(nil)

// EncodedEntry implements store.EncodedTaker.
func (s *scopeStore) EncodedEntry(o *store.EncodedObject) (store.Entry, error) {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, o)
	if err != nil {
		return store.Entry{}, err
	}
	if s.opts.Codec == nil {
		return store.Entry{}, &store.ObjectError{Key: key, Err: errNoCodec}
	}
	return store.Entry{Key: key, Raw: rawForm(s.opts.Codec.ID(), record.Packed{Bytes: o.Data}), Cell: o.Cell}, nil
}

// prepareEncodedObject prepares an object of a list.
func (s *scopeStore) prepareEncodedObject(indexes *indexes.Set, o *store.EncodedObject) (*overlay.Entry, error) {
	e, err := s.EncodedEntry(o)
	if err != nil {
		return nil, err
	}
	return s.prepareEntry(indexes, e)
}

// prepareEntry prepares an object, which may be encoded.
func (s *scopeStore) prepareEntry(indexes *indexes.Set, e store.Entry) (*overlay.Entry, error) {
	if payload, m, ok := s.message(e); ok {
		return s.prepareMessage(indexes, e, payload, m)
	}
	obj, err := s.Decode(e)
	if err != nil {
		return nil, &store.ObjectError{Key: e.Key, Err: err}
	}
	return s.prepareObject(indexes, e.Key, obj)
}

// message returns the payload of an entry, and the metadata in it, if the entry is
// encoded in the scope's codec, without compression, and can be stored as it is.
func (s *scopeStore) message(e store.Entry) (payload []byte, m codec.Metadata, ok bool) {
	c, ok := s.opts.Codec.(codec.FromServer)
	if !ok || e.Object != nil {
		return nil, m, false
	}
	id, compressed, payload, err := record.ParseRaw(e.Raw)
	if err != nil || id != c.ID() || compressed != dictionary.None {
		return nil, m, false
	}
	message, ok := c.Message(payload)
	if ok {
		m, ok = codec.ReadMetadata(message)
	}
	return payload, m, ok
}

// prepareMessage prepares an encoded object. It decodes the object only if an index
// function needs it, or if every object is kept decoded.
func (s *scopeStore) prepareMessage(indexes *indexes.Set, raw store.Entry, payload []byte, m codec.Metadata) (*overlay.Entry, error) {
	e := s.newEntry(indexes, raw.Key, payload)
	e.Head.UID, e.Head.RV, e.Head.Created = string(m.UID), string(m.RV), m.Created
	for key, value := range m.Labels() {
		if e.Head.Labels == nil {
			e.Head.Labels = map[string]string{}
		}
		e.Head.Labels[string(key)] = string(value)
	}
	obj := runtime.Object(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: string(m.Name), Namespace: string(m.Namespace)}})
	var err error
	if e.Encoded = raw; s.opts.DecodedBytes < 0 || !indexes.AreOfNames() {
		if obj, err = s.Decode(raw); err != nil {
			return nil, &store.ObjectError{Key: raw.Key, Err: err}
		}
		e.Object = obj
	}
	if e.Head.Index, e.Volatile, err = indexes.Values(obj, nil); err != nil {
		return nil, &store.ObjectError{Key: raw.Key, Err: err}
	}
	return e, nil
}
