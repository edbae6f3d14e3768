package tap

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/informctl/informctl/codec"
)

// magic precedes each message of an API server
// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var magic = []byte("k8s\x00")

// The field numbers of runtime.Unknown, runtime.TypeMeta, metav1.WatchEvent,
// runtime.RawExtension, of lists, of ListMeta and of ObjectMeta in
// k8s.io/apimachinery/pkg/*/generated.proto.
const (
	unknownTypeMeta = 1
	unknownRaw      = 2
	unknownEncoding = 3

	typeMetaAPIVersion = 1
	typeMetaKind       = 2

	eventType      = 1
	eventObject    = 2
	extensionBytes = 1

	listMetadata = 1
	listItems    = 2
	listMetaRV   = 2

	objectMetadata = 1
	metaName       = 1
	metaNamespace  = 3
	metaSelfLink   = 4
	metaUID        = 5
	metaRV         = 6
)

// field is a field of a message that contains bytes.
type field struct {
	number protowire.Number
	value  []byte
}

// cut cuts the first field off a message. ok is false if it does not contain bytes.
func cut(message []byte) (f field, rest []byte, ok bool) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 || kind != protowire.BytesType {
		return f, nil, false
	}
	value, size := protowire.ConsumeBytes(message[n:])
	if size < 0 {
		return f, nil, false
	}
	return field{number, value}, message[n+size:], true
}

// open returns the message in the envelope of an object or a list of the expected kind.
func (t *Tap) open(envelope []byte, kind string) (message []byte, ok bool) {
	rest, ok := bytes.CutPrefix(envelope, magic)
	if !ok {
		return nil, false
	}
	isExpected := false
	for len(rest) > 0 {
		var f field
		if f, rest, ok = cut(rest); !ok {
			return nil, false
		}
		switch f.number {
		case unknownTypeMeta:
			isExpected = t.isOfKind(f.value, kind)
		case unknownRaw:
			message = f.value
		case unknownEncoding:
			if len(f.value) > 0 {
				return nil, false
			}
		}
	}
	return message, isExpected && message != nil
}

func (t *Tap) isOfKind(typeMeta []byte, kind string) bool {
	var apiVersion, k string
	for len(typeMeta) > 0 {
		f, rest, ok := cut(typeMeta)
		if !ok {
			return false
		}
		switch typeMeta = rest; f.number {
		case typeMetaAPIVersion:
			apiVersion = string(f.value)
		case typeMetaKind:
			k = string(f.value)
		}
	}
	return apiVersion == t.apiVersion && k == kind
}

// appendEnvelope appends the envelope of a message, with a content type that is not set,
// as client-go's decoder does not read it.
func (t *Tap) appendEnvelope(b []byte, kind string, message []byte) []byte {
	b = append(b, magic...)
	b = protowire.AppendTag(b, unknownTypeMeta, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeOf(len(t.apiVersion))+sizeOf(len(kind))))
	b = appendField(b, typeMetaAPIVersion, t.apiVersion)
	b = appendField(b, typeMetaKind, kind)
	return appendField(b, unknownRaw, message)
}

// envelopeSize returns the number of bytes that appendEnvelope appends.
func (t *Tap) envelopeSize(kind string, message int) int {
	return len(magic) + sizeOf(sizeOf(len(t.apiVersion))+sizeOf(len(kind))) + sizeOf(message)
}

// sizeOf returns the size of a field with n bytes. All numbers here take one byte.
func sizeOf(n int) int { return 1 + protowire.SizeBytes(n) }

func appendField[T string | []byte](b []byte, number protowire.Number, value T) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(value)))
	return append(b, value...)
}

// resourceVersionOf returns the resource version of a list, "" if it cannot be read.
func resourceVersionOf(listMeta []byte) string {
	for len(listMeta) > 0 {
		number, kind, n := protowire.ConsumeTag(listMeta)
		if n < 0 {
			return ""
		}
		if number == listMetaRV && kind == protowire.BytesType {
			rv, _ := protowire.ConsumeBytes(listMeta[n:])
			return string(rv)
		}
		size := protowire.ConsumeFieldValue(number, kind, listMeta[n:])
		if size < 0 {
			return ""
		}
		listMeta = listMeta[n+size:]
	}
	return ""
}

// hasOneMetadata reports whether a message has the field of its metadata once: with
// another one, there could be a selfLink in it.
func hasOneMetadata(message []byte) bool {
	seen := 0
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 {
			return false
		}
		if number == objectMetadata {
			seen++
		}
		message = message[n:]
	}
	return seen == 1
}

// marker marks the objects of one answer. Its buffers are used again for each object.
type marker struct {
	tap        *Tap
	answer     *answer
	data, item []byte
}

// mark returns the message that client-go receives for the message of an object, until
// the next call. ok is false if the object cannot be marked.
func (w *marker) mark(message []byte, deleted bool) (item []byte, ok bool) {
	m, ok := codec.ReadMetadata(message)
	if !ok {
		return nil, false
	}
	how := w.tap.choose()
	var kept []byte
	w.data, ok = w.tap.protobuf.AppendMessage(w.data[:0], message)
	switch {
	case ok && len(m.SelfLink) == 0:
		kept = bytes.Clone(w.data)
	case hasOneMetadata(message):
		how = asSent
	default:
		return nil, false
	}
	link := len(w.tap.mark) + numbers + 2 + len(m.SelfLink)
	size := sizeOf(link)
	w.item = w.item[:0]
	if how == isSlim {
		size += sizeOf(len(m.Name)) + sizeOf(len(m.Namespace)) + sizeOf(len(m.UID)) + sizeOf(len(m.RV))
	} else {
		// the metadata that follows is merged into its own
		w.item = append(w.item, message...)
	}
	w.item = protowire.AppendTag(w.item, objectMetadata, protowire.BytesType)
	w.item = protowire.AppendVarint(w.item, uint64(size))
	if how == isSlim {
		w.item = appendField(w.item, metaName, m.Name)
		w.item = appendField(w.item, metaNamespace, m.Namespace)
		w.item = appendField(w.item, metaUID, m.UID)
		w.item = appendField(w.item, metaRV, m.RV)
	}
	w.item = protowire.AppendTag(w.item, metaSelfLink, protowire.BytesType)
	w.item = protowire.AppendVarint(w.item, uint64(link))
	w.item = append(w.item, w.tap.mark...)
	w.item = appendNumbers(w.item, w.answer.number, w.tap.next(w.answer, kept))
	w.item = append(append(w.item, fate(deleted), how), m.SelfLink...)
	return w.item, true
}
