package bolt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/listing"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
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
	b := sn.scope
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

// comparison compares the former content with the list that has been loaded.
type comparison struct {
	s       *scopeStore
	sn      *snapshot
	former  *bbolt.Bucket
	since   time.Time // when the former content was last known to be current
	listed  *listing.Keys
	left    map[string]*overlay.Entry // what the list has left to the committer
	room    int64                     // bytes
	gone    []*overlay.Entry          // entries of deletions, with the state before
	dropped int
}

// departedFromFormer returns the objects of the former content that are gone, each as an
// entry that departs, and how many are not kept because of the bound of the log. The
// caller must hold writerMu.
func (r *relist) departedFromFormer(left []*overlay.Entry) (gone []*overlay.Entry, dropped int, err error) {
	s := r.s
	if s.countLosses() > 0 {
		return nil, 0, nil
	}
	bound, _ := s.boundsOfLog(s.bytesOfLog())
	var c comparison
	err = s.readAs("former objects", want{loaded: true, left: true}, func(sn *snapshot) error {
		if sn.former == nil {
			return nil
		}
		c = comparison{
			s: s, sn: sn, former: sn.former, listed: &r.Listed,
			left: map[string]*overlay.Entry{}, room: 2 * changelog.BoundOfDeletions(bound),
		}
		for _, e := range left {
			c.left[e.Key] = e
		}
		return c.compare()
	})
	return c.gone, c.dropped, err // after a panic of bbolt, too
}

// compare returns the error of the first object that cannot be compared. It passes over
// such objects.
func (c *comparison) compare() error {
	m, err := layout.ReadManifest(c.s.id, c.former)
	if err != nil {
		return c.s.db.corrupt("former objects of "+c.s.scope.String(), err)
	}
	c.since = m.Time
	if m.Log.AsOf != 0 {
		c.since = time.Unix(0, m.Log.AsOf)
	}
	headers, objects := c.former.Bucket(layout.Headers), c.former.Bucket(layout.Objects)
	if headers == nil || objects == nil {
		return c.s.db.corrupt("former objects of "+c.s.scope.String(), errors.New("headers or objects are missing"))
	}
	var failed error
	cursor := headers.Cursor()
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		failed = cmp.Or(failed, c.compareOne(string(k), v, objects))
	}
	return failed
}

func (c *comparison) compareOne(key string, header []byte, objects *bbolt.Bucket) error {
	head, err := c.s.seal.Header(seal.InScope, key, header)
	if err != nil {
		return c.s.db.unreadable("former header "+key, err)
	}
	if is, err := c.isListed(key, head); is || err != nil {
		return err
	}
	return c.depart(key, head, objects.Get([]byte(key)))
}

// isListed reports whether the list has the object of a former header. It has not if
// another object has the name now.
func (c *comparison) isListed(key string, former *record.Header) (bool, error) {
	if !c.listed.Has(key) {
		return false, nil
	}
	now, err := c.s.header(c.sn, key)
	if e := c.left[key]; e != nil {
		now, err = e.Head, nil
	}
	if err != nil {
		return false, err
	}
	return now == nil || !now.IsAnother(former), nil
}

// depart adds an object that is gone.
func (c *comparison) depart(key string, head *record.Header, b []byte) error {
	rec, err := record.Decode(key, b)
	if err != nil {
		return c.s.db.corrupt("former object "+key, err)
	}
	payload, err := c.s.seal.AppendPayload(nil, seal.InScope, key, rec)
	if err != nil {
		return c.s.db.unreadable("former object "+key, err)
	}
	name := key
	if head.Name != "" {
		name = head.Name
	}
	e := &overlay.Entry{
		Key: key, Name: name, Since: c.since,
		Before: &overlay.Entry{
			Key: key, Name: name, Head: head, Codec: rec.Codec,
			Payload: record.Packed{Dictionary: rec.Dictionary, Bytes: payload},
		},
	}
	e.Before.Head.Index = nil
	if c.room -= int64(e.Size()); c.room < 0 {
		c.dropped++
		return nil
	}
	c.gone = append(c.gone, e)
	return nil
}
