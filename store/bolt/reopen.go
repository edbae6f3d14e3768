package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// reopenLocked replaces a handle whose state is unknown. It checks what bbolt needs but
// no entries, because Open has checked those.
//
// If the file is damaged, gone or another one, a new file takes its place and every scope
// has to be relisted; until then reads return the damage. again means that an earlier
// write has failed because of damage: then the file is replaced without a check, because
// a check that does not read every page may miss the damage. The caller must hold
// writeMu.
func (d *DB) reopenLocked(again bool, cause error) error {
	if err := d.replaceHandle(again, cause); err != nil || d.isClosed() {
		return err
	}
	d.mu.Lock()
	var scopes []*scopeStore
	for _, s := range d.scopes {
		if s.isLeased() && s.needsBucket() { // other scopes will not be relisted
			scopes = append(scopes, s)
		}
	}
	d.mu.Unlock()
	if len(scopes) == 0 {
		return nil
	}
	err := d.tryUpdate("scopes", func(tx *bbolt.Tx) error {
		for _, s := range scopes {
			if err := s.createFirst(tx, "the file was lost"); err != nil {
				return err
			}
		}
		return nil
	})
	for _, s := range scopes {
		s.setNoBucket(err != nil)
	}
	return err
}

// replaceHandle reopens the file or starts a new one. Readers see the new file only after
// their scope is marked as lost and the file is of the epoch.
func (d *DB) replaceHandle(again bool, cause error) (err error) {
	d.handleMu.Lock()
	defer d.handleMu.Unlock()
	if d.isClosed() && d.handle == nil {
		return nil
	}
	if d.handle != nil {
		// The outcome does not depend on this error: openFile below reports every
		// problem.
		_ = d.closeHandle(d.handle)
		d.handle = nil
	}
	before, written := d.working, d.written
	if again && !d.lost {
		err = cause
	} else {
		err = d.openFile(reopening)
	}
	switch {
	case err == nil && d.lost:
		d.lost = false
		d.lose(errors.New("another one has its name now"))
		return d.takeOver()
	case err == nil && os.SameFile(before, d.working) && d.found-written <= 1:
		return nil // the last transaction is in it, perhaps also the failed one
	case err == nil && os.SameFile(before, d.working):
		d.lose(errWritten)
		return d.takeOver()
	case err == nil:
		d.lose(errors.New("another one has its name now"))
		return d.takeOver()
	case errors.Is(err, fs.ErrNotExist):
		d.loseOnce(errors.New("it is gone"))
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotOurs) && os.SameFile(before, d.file):
		d.loseOnce(err)
		if err := d.replaceDamaged(err); err != nil {
			return err
		}
	default:
		return err
	}
	if err := d.openFile(creating); err != nil {
		return fmt.Errorf("begin a fresh file: %w", err)
	}
	d.lost = false
	return nil
}

// loseOnce calls lose, unless everything is lost already and nothing could be written
// since.
func (d *DB) loseOnce(cause error) {
	if !d.lost {
		d.lose(cause)
	}
	d.lost = true
}

// takeOver drops what another program has put into the file if that is of another epoch.
// If it cannot be dropped now, the first write of a scope tries again. The caller must
// hold handleMu for writing.
func (d *DB) takeOver() error {
	err := pagefile.Guard(d.path, "epoch", func() error { return d.handle.Update(d.beginEpochIn) })
	if err == nil {
		d.written, err = d.lastWritten(d.handle)
	}
	return err
}

// lose discards the stored content of every scope, and the ledgers.
func (d *DB) lose(cause error) {
	lost := cause
	if !errors.Is(cause, store.ErrCorrupt) {
		lost = d.corrupt("file", cause)
	}
	d.opts.Logger.Error(lost, "Cache file is lost while it is used, its scopes are listed again", "path", d.path)
	d.ledgerLosses.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.scopes {
		s.lose(lost)
	}
}

// lose discards the stored content of the scope.
func (s *scopeStore) lose(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noBucket.Store(true)
	s.lost(cause)
}

var _ store.Loser = (*scopeStore)(nil)

// Lost implements store.Loser.
func (s *scopeStore) Lost() <-chan struct{} { return s.lostSignal }

func (s *scopeStore) needsBucket() bool { return s.noBucket.Load() }
