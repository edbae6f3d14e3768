package codec

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pairs decodes two states of an object together, without the fields that are the same
// in both: most of a large object, if little of it has changed. It is immutable, and safe
// for concurrent use.
type Pairs struct{ codec protobufCodec }

// PairsOf returns the Pairs of a kind. It returns nil if objects of the kind are not
// encoded as protobuf, or if client-go's scheme has no type for the kind.
func PairsOf(gvk schema.GroupVersionKind) *Pairs {
	c, ok := ForKind(gvk).(protobufCodec)
	if !ok || c.plan == nil {
		return nil
	}
	return &Pairs{c}
}

// Codec returns a codec whose Decode returns the encoded object, as a *runtime.Unknown
// for [Pairs.Decode]. It cannot encode.
func (p *Pairs) Codec() Codec { return encodedCodec{p.codec} }

// Decode decodes two states that Codec has returned. One that is nil or already decoded
// is returned as it is, and the other one is then decoded whole. Of two, the results have
// nothing but what differs, and the kind: also name and namespace are empty. Fields of
// lists, of maps and of types that marshal themselves, such as quantities, are there
// whole if anything in them differs.
func (p *Pairs) Decode(a, b runtime.Object) (x, y runtime.Object, err error) {
	encodedA, isA := a.(*runtime.Unknown)
	encodedB, isB := b.(*runtime.Unknown)
	if isA && isB {
		if x, y, err = p.differing(encodedA.Raw, encodedB.Raw); err == nil {
			return x, y, nil
		}
	}
	if x = a; isA {
		if x, err = p.codec.decodeAliased(encodedA.Raw, true); err != nil {
			return nil, nil, err
		}
	}
	if y = b; isB {
		y, err = p.codec.decodeAliased(encodedB.Raw, true)
	}
	return x, y, err
}

// errNotCanonical indicates that two messages cannot be compared by their bytes.
var errNotCanonical = errors.New("not in the canonical form")

func (p *Pairs) differing(a, b []byte) (x, y runtime.Object, err error) {
	kindOfA, messageA, err := p.codec.cutTypeMeta(a)
	if err != nil {
		return nil, nil, err
	}
	kindOfB, messageB, err := p.codec.cutTypeMeta(b)
	if err != nil {
		return nil, nil, err
	}
	messageA, messageB, ok := p.codec.plan.Differing(messageA, messageB)
	if !ok {
		return nil, nil, errNotCanonical
	}
	if x, err = p.codec.decodeObject(kindOfA, messageA, true); err != nil {
		return nil, nil, err
	}
	y, err = p.codec.decodeObject(kindOfB, messageB, true)
	return x, y, err
}

// encodedCodec leaves objects encoded.
type encodedCodec struct{ protobufCodec }

func (c encodedCodec) Encode(runtime.Object) ([]byte, error) {
	return nil, fmt.Errorf("codec: encode %s: by a codec that leaves objects encoded", c.typ)
}

func (encodedCodec) Decode(data []byte) (runtime.Object, error) {
	return &runtime.Unknown{Raw: bytes.Clone(data)}, nil
}
