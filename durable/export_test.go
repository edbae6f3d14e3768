package durable

// ShareKeys encodes a document whose keys wait and have some names, and decodes it. It
// returns how many keys are left.
func ShareKeys(names []string) (int, error) {
	doc := document{Version: "1"}
	for _, name := range names {
		doc.Keys = append(doc.Keys, sharedKey{Key: name, keyState: keyState{Waits: true}, round: 1})
	}
	b, err := doc.encode([]round{{1, map[string]place{"scope": {RV: "1"}}}})
	if err != nil {
		return 0, err
	}
	var read document
	err = read.decode(b)
	return len(read.Keys), err
}
