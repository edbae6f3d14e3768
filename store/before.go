package store

// Before is what a scope held under some keys at one moment. A Batch that has it tells
// Apply what its changes replace, so that Apply need not look again.
type Before struct {
	// Held has the objects that existed, by key. The caller may change the map.
	Held map[string]Held
	// Moment is for the backend that set it.
	Moment any
}

// Held is the state of one object before a batch.
type Held struct {
	Entry   Entry
	UID, RV string
	// Err means that the object exists, or may exist, and that not all of it can be read.
	// The fields above have what can be.
	Err error
}

// BeforeOf implements Store.Before for a backend that holds its objects decoded.
func BeforeOf(s Reader, keys []string) (Before, error) {
	if len(keys) == 0 {
		return Before{}, nil
	}
	entries, err := s.Select(Query{Keys: keys})
	b := Before{Held: make(map[string]Held, len(entries))}
	for _, e := range entries {
		h, err := HeaderOf(e.Object)
		b.Held[e.Key] = Held{Entry: e, UID: h.UID, RV: h.RV, Err: err}
	}
	return b, err
}
