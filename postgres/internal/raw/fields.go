package raw

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a message that has a length.
type field struct {
	number  protowire.Number
	content []byte
	err     error // the message is malformed; the last field
}

// fields yields the fields of a message that have a length, in order.
func fields(message []byte) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(message) > 0 {
			number, kind, n := protowire.ConsumeTag(message)
			if n < 0 {
				yield(field{err: errMalformed})
				return
			}
			message = message[n:]
			if kind != protowire.BytesType {
				if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
					yield(field{err: errMalformed})
					return
				}
				message = message[n:]
				continue
			}
			content, n := protowire.ConsumeBytes(message)
			if n < 0 {
				yield(field{err: errMalformed})
				return
			}
			message = message[n:]
			if !yield(field{number: number, content: content}) {
				return
			}
		}
	}
}
