package bolt

import (
	"time"

	"github.com/informctl/informctl/store"
)

var _ store.Committer = (*Store)(nil)

// Commits implements store.Committer.
func (s *Store) Commits() store.Commits {
	s.db.mu.Lock()
	c := s.db.commits
	s.db.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.LongestRead = time.Duration(s.db.longestRead.Load())
	c.Err, c.Waiting = s.commitErr, int64(s.pendingBytes)
	return c
}

// noteCommit counts a transaction that was committed.
func (d *DB) noteCommit(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commits.Count++
	d.commits.Took += took
	d.commits.Last, d.commits.LastTook = time.Now(), took
}
