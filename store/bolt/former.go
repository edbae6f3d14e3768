package bolt

import (
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// isReadable reports whether what a manifest describes can be read with the options. It
// may still be of no use.
func (s *scopeStore) isReadable(m *record.Manifest) bool {
	return !s.damaged && s.opts.Codec != nil && m.Codec == s.opts.Codec.Name() &&
		m.Keys == s.seal.KeysID() && (s.seal == nil || m.Dictionaries.Count == 0)
}

// findLeft finds what an earlier process has left. While the disk is full, that is still
// where it was: see beginAgain. It takes no lock, since it runs inside a transaction.
func (sn *snapshot) findLeft(tx *bbolt.Tx) {
	s := sn.s
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
		if sn.left = b; graveyard.IsFormer(m) {
			sn.former = b
			return
		}
	}
	sn.former = b.Bucket(layout.Former)
}

// departedFromFormer returns the objects of the former content that are gone, each as an
// entry that departs, and how many are not kept because of the bound of the log. The
// caller must hold writerMu.
func (r *relist) departedFromFormer(left []*overlay.Entry) (gone []*overlay.Entry, dropped int, err error) {
	s := r.s
	if from(s, (*state).countLosses) > 0 {
		return nil, 0, nil
	}
	bound, _ := s.boundsOfLog(from(s, (*state).logBytes))
	var c graveyard.Comparison
	err = s.readAs("former objects", want{loaded: true, left: true}, func(sn *snapshot) error {
		if sn.former == nil {
			return nil
		}
		c = graveyard.Comparison{
			Content: &sn.Snapshot, Former: sn.former, Listed: &r.Listed,
			Left: map[string]*overlay.Entry{}, Room: 2 * changelog.BoundOfDeletions(bound),
		}
		for _, e := range left {
			c.Left[e.Key] = e
		}
		return c.Compare()
	})
	return c.Gone, c.Dropped, err // after a panic of bbolt, too
}
