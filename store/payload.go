package store

// Payloader is implemented by stores that keep objects encoded. A caller can send objects
// on as the codec of the scope has encoded them, without decoding them.
type Payloader interface {
	// AppendPayload appends the encoded object of an entry, decompressed, and returns the
	// ID of its codec: codec.IDProtobuf or codec.IDMsgpack. The entry must have Raw, as
	// those of a Query with Encoded and of the events of Follow. It also works after
	// Close. On an error, out is buf.
	AppendPayload(buf []byte, e Entry) (out []byte, codecID byte, err error)
	// PayloadSize returns the number of bytes that AppendPayload appends, and the ID of
	// the codec. It decompresses no object of 256 bytes or more.
	PayloadSize(e Entry) (n int, codecID byte, err error)
}
