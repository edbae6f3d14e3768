package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// reasonWiped is the checkpoint's reason of a scope that was wiped while it was open.
const reasonWiped = "wiped"

// Wipe drops the scopes for which which returns true, or all scopes if which is nil, in
// one transaction. It returns what the file contained of each. If no other scope is left,
// Wipe also drops everything else that the file contains, which are the keys and all
// ledgers: the file is then as new, with the same Epoch. A file that was set aside stays.
//
// An open scope loses its content: its reads return store.ErrWiped until it has been
// relisted. An informer relists at once and delivers to its handlers what differs from
// what they have received. After an error everything is as before, as far as the disk
// allows that to be determined; a scope for which it cannot be determined is relisted,
// too. The resource versions that a scope had reached are of another history if it is
// listed at a lower one: see store.LogState.Above. A scope that is not open is forgotten
// if no other one is left.
//
// Wipe blocks while a scope is being opened and until the disk has written; writes to the
// scopes wait meanwhile. The file does not shrink, and its free space is reused. The
// bytes in it are not overwritten: encrypted content, and the data keys that the user's
// key opens, stay in the file until the pages are reused or bbolt's Compact copies the
// file without them.
func (d *DB) Wipe(which func(store.Scope) bool) ([]store.Info, error) {
	if d.readOnly {
		return nil, store.ErrReadOnly
	}
	d.openMu.Lock()
	defer d.openMu.Unlock()
	infos, err := d.Scopes()
	if err != nil && (which != nil || !boltfile.IsDamage(err)) {
		return nil, err
	}
	all := true
	isWiped := func(s store.Scope) bool {
		is := which == nil || which(s)
		all = all && is
		return is
	}
	infos = slices.DeleteFunc(infos, func(i store.Info) bool { return !isWiped(i.Scope) })
	// An open scope that has begun on a full disk is not in the file.
	var open []*scopeStore
	d.mu.Lock()
	scopes := slices.Collect(maps.Values(d.scopes))
	d.mu.Unlock()
	for _, s := range scopes {
		if !s.isLeased() && s.isLost() {
			continue // nothing is left of it
		}
		if isWiped(s.scope) {
			open = append(open, s)
		}
	}
	if len(infos)+len(open) == 0 && which != nil {
		return nil, nil
	}
	for _, s := range open {
		s.writerMu.Lock()
		defer s.writerMu.Unlock()
	}
	return infos, d.wipe(infos, open, all)
}

// wipe drops scopes. The caller must hold writerMu of the open ones. They are hidden from
// before the transaction until its outcome is known.
func (d *DB) wipe(infos []store.Info, open []*scopeStore, all bool) error {
	d.file.Lock()
	defer d.file.Unlock()
	for _, s := range open {
		s.locked((*state).wiping)
	}
	err := d.file.Try("wiping", func(tx *bbolt.Tx) error { return d.wipeIn(tx, infos, open, all) })
	if errors.Is(err, boltfile.ErrNoHandle) { // nothing was tried
		for _, s := range open {
			s.locked((*state).notWiped)
		}
		return errors.Join(err, d.file.Reopen(false, err))
	}
	if err != nil && !errors.Is(err, store.ErrClosed) {
		err = errors.Join(err, d.file.Reopen(false, err))
	}
	if all {
		d.ledgerLosses.Add(1) // also if the outcome is not known
	}
	if err == nil && all {
		d.keys.Forget()
	}
	for _, s := range open {
		wiped, known := err == nil, true
		if err != nil {
			wiped, known = s.isWiped()
		}
		if wiped || !known {
			s.lose(store.ErrWiped)
			s.noBucket.Store(!known)
			continue
		}
		s.locked((*state).notWiped)
	}
	return err
}

func (d *DB) wipeIn(tx *bbolt.Tx, infos []store.Info, open []*scopeStore, all bool) error {
	scopes := tx.Bucket(layout.Scopes)
	ids := make([]string, 0, len(infos)+len(open))
	for _, info := range infos {
		ids = append(ids, info.ID)
	}
	for _, s := range open {
		ids = append(ids, s.id) // it may have begun since the scopes were listed
	}
	if all && scopes != nil { // also those that are damaged
		ids = nil
		err := scopes.ForEachBucket(func(id []byte) error {
			ids = append(ids, string(id))
			return nil
		})
		if err != nil {
			return err
		}
	}
	reached := layout.ReadReached(tx, ids)
	for _, id := range ids {
		if scopes == nil {
			break // the file was replaced since the scopes were listed
		}
		if err := scopes.DeleteBucket([]byte(id)); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
			return err
		}
	}
	if all {
		epoch := string(tx.Bucket(layout.Meta).Get(layout.KeyEpoch))
		if err := tx.DeleteBucket(layout.Meta); err != nil {
			return err
		}
		if err := layout.CreateMeta(tx, cmp.Or(d.epoch, epoch)); err != nil {
			return err
		}
	}
	for _, s := range open {
		if !s.isLeased() {
			continue // the scope will not be relisted
		}
		m := s.emptyManifest(reasonWiped)
		m.Log.Above = reached[s.id]
		delete(reached, s.id)
		if err := s.create(tx, m, false); err != nil {
			return err
		}
	}
	if !all { // after a wipe of everything the file is as a new one
		if err := layout.WriteReached(tx, reached); err != nil {
			return err
		}
	}
	if all { // the next sealed write stores new keys
		if err := tx.Bucket(layout.Meta).Delete(seal.MetaKey); err != nil {
			return err
		}
	}
	return layout.WriteScopeTally(tx)
}

// errHidden is store.ErrWiped for a wipe whose outcome is not known yet.
var errHidden = fmt.Errorf("%w", store.ErrWiped)

// isWiped checks in the file whether a wipe of unknown outcome has happened.
func (s *scopeStore) isWiped() (wiped, known bool) {
	if s.noBucket.Load() {
		return false, false // a bucket in the file would not be this scope's
	}
	err := s.db.view("manifest", func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if b == nil {
			wiped = true
			return nil
		}
		m, err := layout.ReadManifest(s.id, b)
		if err == nil { // false if a list has begun since an earlier wipe
			wiped = m.Reason == reasonWiped && m.Objects.Count == 0
		}
		return err
	})
	return wiped, err == nil
}
