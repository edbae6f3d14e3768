package layout

import (
	bbolt "go.etcd.io/bbolt"
)

// ReadReached returns the resource versions that scopes have reached, by id: of scopes
// that are about to be dropped, and of those that were dropped before. A wipe or another
// epoch may drop them because the server was restored to an earlier state. Then others
// must not go on from these resource versions in what is listed next.
func ReadReached(tx *bbolt.Tx, ids []string) map[string]string {
	reached := map[string]string{}
	if b := tx.Bucket(Meta).Bucket(keyReached); b != nil {
		_ = b.ForEach(func(id, rv []byte) error {
			reached[string(id)] = string(rv)
			return nil
		})
	}
	for _, id := range ids {
		b := Scope(tx, id)
		if b == nil {
			continue
		}
		if m, err := ReadManifest(id, b); err == nil {
			if rv := m.Log.Reached(m.RV); rv != "" {
				reached[id] = rv
			}
		}
	}
	return reached
}

// WriteReached writes what ReadReached has returned.
func WriteReached(tx *bbolt.Tx, reached map[string]string) error {
	if len(reached) == 0 {
		return nil
	}
	b, err := tx.Bucket(Meta).CreateBucketIfNotExists(keyReached)
	if err != nil {
		return err
	}
	for id, rv := range reached {
		if err := b.Put([]byte(id), []byte(rv)); err != nil {
			return err
		}
	}
	return nil
}

// TakeReached returns what a scope that is created had reached before it was dropped, ""
// if that is not known, and removes it.
func TakeReached(tx *bbolt.Tx, id string) (string, error) {
	b := tx.Bucket(Meta).Bucket(keyReached)
	if b == nil {
		return "", nil
	}
	rv := string(b.Get([]byte(id)))
	return rv, b.Delete([]byte(id))
}
