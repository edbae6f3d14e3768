package record

// Packed is an encoded object, compressed or not.
type Packed struct {
	Dictionary uint64
	Bytes      []byte // nil if there is no object

	// DataKey and Head are set for an encrypted scope: then Bytes are sealed, and Head is
	// the sealed header.
	DataKey uint64
	Head    *Header
}

// Record returns the record of a packed payload.
func (p Packed) Record(codecID byte) Record {
	return Record{Codec: codecID, Dictionary: p.Dictionary, DataKey: p.DataKey, Payload: p.Bytes}
}
