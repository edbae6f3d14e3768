package store

// Record is one object as a backend keeps it in its file.
type Record struct {
	Key        string
	Codec      byte   // codec.IDProtobuf or codec.IDMsgpack
	Dictionary uint64 // which of Records.Dictionaries Payload is compressed with; 0 is not compressed
	Payload    []byte // not to be changed
	Bytes      int    // as stored: those of Entry.Raw
}

// Records are objects with what it takes to decode them.
type Records struct {
	Records []Record
	// Dictionaries are those that the records need, by number. An empty one stands for
	// compression without a dictionary; see codec.NewZstd.
	Dictionaries map[uint64][]byte
}

// Recorder is implemented by stores that keep objects encoded, for who hands them
// to another process as they are: that costs neither decoding nor decompressing.
type Recorder interface {
	// Keys is Select for who wants keys only.
	Keys(Query) ([]string, error)
	// Records returns those of the keys that there are, in the order of keys and as of
	// one moment.
	Records(keys []string) (Records, error)
}

// Viewer is implemented by backends that can show a scope which nobody has opened.
type Viewer interface {
	// View returns a store of the scope with that ID for reading, without a lease and
	// without a change of what is stored: writing to it is an error, it has every
	// index that is stored, and it need not be closed. Where the scope is open, or was,
	// that store is returned. Errors: ErrNotFound, ErrClosed, and damage.
	View(id string) (Store, Scope, error)
}
