package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/informctl/informctl/store"
)

// reasonWiped is the reason of a scope that was wiped while it was open.
const reasonWiped = "wiped"

// Wipe drops the scopes that which picks, nil of all, in one transaction, and
// returns what the file had of each. When no other scope is left, what the file
// knows beside them goes, too: then it is as a fresh one of the same Epoch.
//
// A scope that is open loses what it holds: its reads return store.ErrWiped until it
// has been listed again, which an informer does at once and tells its handlers what
// differs from what they knew. An error leaves everything as it was, as far as the
// disk lets that be known; a scope of which it does not is listed again, too.
//
// It blocks while a scope is being opened, and for the disk; writes to the scopes
// wait meanwhile. The space stays in the file and is used again; the bytes in it are
// not overwritten: what was encrypted, and the data keys that the user's key opens,
// stay there until the pages are used again or bbolt's Compact leaves them behind.
func (d *DB) Wipe(which func(store.Scope) bool) ([]store.Info, error) {
	if d.readOnly {
		return nil, store.ErrReadOnly
	}
	<-d.verified // or writers would be kept waiting for it
	d.openMu.Lock()
	defer d.openMu.Unlock()
	infos, err := d.Scopes()
	if err != nil {
		return nil, err
	}
	there := len(infos)
	if which != nil {
		infos = slices.DeleteFunc(infos, func(i store.Info) bool { return !which(i.Scope) })
	}
	if len(infos) == 0 && which != nil {
		return nil, nil
	}
	var open []*Store
	d.mu.Lock()
	for _, info := range infos {
		if s := d.scopes[info.ID]; s != nil {
			open = append(open, s)
		}
	}
	d.mu.Unlock()
	for _, s := range open {
		s.writerMu.Lock()
		defer s.writerMu.Unlock()
	}
	return infos, d.wipe(infos, open, len(infos) == there)
}

// wipe needs the writerMu of what is open, which is hidden from before the
// transaction until its outcome is known.
func (d *DB) wipe(infos []store.Info, open []*Store, all bool) error {
	d.writeMu.Lock()
	defer d.writeMu.Unlock()
	for _, s := range open {
		s.hide()
	}
	err := d.isThere()
	if err == nil {
		err = d.tryUpdate("wiping", func(tx *bbolt.Tx) error { return wipeIn(tx, infos, open, all) })
	}
	if err != nil && !errors.Is(err, store.ErrClosed) {
		err = errors.Join(err, d.reopenLocked(false, err))
	}
	if err == nil && all {
		d.forgetKeys()
	}
	for _, s := range open {
		wiped, known := err == nil, true
		if err != nil {
			wiped, known = s.isWiped()
		}
		if wiped || !known {
			s.lose(store.ErrWiped)
			s.setNoBucket(!known)
			continue
		}
		s.show()
	}
	return err
}

// forgetKeys drops the data keys, of which the file has nothing any more.
func (d *DB) forgetKeys() {
	d.keyMu.Lock()
	defer d.keyMu.Unlock()
	if d.keys != nil {
		d.keys.forget()
	}
}

func wipeIn(tx *bbolt.Tx, infos []store.Info, open []*Store, all bool) error {
	scopes := tx.Bucket(bucketScope)
	for _, info := range infos {
		if scopes == nil {
			break // begun anew since they were listed
		}
		if err := scopes.DeleteBucket([]byte(info.ID)); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
			return err
		}
	}
	if all {
		epoch := bytes.Clone(tx.Bucket(bucketMeta).Get(keyEpoch))
		if err := tx.DeleteBucket(bucketMeta); err != nil {
			return err
		}
		if err := createMeta(tx); err != nil {
			return err
		}
		if err := tx.Bucket(bucketMeta).Put(keyEpoch, epoch); err != nil {
			return err
		}
	}
	for _, s := range open {
		if !s.isLeased() {
			continue // nobody will list it
		}
		if err := s.create(tx, s.emptyManifest(reasonWiped), false); err != nil {
			return err
		}
	}
	if all { // what is written next is sealed with others, and brings them
		if err := tx.Bucket(bucketMeta).Delete(keyKeys); err != nil {
			return err
		}
	}
	return writeScopeTally(tx)
}

// errHidden is store.ErrWiped of a wipe whose outcome is not known yet.
var errHidden = fmt.Errorf("%w", store.ErrWiped)

// hide makes reads return that the scope is wiped.
func (s *Store) hide() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = errHidden
	}
}

// show ends hide, unless something was lost before or since.
func (s *Store) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.lost, errHidden) {
		s.lost = nil
	}
	if s.dirty { // the committer may have passed over it meanwhile
		s.db.wake()
	}
}

func (s *Store) setNoBucket(is bool) { s.noBucket.Store(is) }

// isWiped looks in the file whether a wipe of unknown outcome has come to pass.
func (s *Store) isWiped() (wiped, known bool) {
	if s.needsBucket() {
		return false, false // what there is of it in the file is not its
	}
	err := s.db.view("manifest", func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if b == nil {
			wiped = true
			return nil
		}
		m, err := readManifest(s.id, b)
		if err == nil { // or a list has begun since an earlier wipe
			wiped = m.Reason == reasonWiped && m.Objects.Count == 0
		}
		return err
	})
	return wiped, err == nil
}
