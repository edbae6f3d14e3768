package bolt

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/commit"
	"github.com/informctl/informctl/store/bolt/internal/content"
)

// Each DB has one committer goroutine. Close ends it after a last attempt to write.
//
// The outcome of a failed commit is not known: bbolt has returned an error for a
// transaction that readers could see afterwards. Therefore the file is reopened and the
// same or a later state is written again. Writing twice is correct, because the
// transaction reads the old index values and sums from the file.

// committer writes what waits in the scopes of a DB. One goroutine runs it, until the DB
// is closed.
type committer struct {
	*DB
	done      chan struct{} // closed when the goroutine has ended
	trims     int           // since a commit has succeeded; see trimFor
	leastLogs int64         // bytes of logs that could not be trimmed

	// committing is held by commit, which tests call beside the goroutine. It protects
	// trims and leastLogs.
	committing sync.Mutex
}

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

func (d *committer) run(ctx context.Context) {
	defer close(d.done)
	backoff := d.opts.CommitInterval
	for {
		select {
		case <-d.changed:
			d.pause(ctx, d.opts.CommitInterval)
		case <-d.urgent:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
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
func (d *committer) pause(ctx context.Context, wait time.Duration) (urgent bool) {
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

// capture is the state of a scope at one moment, and its part of a commit.
type capture struct {
	s       *scopeStore
	applied uint64
	losses  uint64
	turns   uint64
	share   int64 // of the log, in bytes
	commit.Part
}

// commit writes the waiting changes of all scopes in one transaction.
func (d *committer) commit() error {
	d.committing.Lock()
	defer d.committing.Unlock()
	d.writeRewrapped()
	d.keepReserve()
	d.mu.Lock()
	var captures []capture
	share := d.shareOfLogsLocked(nil, 0)
	for _, s := range d.scopes {
		if c, due := s.capture(share); due {
			captures = append(captures, c)
		} else {
			s.locked((*state).passedOver)
		}
	}
	d.mu.Unlock()
	if len(captures) == 0 {
		return nil
	}
	begin := time.Now()
	var err error
	for i := range captures {
		err = errors.Join(err, captures[i].Pack())
	}
	if err == nil {
		if err = d.writeCaptures(captures); lacksRoom(err) && d.makeRoom(captures) {
			err = d.writeCaptures(captures)
		}
		for try := 0; lacksRoom(err) && try < trims && d.trimFor(captures); try++ {
			err = d.writeCaptures(captures)
		}
	}
	if err != nil {
		d.opts.Logger.Error(err, "Could not write the cache, trying again", "path", d.path)
	} else {
		d.trims = 0
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

func (d *committer) writeCaptures(captures []capture) error {
	return d.update("commit", func(tx *bbolt.Tx) error {
		for i := range captures {
			c := &captures[i]
			c.Written, c.Held = false, from(c.s, func(s *state) uint64 { return s.changelog.Captured().Held })
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

// isLost reports whether the captured content was lost since it was captured. The answer
// does not change inside a transaction.
func (c *capture) isLost() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.losses != c.losses
}

func (c *capture) write(tx *bbolt.Tx) error {
	w, err := c.s.writer(tx)
	if err == nil {
		err = c.Write(w, c.s.logOptions())
	}
	if err != nil {
		return err
	}
	c.s.locked(func(s *state) { s.attempted(c.Attempt()) })
	return w.End()
}

// committedUpTo tells a scope of the outcome of a commit.
func (s *scopeStore) committedUpTo(c capture, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.committed(c, err) {
		s.db.opts.Logger.Info("More objects were deleted than are kept for handlers that have not been told",
			"scope", s.scope.String(), "logBytes", c.Log.Bytes)
	}
}

// writer returns a writer of the scope's content. The caller has to call its End.
func (s *scopeStore) writer(tx *bbolt.Tx) (*content.Writer, error) {
	w, err := s.writerOfLog(tx)
	if err == nil {
		err = s.dropOldIndexes(tx, w)
	}
	return w, err
}

// writerOfLog returns a writer that has changed nothing yet.
func (s *scopeStore) writerOfLog(tx *bbolt.Tx) (*content.Writer, error) {
	if s.noBucket.Load() {
		if err := s.createFirst(tx, "nothing stored yet"); err != nil {
			return nil, err
		}
		// This runs under writeMu, else another writer would create the bucket again.
		// Until then readers read everything from pending.
		tx.OnCommit(func() { s.noBucket.Store(false) })
	}
	b := s.bucketIn(tx)
	if b == nil {
		return nil, s.db.corrupt("scope "+s.scope.String(), errors.New("missing"))
	}
	w, err := content.NewWriter(s.id, b, content.Options{
		Packer: s.packer.Load(), Codec: s.codec.ID(), Logger: s.db.opts.Logger, Corrupt: s.db.corrupt,
	})
	if err != nil {
		return nil, err
	}
	return w, s.seal.Persist(tx)
}

// dropOldIndexes drops the indexes that reconcileIndexes could not drop.
func (s *scopeStore) dropOldIndexes(tx *bbolt.Tx, w *content.Writer) error {
	old := from(s, func(s *state) []string { return s.oldIndexes })
	for _, name := range old {
		if err := w.DropIndex(name); err != nil {
			return err
		}
	}
	if old != nil {
		tx.OnCommit(func() { s.locked((*state).oldIndexesDropped) })
	}
	return nil
}

func (s *scopeStore) logOptions() changelog.Options {
	return changelog.Options{
		Bounds: s.boundsOfLog, Seal: s.seal, Codec: s.codec.ID(), Logger: s.db.opts.Logger, Corrupt: s.db.corrupt,
	}
}
