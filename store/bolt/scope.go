package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/objcodec"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// scopeStore is one scope of a DB. It implements store.Store.
//
// # Pending
//
// Apply puts changes into pending and returns; readers merge pending over the file. The
// committer copies pending, writes the copy in one transaction with the checkpoint of the
// same moment (promises 1 and 2), and only then removes the written entries from pending.
// A reader copies pending and begins its transaction under mu, and the committer needs mu
// to remove entries. Therefore a reader sees exactly one moment, whether or not its
// transaction contains the commit in progress.
//
// # Decoded objects
//
// A reader that has decoded an object offers it to the cache together with a ticket from
// before the read: see package objcache. The cache may be newer than a reader's snapshot;
// the reader takes an object from the cache only if the hash of its content equals the
// hash in the snapshot's header.
type scopeStore struct {
	db    *DB
	id    string
	scope store.Scope
	opts  store.Options
	seal  *seal.Seal // nil if the scope is not encrypted
	// damaged means that what the file had when the scope was opened could not be read:
	// nothing of it is used.
	damaged bool
	// loaded is closed when Open has taken over what is stored, or has failed. It is nil
	// for a store of View.
	loaded chan struct{}

	// noBucket means that the file contains nothing of the scope, or nothing that readers
	// may see. It is set to false under the write lock of the file. It is atomic because
	// it is read inside transactions, where waiting for a lock could deadlock: the holder
	// of the lock may be waiting to begin a transaction, behind a writer that waits for
	// this transaction to end.
	noBucket atomic.Bool

	next atomic.Pointer[scopeStore] // opened after this one was closed; nil: none

	codec *objcodec.Codec

	past atomic.Pointer[past] // of a read-only database; see past.go

	checks checks

	// writerMu is held by Apply, AddIndexes and other writers, one at a time, so that an
	// index can be built while readers continue. It is locked before mu.
	writerMu sync.Mutex

	mu sync.Mutex // protects state
	state
}

// standing is what a scope holds and may do; see phase.go.
type standing struct {
	phase  phase
	before phase // of hidden
	cause  error // why reads fail: set if the phase is lost, mending or hidden
	role   role
	// isReady is set while the phase is ready. It is written under scopeStore.mu. A
	// reader that finds it set may take an object from cached.objects without mu: what is
	// there has been the object's state at some time since.
	isReady atomic.Bool
}

// progress is how far the file follows. It is the part that others wait for.
type progress struct {
	dirty      bool          // checkpoint or pending differs from the file
	latest     uint64        // number of the last change of state
	written    uint64        // number of the last change that the file contains
	commitErr  error         // of the last attempt; nil after a success
	lostErr    error         // why waiting changes were lost; nil after a success
	attempt    chan struct{} // closed and replaced after each commit attempt
	lostSignal chan struct{} // holds one value
	shared     *shared
}

func (p *progress) changed() {
	p.dirty = true
	p.latest++
}

// committed ends an attempt. The error is that of the commit.
func (p *progress) committed(err error) {
	p.commitErr = err
	if err == nil {
		p.dirty = p.written != p.latest
	}
	if p.dirty {
		p.shared.tell(false)
	}
	p.endAttempt()
}

// endAttempt wakes the goroutines that wait for a commit attempt.
func (p *progress) endAttempt() {
	close(p.attempt)
	p.attempt = make(chan struct{})
}

// replaced drops what waits to be written.
func (p *progress) replaced() {
	p.written, p.dirty = p.latest, false
	p.endAttempt()
}

func (p *progress) Lost(cause error) {
	switch {
	case errors.Is(cause, store.ErrWiped): // that was asked for
		p.lostErr = nil
	case p.written != p.latest:
		p.lostErr = cause
	}
	p.replaced()
	select {
	case p.lostSignal <- struct{}{}:
	default: // a value that was not received also stands for this loss
	}
}

var _ store.Store = (*scopeStore)(nil)

// locked runs fn, which must not wait, under mu. It is how an event reaches the state.
func (s *scopeStore) locked(fn func(*state)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(&s.state)
}

// from returns what fn, which must not wait, finds in the state of a scope.
func from[T any](s *scopeStore, fn func(*state) T) (v T) {
	s.locked(func(s *state) { v = fn(s) })
	return v
}

// reader returns the store that answers the reads of s: s itself or, after Close, the
// store that was opened last in its place. It returns an error if that store does not
// hold a complete list.
func (s *scopeStore) reader() (*scopeStore, error) {
	now := s
	for next := now.next.Load(); next != nil; next = now.next.Load() {
		now = next
	}
	if now == s {
		return s, nil
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	if !now.isListed() && !now.db.readOnly {
		return nil, fmt.Errorf("%s was closed, and is listed anew: %w", s.scope, store.ErrClosed)
	}
	return now, nil
}

// isReplaced reports whether a store was opened in the place of s, which has no log
// since.
func (s *scopeStore) isReplaced() bool { return s.next.Load() != nil }

// isOutdated reports whether a store that was opened in the place of s has dropped what s
// has read so far.
func (s *scopeStore) isOutdated() bool {
	for ; s != nil; s = s.next.Load() {
		if from(s, (*state).isOutdated) {
			return true
		}
	}
	return false
}

// bucket returns the scope's bucket, or nil if there is none that may be used.
func (s *scopeStore) bucket(tx *bbolt.Tx) *bbolt.Bucket {
	if s.noBucket.Load() {
		return nil
	}
	return s.bucketIn(tx)
}

func (s *scopeStore) bucketIn(tx *bbolt.Tx) *bbolt.Bucket {
	return layout.Scope(tx, s.id)
}

func (s *scopeStore) isLeased() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role != roleViewer
}

// Checkpoint implements store.Store.
func (s *scopeStore) Checkpoint() store.Checkpoint {
	s, err := s.reader()
	if err != nil {
		return store.Checkpoint{Reason: err.Error(), Time: time.Now()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkpoint
}

// Len implements store.Store.
func (s *scopeStore) Len() int {
	s, err := s.reader()
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || s.isLoading() {
		return 0
	}
	return s.length
}

// Close implements store.Store.
func (s *scopeStore) Close() error {
	if !s.isLeased() {
		return nil
	}
	s.endWrites()
	s.mu.Lock()
	r := s.relist
	s.mu.Unlock()
	if r != nil {
		_ = r.Close()
	}
	var err error
	if !s.db.readOnly {
		// Only one attempt: a full disk must not keep a process from ending.
		err = s.flushOnce(context.Background())
	}
	s.mu.Lock()
	s.role = roleViewer
	s.mu.Unlock()
	return err
}

func (s *scopeStore) endWrites() {
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role == roleWriter {
		s.role = roleClosing
	}
}

// lostLocked returns an error if changes that waited were lost with the file, and nothing
// was written since.
func (s *scopeStore) lostLocked() error {
	if s.lostErr == nil {
		return nil
	}
	return fmt.Errorf("%s: last changes are lost: %w", s.scope, s.lostErr)
}

// unwritten returns an error if changes still wait, with the error of the last commit, or
// are lost.
func (s *scopeStore) unwritten() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == s.latest {
		return s.lostLocked()
	}
	if s.commitErr == nil {
		return fmt.Errorf("%s: closed before the last changes were written", s.scope)
	}
	return fmt.Errorf("%s: last changes are not written: %w", s.scope, s.commitErr)
}

// Flush implements store.Store.
func (s *scopeStore) Flush(ctx context.Context) error {
	s.mu.Lock()
	target := s.latest
	// The first attempt may have begun before this call. After one that has failed, the
	// committer tries again by itself, with a backoff.
	for tries := 0; s.written < target; tries++ {
		attempt := s.attempt
		s.mu.Unlock()
		if tries < 2 {
			s.db.wake()
		}
		select {
		case <-attempt:
		case <-s.db.committer.done:
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.written >= target {
				return s.lostLocked()
			}
			return store.ErrClosed
		case <-ctx.Done():
			s.mu.Lock()
			err := errors.Join(ctx.Err(), s.commitErr)
			s.mu.Unlock()
			return err
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	return s.lostLocked()
}

// flushOnce waits for one attempt to write the changes that were applied before the call.
// A broken disk does not block it.
func (s *scopeStore) flushOnce(ctx context.Context) error {
	s.mu.Lock()
	target := s.latest
	// The first attempt may have begun before this call.
	for tries := 0; s.written < target && tries < 2; tries++ {
		attempt := s.attempt
		s.mu.Unlock()
		s.db.wake()
		select {
		case <-attempt:
		case <-s.db.committer.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
	}
	s.mu.Unlock()
	return s.unwritten()
}

// Invalidate implements store.Store.
func (s *scopeStore) Invalidate(ctx context.Context, reason string) error {
	s.writerMu.Lock()
	s.mu.Lock()
	if s.role != roleWriter {
		s.mu.Unlock()
		s.writerMu.Unlock()
		return store.ErrClosed
	}
	if s.cause != nil { // lost content has no resource version
		s.mu.Unlock()
		s.writerMu.Unlock()
		return nil
	}
	s.invalidated(store.Batch{Reason: cmp.Or(reason, "invalidated")})
	s.mu.Unlock()
	s.writerMu.Unlock()
	return s.flushOnce(ctx)
}
