package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// The former content of a scope is a whole list that Open could not use, for example
// because of another transform. Nobody reads it, but it is the only thing that knows what
// was deleted while no process ran. So it stays in the file until the next list is whole:
// an object that it has and the list has not, or has with another UID, departs then.

// isReadable reports whether what a manifest describes can be read with the options. It
// may still be of no use.
func (s *scopeStore) isReadable(m *record.Manifest) bool {
	return s.opts.Codec != nil && m.Codec == s.opts.Codec.Name() &&
		m.Keys == s.seal.KeysID() && (s.seal == nil || m.Dictionaries.Count == 0)
}

// findLeft finds what an earlier process has left. While the disk is full, that is still
// where it was: see beginAgain. It takes no lock, since it runs inside a transaction.
func (s *scopeStore) findLeft(tx *bbolt.Tx, sn *snapshot) {
	b := sn.Scope
	if sn.isLeft && s.db.isOfEpoch(tx) {
		b = s.bucketIn(tx)
	}
	if b == nil {
		return
	}
	if sn.isLeft {
		m, err := layout.ReadManifest(s.id, b)
		if err != nil || !s.isReadable(m) {
			return
		}
		if sn.left = b; m.Complete && m.Objects.Count > 0 {
			sn.former = b
			return
		}
	}
	sn.former = b.Bucket(layout.Former)
}

// beginAgain makes the bucket of a scope that of the manifest m, which has no content.
// The log stays, with the dictionaries that it needs, and so does the former content. The
// content of a whole list becomes the former content. What cannot be read is dropped, and
// so is what another process, or a wipe of unknown outcome, has left.
func (s *scopeStore) beginAgain(b *bbolt.Bucket, was, m *record.Manifest) error {
	keep := [][]byte{layout.Log, layout.Dictionaries, layout.Former}
	m.Log, m.Dictionaries = was.Log, was.Dictionaries
	if !s.isReadable(was) || s.countLosses() > 0 {
		keep, m.Log, m.Dictionaries = nil, record.LogState{}, record.Tally{}
		changelog.Carry(m, was.Log)
	}
	changelog.NewLineage(&m.Log)
	m.Log.Cut = m.Log.Last // the next list, which is not logged, replaces the last states
	m.Log.Listing, m.Log.Listed, m.Log.AsOf = false, 0, 0
	var drop [][]byte
	err := b.ForEachBucket(func(name []byte) error {
		if !slices.ContainsFunc(keep, func(kept []byte) bool { return bytes.Equal(name, kept) }) {
			drop = append(drop, bytes.Clone(name))
		}
		return nil
	})
	if err == nil && keep != nil && was.Complete && was.Objects.Count > 0 {
		drop = slices.DeleteFunc(drop, func(name []byte) bool {
			return bytes.Equal(name, layout.Headers) || bytes.Equal(name, layout.Objects)
		})
		err = keepFormer(b, was)
	}
	for _, name := range drop {
		err = errors.Join(err, b.DeleteBucket(name))
	}
	return err
}

// countLosses returns how often the content was lost since the scope was opened.
func (s *scopeStore) countLosses() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.losses
}

// keepFormer moves the content of a scope to where the former content is.
func keepFormer(b *bbolt.Bucket, was *record.Manifest) error {
	if b.Bucket(layout.Former) != nil {
		if err := b.DeleteBucket(layout.Former); err != nil {
			return err
		}
	}
	former, err := b.CreateBucket(layout.Former)
	if err != nil {
		return err
	}
	for _, name := range [][]byte{layout.Headers, layout.Objects} {
		if err := b.MoveBucket(name, former); err != nil {
			return fmt.Errorf("keep %s: %w", name, err)
		}
	}
	m := *was
	m.Indexes = nil // they stay behind
	return layout.WriteManifest(former, &m)
}

// dropFormer drops the former content. The list that it was kept for is whole.
func (w *writer) dropFormer() error {
	if w.Scope.Bucket(layout.Former) == nil {
		return nil
	}
	return w.Scope.DeleteBucket(layout.Former)
}

// loadedList is what is left to do when a first list is applied.
type loadedList struct {
	left    []*overlay.Entry // to the committer
	gone    []*overlay.Entry // of the former content, each as an entry that departs
	dropped int              // objects that are gone and exceed the bound of the log
}

// loadedList returns what is left to do for the loaded list. The caller must hold
// writerMu.
func (s *scopeStore) loadedList() (l loadedList, err error) {
	if l.left, err = s.leftEntries(); err != nil {
		return l, err
	}
	if l.gone, l.dropped, err = s.departedFromFormer(l.left); err != nil {
		// Nothing can restore the deletions. The list must be served.
		s.db.opts.Logger.Error(err, "Not all that was deleted while no process ran can be told", "scope", s.scope.String())
		err = nil
	}
	return l, err
}

// departedFromFormer returns the objects of the former content that are gone, each as an
// entry that departs, and how many are not kept because of the bound of the log. The
// caller must hold writerMu.
func (s *scopeStore) departedFromFormer(left []*overlay.Entry) (gone []*overlay.Entry, dropped int, err error) {
	s.mu.Lock()
	r, wasLost := s.relist, s.losses > 0
	s.mu.Unlock()
	if r == nil || wasLost {
		return nil, 0, nil
	}
	bound, _ := s.boundsOfLog(s.bytesOfLog())
	var c graveyard.Comparison
	err = s.readAs("former objects", want{loaded: true, left: true}, func(sn *snapshot) error {
		if sn.former == nil {
			return nil
		}
		c = graveyard.Comparison{
			Content: &sn.Snapshot, Former: sn.former, Listed: r.seen,
			Left: map[string]*overlay.Entry{}, Room: 2 * changelog.BoundOfDeletions(bound),
		}
		for _, e := range left {
			c.Left[e.Key] = e
		}
		return c.Compare()
	})
	return c.Gone, c.Dropped, err // after a panic of bbolt, too
}
