package store

// Record is one object in the form in which a backend stores it in its file.
type Record struct {
	Key   string
	Codec byte // codec.IDProtobuf or codec.IDMsgpack
	// Dictionary is the key in Records.Dictionaries of the dictionary that Payload is
	// compressed with; 0 means that Payload is not compressed.
	Dictionary uint64
	Payload    []byte // not to be changed
	Bytes      int    // the decompressed size: the length of Entry.Raw
}

// Records are objects together with the dictionaries that are needed to decode them.
type Records struct {
	Records []Record
	// Dictionaries are the dictionaries that the records use, by number. An empty one
	// means compression without a dictionary; see codec.NewCompressor.
	Dictionaries map[uint64][]byte
}

// Recorder is implemented by stores that keep objects encoded. A caller can pass the
// records to another process unchanged, without decoding or decompressing them.
type Recorder interface {
	// Records returns the records of those keys that exist, in the order of keys and as
	// of one moment.
	Records(keys []string) (Records, error)
}

// Viewer is implemented by backends that can read a scope without opening it.
type Viewer interface {
	// View returns a store for reading the scope with that ID. It takes no lease and does
	// not change the stored state: writes return an error, the store has every stored
	// index, and it need not be closed. If the scope is open or was opened before, View
	// returns that store. Errors: ErrNotFound, ErrClosed, and damage.
	View(id string) (Store, Scope, error)
}
