package codec

import (
	"bytes"
	"iter"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// FromServer is implemented by codecs whose encoding contains the message that an API
// server sends for an object in protobuf.
type FromServer interface {
	Codec

	// AppendMessage appends to b what Encode returns for the object of a message, which
	// has no TypeMeta. ok is false if the message is not exactly what Encode would write,
	// for example because it has a field that the Go type does not have; b is then
	// returned unchanged. AppendMessage keeps no reference to message.
	AppendMessage(b, message []byte) (_ []byte, ok bool)
	// Message returns the message in what AppendMessage has appended, without a copy. ok
	// is false for other data.
	Message(data []byte) (message []byte, ok bool)
	// DecodeMessage returns the object of a message. It has no TypeMeta. Fields that the
	// Go type does not have are skipped. Its strings may refer to message, as those of
	// DecodeAliased; with owned, a []byte may, too.
	DecodeMessage(message []byte, owned bool) (runtime.Object, error)
}

// noTypeMeta is how the encoding of an object without a TypeMeta begins.
const noTypeMeta = "\x00\x00"

// AppendMessage implements FromServer.
func (c protobufCodec) AppendMessage(b, message []byte) ([]byte, bool) {
	if !c.isCanonical(message) {
		return b, false
	}
	return append(append(b, noTypeMeta...), message...), true
}

// Message implements FromServer.
func (c protobufCodec) Message(data []byte) ([]byte, bool) {
	return bytes.CutPrefix(data, []byte(noTypeMeta))
}

// DecodeMessage implements FromServer.
func (c protobufCodec) DecodeMessage(message []byte, owned bool) (obj runtime.Object, err error) {
	defer recoverTo(&err, "decode", c.typ)
	m, err := c.decodeMessage(message, owned)
	if err != nil {
		return nil, err
	}
	return m.(runtime.Object), nil
}

// isCanonical reports whether a message is what the generated code writes for its object.
func (c protobufCodec) isCanonical(data []byte) (is bool) {
	if c.plan != nil && c.plan.IsCanonical(data) {
		return true
	}
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	m := reflect.New(c.typ).Interface().(message)
	if m.Unmarshal(data) != nil {
		return false
	}
	again := make([]byte, m.Size())
	n, err := m.MarshalToSizedBuffer(again)
	return err == nil && n == len(again) && bytes.Equal(data, again)
}

// Metadata is what can be read of an encoded object without decoding it. Its fields refer
// to the encoding.
type Metadata struct {
	Name, Namespace, UID, RV []byte
	SelfLink                 []byte
	Created                  int64  // in seconds since 1970; 0 if it is not set
	APIVersion, Kind         []byte // only of an unstructured object

	encoded []byte // the message of the ObjectMeta
	packed  packed // the labels, in the encoding of an unstructured object
}

// MetadataOf reads the metadata of what a codec's AppendMessage or AppendJSON has
// appended. ok is false for other codecs and data.
func MetadataOf(c Codec, data []byte) (m Metadata, ok bool) {
	switch c := c.(type) {
	case FromServer:
		message, ok := c.Message(data)
		if !ok {
			return m, false
		}
		return ReadMetadata(message)
	case FromJSON:
		return readPacked(data)
	}
	return m, false
}

// The field numbers of k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto.
const (
	metadataField = 1 // of every object

	nameField      = 1 // of ObjectMeta
	namespaceField = 3
	selfLinkField  = 4
	uidField       = 5
	rvField        = 6
	createdField   = 8
	labelsField    = 11
	managedFields  = 17

	secondsField = 1 // of Time
	keyField     = 1 // of an entry of a map
	valueField   = 2
)

// zeroTime is the time.Time{} that generated code reads from an empty message.
const zeroTime = -62135596800

// ReadMetadata reads the metadata of a message. ok is false if the message does not begin
// with metadata or if that is malformed.
func ReadMetadata(message []byte) (m Metadata, ok bool) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 || number != metadataField || kind != protowire.BytesType {
		return m, false
	}
	if m.encoded, n = protowire.ConsumeBytes(message[n:]); n < 0 {
		return m, false
	}
	for number, value := range fields(m.encoded, &ok) {
		switch number {
		case nameField:
			m.Name = value
		case namespaceField:
			m.Namespace = value
		case selfLinkField:
			m.SelfLink = value
		case uidField:
			m.UID = value
		case rvField:
			m.RV = value
		case createdField:
			m.Created = seconds(value)
		}
	}
	return m, ok
}

// Labels yields the labels. Their bytes refer to the message.
func (m Metadata) Labels() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		labels := m.packed
		for range labels.length() {
			if !yield(labels.string(), labels.string()) {
				return
			}
		}
		var ok bool
		for number, entry := range fields(m.encoded, &ok) {
			if number != labelsField {
				continue
			}
			var key, value []byte
			for number, v := range fields(entry, &ok) {
				switch number {
				case keyField:
					key = v
				case valueField:
					value = v
				}
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// AppendWithoutManagedFields appends to b a message without the managedFields of its
// object. ok is false if the metadata is malformed; b is then returned unchanged.
func AppendWithoutManagedFields(b, message []byte) (_ []byte, ok bool) {
	m, ok := ReadMetadata(message)
	if !ok {
		return b, false
	}
	size := 0
	for f := range rawFields(m.encoded) {
		if f.number != managedFields {
			size += len(f.raw)
		}
	}
	out := protowire.AppendTag(b, metadataField, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(size))
	for f := range rawFields(m.encoded) {
		if f.number != managedFields {
			out = append(out, f.raw...)
		}
	}
	behind := protowire.SizeTag(metadataField) + protowire.SizeBytes(len(m.encoded))
	return append(out, message[behind:]...), true
}

// rawField is a field with its tag.
type rawField struct {
	number protowire.Number
	raw    []byte
}

// rawFields yields the fields of a message, up to the first that is malformed.
func rawFields(message []byte) iter.Seq[rawField] {
	return func(yield func(rawField) bool) {
		for len(message) > 0 {
			number, _, n := protowire.ConsumeField(message)
			if n < 0 || !yield(rawField{number, message[:n]}) {
				return
			}
			message = message[n:]
		}
	}
}

// fields yields the fields of a message that contain bytes. ok says at the end whether
// the message is well-formed.
func fields(message []byte, ok *bool) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		*ok = true
		for len(message) > 0 {
			number, kind, n := protowire.ConsumeTag(message)
			if n < 0 {
				*ok = false
				return
			}
			size := protowire.ConsumeFieldValue(number, kind, message[n:])
			if size < 0 {
				*ok = false
				return
			}
			if kind == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(message[n : n+size])
				if !yield(number, value) {
					return
				}
			}
			message = message[n+size:]
		}
	}
}

// seconds returns the seconds of the message of a metav1.Time, 0 for the zero time.
func seconds(message []byte) int64 {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return 0
		}
		if number == secondsField && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(message[n : n+size])
			if s := int64(v); s != zeroTime {
				return s
			}
			return 0
		}
		message = message[n+size:]
	}
	return 0
}
