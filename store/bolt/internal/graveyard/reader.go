package graveyard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

// Reader finds departed objects: in the log, in what is not written yet, and in the
// former content.
type Reader struct {
	Content *view.Snapshot
	Log     *changelog.Reader
	Gone    []*overlay.Entry // of the former content: see State
}

// departing is a departed object in the file, in pending or of the former content.
type departing struct {
	number        uint64
	logged        *record.LogEntry
	pending, gone *overlay.Entry
}

// Read returns up to limit departed objects with a number above after, in the order of
// the numbers. It reads and renews hint, which is not valid after an error.
func (r *Reader) Read(hint *Hint, after uint64, limit int) (out []store.Departed, err error) {
	found, err := r.logged(hint, after, limit)
	if err != nil {
		return nil, err
	}
	written := map[uint64]bool{}
	for _, d := range found {
		written[d.number] = true
	}
	// A commit of unknown outcome may have written them.
	r.Content.Overlay.Scan(func(e *overlay.Entry) bool {
		if e.Departs > after && !written[e.Departs] {
			found = append(found, departing{number: e.Departs, pending: e})
		}
		return true
	})
	for _, e := range r.Gone {
		if e.Departs > after && !written[e.Departs] {
			found = append(found, departing{number: e.Departs, gone: e})
		}
	}
	slices.SortFunc(found, func(a, b departing) int { return cmp.Compare(a.number, b.number) })
	for _, d := range found[:min(limit, len(found))] {
		out = append(out, r.open(d))
	}
	return out, nil
}

// logged returns the first departed objects in the log with a number above
// after. The file may be ahead of what is acknowledged.
func (r *Reader) logged(hint *Hint, after uint64, limit int) ([]departing, error) {
	b := r.Log.Bucket
	if b == nil {
		return nil, nil
	}
	m, err := layout.ReadManifest(r.Content.Codec.Scope.ID(), b)
	if err != nil {
		return nil, r.Log.Corrupt("scope "+r.Content.Codec.Scope.String(), err)
	}
	if m.Log.Departed <= after {
		*hint = Hint{}
		return nil, nil
	}
	if places := hint.Behind(after, m.Log.Departed, limit); len(places) > 0 {
		if found, ok := r.at(places); ok {
			hint.EndAfter(places[len(places)-1])
			return found, nil
		}
	}
	*hint = Hint{After: after, UpTo: m.Log.Departed}
	r.Log.EachReadable(func(b *record.Block) bool {
		for i := range b.Entries {
			if number := b.Entries[i].Departs; number > after {
				hint.Places = append(hint.Places, Place{Number: number, Block: b.Key})
			}
		}
		return true
	})
	slices.SortFunc(hint.Places, func(a, b Place) int { return cmp.Compare(a.Number, b.Number) })
	found, ok := r.at(hint.Places[:min(limit, len(hint.Places))])
	if !ok {
		return nil, r.Log.Corrupt("log of "+r.Content.Codec.Scope.String(), errors.New("it has changed while it was read"))
	}
	if len(found) > 0 {
		hint.EndAfter(hint.Places[len(found)-1])
	}
	return found, nil
}

// at returns the objects at some places. ok is false if one is not there.
func (r *Reader) at(places []Place) (found []departing, ok bool) {
	if len(places) == 0 {
		return nil, true
	}
	scope := r.Log.Bucket
	if scope == nil || scope.Bucket(layout.Log) == nil {
		return nil, false
	}
	log := scope.Bucket(layout.Log)
	blocks := map[uint64]*record.Block{}
	for _, p := range places {
		b := blocks[p.Block]
		if b == nil {
			var err error
			if b, err = record.DecodeBlock(p.Block, log.Get(changelog.Key(p.Block))); err != nil {
				return nil, false
			}
			blocks[p.Block] = b
		}
		i := slices.IndexFunc(b.Entries, func(e record.LogEntry) bool { return e.Departs == p.Number })
		if i < 0 {
			return nil, false
		}
		found = append(found, departing{number: p.Number, logged: &b.Entries[i]})
	}
	return found, true
}

// open returns one departed object. It leaves out content that cannot be read,
// because a relist cannot restore it.
func (r *Reader) open(d departing) store.Departed {
	out := store.Departed{Number: d.number}
	if d.gone != nil {
		out.Before = r.Content.Codec.Pending(d.gone.Before)
		return out
	}
	key, rec := "", []byte(nil)
	if d.pending != nil {
		out.Before.Key, key = d.pending.Name, d.pending.Key
		if d.pending.Last.Bytes != nil && !changelog.IsAnother(r.Content.Codec.Seal, key, inFile(r.Content.Headers, key), d.pending.Before) {
			out.Last = r.Content.Codec.FinalEntry(d.pending.Name, d.pending.Last)
		}
		if rec = inFile(r.Content.Objects, key); rec == nil {
			if d.pending.Before != nil {
				out.Before = r.Content.Codec.Pending(d.pending.Before)
			}
			return out
		}
	} else {
		out.Before.Key, key, rec = d.logged.OwnKey(), d.logged.Key, d.logged.Record
		if d.logged.Final != nil {
			if raw, err := r.Content.Codec.Seal.AppendRaw(nil, seal.InDeparted, key, d.logged.Final); err == nil {
				out.Last = store.Entry{Key: d.logged.OwnKey(), Raw: raw}
			}
		}
	}
	if rec == nil {
		return out
	}
	before, err := r.Content.Codec.Stored(key, rec)
	if err != nil {
		r.Log.Logger.Error(r.Log.Unreadable(fmt.Sprintf("departed object %d", d.number), err), "A deleted object cannot be read")
		return out
	}
	out.Before.Raw = before.Raw
	return out
}

// inFile returns what a bucket has of a key, or nil. It is valid until the transaction
// ends.
func inFile(b *bbolt.Bucket, key string) []byte {
	if b == nil {
		return nil
	}
	return b.Get([]byte(key))
}
