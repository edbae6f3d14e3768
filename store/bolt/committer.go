package bolt

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Each DB has one committer goroutine. Close ends it after a last attempt to write.
//
// The outcome of a failed commit is not known: bbolt has returned an error for a
// transaction that readers could see afterwards. Therefore the file is reopened and the
// same or a later state is written again. Writing twice is correct, because the
// transaction reads the old index values and sums from the file.

// maxBackoff bounds the time between attempts while the disk is broken.
const maxBackoff = 30 * time.Second

// shared is what the scopes of a database share.
type shared struct {
	pending atomic.Int64  // waiting bytes of all scopes; changed under scopeStore.mu
	logs    changelog.Sum // changed under scopeStore.mu

	changed chan struct{} // changes wait; holds one value
	urgent  chan struct{} // a commit must not wait for the interval; holds one
}

// tell tells the committer that changes wait.
func (d *shared) tell(urgent bool) {
	c := d.changed
	if urgent {
		c = d.urgent
	}
	select {
	case c <- struct{}{}:
	default:
	}
}

// wake requests a commit now.
func (d *DB) wake() { d.tell(true) }

func (d *DB) commitLoop(ctx context.Context) {
	defer close(d.committer)
	backoff := d.opts.CommitInterval
	for {
		select {
		case <-d.changed:
			d.pause(ctx, d.opts.CommitInterval)
		case <-d.urgent:
		case <-ctx.Done():
			_ = d.commit() // every scope's commitErr has its error
			return
		}
		if err := d.commit(); err != nil {
			asked := d.pause(ctx, backoff)
			backoff = min(2*min(backoff, maxBackoff), maxBackoff)
			d.tell(asked)
			continue
		}
		backoff = d.opts.CommitInterval
	}
}

// pause waits for the given duration or for the end of ctx. It ends early and returns
// true if an urgent commit is requested.
func (d *DB) pause(ctx context.Context, wait time.Duration) (urgent bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.urgent:
		return true
	case <-ctx.Done():
	}
	return false
}

// capture is the state of a scope at one moment.
type capture struct {
	s          *scopeStore
	over       overlay.View
	packer     *pack.Packer
	checkpoint store.Checkpoint
	loading    bool
	applied    uint64
	losses     uint64
	turns      uint64
	share      int64            // of the log, in bytes
	entries    []*overlay.Entry // of over, in key order
	packed     []record.Packed  // of entries
	told       uint64           // the last departed object that was delivered
	settled    uint64           // the same by an earlier process
	gone       []*overlay.Entry // see departures
	log        record.LogState  // after it
	departed   int              // departed objects that were written
	dropped    int              // departed objects that were not kept
	earlier    tally            // what dropFormer has written and not kept
	stored     int              // objects in the file after it; -1: nothing written
	bytes      int64            // of their records
	changelog.Capture

	// befores are the states that depart and were never written, finals the final states
	// of what departs.
	befores, finals map[*overlay.Entry]record.Packed
}

// tally counts departed objects.
type tally struct{ departed, dropped int }

// commit writes the waiting changes of all scopes in one transaction.
func (d *DB) commit() error {
	d.writeRewrapped()
	d.keepReserve()
	d.mu.Lock()
	var captures []capture
	share := d.shareOfLogsLocked(nil, 0)
	for _, s := range d.scopes {
		if c, due := s.capture(share); due {
			captures = append(captures, c)
		} else {
			s.passOver()
		}
	}
	d.mu.Unlock()
	if len(captures) == 0 {
		return nil
	}
	begin := time.Now()
	var err error
	for i := range captures {
		err = errors.Join(err, captures[i].pack())
	}
	if err == nil {
		if err = d.writeCaptures(captures); lacksRoom(err) && d.makeRoom(captures) {
			err = d.writeCaptures(captures)
		}
		for try := 0; lacksRoom(err) && try < trims && d.trimFor(captures, try); try++ {
			err = d.writeCaptures(captures)
		}
	}
	if err != nil {
		d.opts.Logger.Error(err, "Could not write the cache, trying again", "path", d.path)
	} else {
		d.trimmed = 0
		d.noteCommit(time.Since(begin), captures)
	}
	for _, c := range captures {
		c.s.committedUpTo(c, err)
	}
	d.noteWaiting()
	if err == nil {
		d.trimLater()
	}
	return err
}

func (d *DB) writeCaptures(captures []capture) error {
	return d.update("commit", func(tx *bbolt.Tx) error {
		for i := range captures {
			c := &captures[i]
			c.stored, c.Held = -1, c.s.heldOfLog()
			if !d.isCurrent(c.s) || c.isLost() {
				// The scope was closed while the disk was broken and opened again since,
				// or the file that it was captured for is lost.
				continue
			}
			if err := c.write(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *DB) isCurrent(s *scopeStore) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.scopes[s.id] == s
}

// capture returns the state of the scope, and whether it has to be written.
func (s *scopeStore) capture(share int64) (c capture, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, due = s.captured(share)
	c.s = s
	return c, due
}

// passOver tells a scope that nothing of it is written.
func (s *scopeStore) passOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passedOver()
}

// isLost reports whether the captured content was lost since it was captured. The answer
// does not change inside a transaction.
func (c *capture) isLost() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.losses != c.losses
}

// pack compresses and encrypts the entries before the transaction begins.
func (c *capture) pack() (err error) {
	c.entries = c.over.All()
	if c.packed, err = c.packer.Pack(seal.InScope, c.entries); err != nil {
		return err
	}
	c.befores, c.finals = map[*overlay.Entry]record.Packed{}, map[*overlay.Entry]record.Packed{}
	for _, e := range c.entries {
		if e.Departs != 0 && e.Last.Bytes != nil {
			c.finals[e] = c.packer.Final(e)
		}
		if e.Before == nil || e.Departs == 0 {
			continue
		}
		if err := c.packBefore(e); err != nil {
			return err
		}
	}
	for _, e := range c.gone {
		if err := c.packBefore(e); err != nil {
			return err
		}
	}
	return nil
}

// packBefore packs the state before of an entry.
func (c *capture) packBefore(e *overlay.Entry) error {
	before, err := c.packer.Pack(seal.InScope, []*overlay.Entry{e.Before})
	if err != nil {
		return err
	}
	c.befores[e] = before[0]
	return nil
}

func (c *capture) write(tx *bbolt.Tx) error {
	w, err := c.s.writer(tx)
	if err != nil {
		return err
	}
	w.logged = c.appender(w)
	for i, e := range c.entries {
		runtime.Gosched() // let event handling run first
		if err := w.apply(e, c.packed[i]); err != nil {
			return err
		}
	}
	for _, e := range c.gone {
		if err := w.logged.NoteGone(e); err != nil {
			return err
		}
	}
	if c.Lists > 0 {
		if err := w.dropFormer(); err != nil {
			return err
		}
	}
	w.Manifest.SetCheckpoint(c.checkpoint)
	w.Manifest.Complete = !c.loading
	w.Manifest.Log.Settled = c.told
	if err := w.logged.End(); err != nil {
		return err
	}
	c.log, c.departed, c.dropped, c.Held = w.Manifest.Log, c.earlier.departed+w.logged.Departed, c.earlier.dropped+w.logged.Dropped, w.logged.Held
	c.stored, c.bytes = int(w.Manifest.Objects.Count), w.Manifest.Bytes
	c.s.noteAttempt(c.Attempt())
	return w.End()
}

// noteAttempt notes a commit before its outcome is known: if it is not, the file is
// opened again before committedUpTo.
func (s *scopeStore) noteAttempt(a changelog.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changelog.Attempted(a)
}

func (s *scopeStore) copyAttempts() []changelog.Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changelog.Attempts)
}

func (s *scopeStore) heldOfLog() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changelog.Captured().Held
}

func (s *scopeStore) forgetAttempts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changelog.Attempts = nil
}

// committedUpTo tells a scope of the outcome of a commit.
func (s *scopeStore) committedUpTo(c capture, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.committed(c, err) {
		s.db.opts.Logger.Info("More objects were deleted than are kept for handlers that have not been told",
			"scope", s.scope.String(), "logBytes", c.log.Bytes)
	}
}

// writer changes one scope's content, log and manifest inside a transaction.
type writer struct {
	*content.Writer
	s      *scopeStore
	logged *changelog.Appender // nil: what is written is not logged
}

// writer returns a writer of the scope's content. The caller has to call its End.
func (s *scopeStore) writer(tx *bbolt.Tx) (*writer, error) {
	w, err := s.writerOfLog(tx)
	if err == nil {
		err = w.dropOldIndexes(tx)
	}
	return w, err
}

// writerOfLog returns a writer that has changed nothing yet.
func (s *scopeStore) writerOfLog(tx *bbolt.Tx) (*writer, error) {
	if s.needsBucket() {
		if err := s.createFirst(tx, "nothing stored yet"); err != nil {
			return nil, err
		}
		// This runs under writeMu, else another writer would create the bucket again.
		// Until then readers read everything from pending.
		tx.OnCommit(func() { s.setNoBucket(false) })
	}
	b := s.bucketIn(tx)
	if b == nil {
		return nil, s.db.corrupt("scope "+s.scope.String(), errors.New("missing"))
	}
	c, err := content.NewWriter(s.id, b, content.Options{
		Packer: s.packer.Load(), Codec: s.codecID(), Logger: s.db.opts.Logger, Corrupt: s.db.corrupt,
	})
	if err != nil {
		return nil, err
	}
	return &writer{Writer: c, s: s}, s.seal.Persist(tx)
}

// dropOldIndexes drops the indexes that reconcileIndexes could not drop.
func (w *writer) dropOldIndexes(tx *bbolt.Tx) error {
	s := w.s
	s.mu.Lock()
	old := s.oldIndexes
	s.mu.Unlock()
	for _, name := range old {
		if err := w.DropIndex(name); err != nil {
			return err
		}
	}
	if old != nil {
		tx.OnCommit(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.oldIndexes = nil
		})
	}
	return nil
}

// appender returns what appends to the log what a commit changes.
func (c *capture) appender(w *writer) *changelog.Appender {
	return changelog.NewAppender(w.Writer, c.Capture, c.logOptions())
}

func (c *capture) logOptions() changelog.Options {
	s := c.s
	return changelog.Options{
		Bounds: s.boundsOfLog, Seal: s.seal, Codec: s.codecID(), Logger: s.db.opts.Logger, Corrupt: s.db.corrupt,
		RV: c.checkpoint.RV, Loading: c.loading, Settled: c.settled, Befores: c.befores, Finals: c.finals,
	}
}

// apply writes one entry, and logs it.
func (w *writer) apply(e *overlay.Entry, p record.Packed) error {
	before := w.Before(e.Key)
	if w.logged != nil {
		if err := w.logged.Note(e, e.Stored(p), before); err != nil {
			return err
		}
	}
	return w.Put(e, p, before)
}
