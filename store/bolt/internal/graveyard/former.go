package graveyard

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/listing"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

// The former content of a scope is a whole list that Open could not use, for example
// because of another transform. Nobody reads it, but it is the only thing that knows what
// was deleted while no process ran. So it stays in the file until the next list is whole:
// an object that it has and the list has not, or has with another UID, departs then.

// BeginAgain makes the bucket of a scope that of the manifest m, which has no content.
// The log stays, with the dictionaries that it needs, and so does the former content. The
// content of a whole list becomes the former content. isReadable is false if nothing in
// the bucket can be read, or may be: then all of it is dropped.
func BeginAgain(b *bbolt.Bucket, was, m *record.Manifest, isReadable bool) error {
	keep := [][]byte{layout.Log, layout.Dictionaries, layout.Former}
	m.Log, m.Dictionaries = was.Log, was.Dictionaries
	if !isReadable {
		keep, m.Log, m.Dictionaries = nil, record.LogState{}, record.Tally{}
		changelog.Carry(m, was.Log)
	}
	// The server may have another history by the time of the next list.
	m.Log.Above = store.Higher(m.Log.Above, was.Log.Reached(was.RV))
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
	if err == nil && keep != nil && IsFormer(was) {
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

// IsFormer reports whether the content that a manifest describes can be compared with a
// list.
func IsFormer(was *record.Manifest) bool {
	return was.Complete && was.Objects.Count > 0 && was.Reason != store.ForeignContent
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

// DropFormer drops the former content, if there is one.
func DropFormer(scope *bbolt.Bucket) error {
	if scope.Bucket(layout.Former) == nil {
		return nil
	}
	return scope.DeleteBucket(layout.Former)
}

// Comparison compares the former content with the list that has been loaded.
type Comparison struct {
	Content *view.Snapshot // with what was loaded
	Former  *bbolt.Bucket
	Listed  *listing.Keys
	Left    map[string]*overlay.Entry // what the list has left to the committer
	Room    int64                     // bytes that Gone may take

	// Gone are the objects that the former content has and the list has not, each as the
	// entry of a deletion with the state before.
	Gone    []*overlay.Entry
	Dropped int // objects that are gone, for which there was no room

	since time.Time // when the former content was last known to be current
}

// Compare returns the error of the first object that cannot be compared. It passes over
// such objects.
func (c *Comparison) Compare() error {
	m, err := layout.ReadManifest(c.Content.Codec.Scope.ID(), c.Former)
	if err != nil {
		return c.Content.Codec.Corrupt("former objects of "+c.Content.Codec.Scope.String(), err)
	}
	c.since = m.Time
	if m.Log.AsOf != 0 {
		c.since = time.Unix(0, m.Log.AsOf)
	}
	headers, objects := c.Former.Bucket(layout.Headers), c.Former.Bucket(layout.Objects)
	if headers == nil || objects == nil {
		return c.Content.Codec.Corrupt("former objects of "+c.Content.Codec.Scope.String(), errors.New("headers or objects are missing"))
	}
	var failed error
	cursor := headers.Cursor()
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		failed = cmp.Or(failed, c.compareOne(string(k), v, objects))
	}
	return failed
}

func (c *Comparison) compareOne(key string, header []byte, objects *bbolt.Bucket) error {
	head, err := c.Content.Codec.Seal.Header(seal.InScope, key, header)
	if err != nil {
		return c.Content.Codec.Unreadable("former header "+key, err)
	}
	if is, err := c.isListed(key, head); is || err != nil {
		return err
	}
	return c.depart(key, head, objects.Get([]byte(key)))
}

// isListed reports whether the list has the object of a former header. It has not if
// another object has the name now.
func (c *Comparison) isListed(key string, former *record.Header) (bool, error) {
	if !c.Listed.Has(key) {
		return false, nil
	}
	now, err := c.Content.Header(key)
	if e := c.Left[key]; e != nil {
		now, err = e.Head, nil
	}
	if err != nil {
		return false, err
	}
	return now == nil || !now.IsAnother(former), nil
}

// depart adds an object that is gone.
func (c *Comparison) depart(key string, head *record.Header, b []byte) error {
	rec, err := record.Decode(key, b)
	if err != nil {
		return c.Content.Codec.Corrupt("former object "+key, err)
	}
	payload, err := c.Content.Codec.Seal.AppendPayload(nil, seal.InScope, key, rec)
	if err != nil {
		return c.Content.Codec.Unreadable("former object "+key, err)
	}
	name := cmp.Or(head.Name, key)
	e := &overlay.Entry{
		Key: key, Name: name, Since: c.since,
		Before: &overlay.Entry{
			Key: key, Name: name, Head: head, Codec: rec.Codec,
			Payload: record.Packed{Dictionary: rec.Dictionary, Bytes: payload},
		},
	}
	e.Before.Head.Index = nil
	if c.Room -= int64(e.Size()); c.Room < 0 {
		c.Dropped++
		return nil
	}
	c.Gone = append(c.Gone, e)
	return nil
}
