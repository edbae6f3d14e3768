package relay

import (
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// serializer is a NegotiatedSerializer that writes the objects and lists of this package
// itself, and leaves all else to another one.
type serializer struct {
	runtime.NegotiatedSerializer
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (s serializer) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	out := &encoder{Encoder: s.NegotiatedSerializer.EncoderForVersion(e, gv), plain: e}
	out.mediaType, out.pretty = s.mediaTypeOf(e)
	return out
}

// mediaTypeOf returns the media type that a serializer writes, and whether it indents.
func (s serializer) mediaTypeOf(e runtime.Encoder) (mediaType string, pretty bool) {
	is := func(one runtime.Serializer) bool { return one != nil && e == runtime.Encoder(one) }
	for _, info := range s.SupportedMediaTypes() {
		if is(info.Serializer) || is(info.PrettySerializer) || info.StreamSerializer != nil && is(info.StreamSerializer.Serializer) {
			return info.MediaType, is(info.PrettySerializer)
		}
	}
	return "", false
}

// encoder is the Encoder of one media type. Its Identifier is that of the one it wraps.
type encoder struct {
	runtime.Encoder
	plain     runtime.Encoder // which leaves apiVersion and kind as they are
	mediaType string
	pretty    bool
}

// Encode implements runtime.Encoder.
func (e *encoder) Encode(obj runtime.Object, w io.Writer) error {
	switch o := obj.(type) {
	case *shared:
		return e.one(o.object, w)
	case *object:
		return e.one(o, w)
	case *list:
		return o.encode(e, w)
	}
	return e.Encoder.Encode(obj, w)
}

func (e *encoder) one(o *object, w io.Writer) error {
	if e.mediaType != runtime.ContentTypeProtobuf {
		decoded, err := o.decoded()
		if err != nil {
			return err
		}
		return e.plain.Encode(decoded, w)
	}
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	m, err := o.message(buf)
	if err != nil {
		return err
	}
	for _, part := range [][]byte{protobufPrefix, unknownHead(o.of.Scope.Kind, len(m)), m, unknownTail} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// without leaves a media type out.
type without struct {
	runtime.NegotiatedSerializer
	mediaType string
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s without) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(i runtime.SerializerInfo) bool {
		return i.MediaType == s.mediaType
	})
}
