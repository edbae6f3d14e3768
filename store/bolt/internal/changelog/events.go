package changelog

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

const (
	// partBytes is how much a part has of what is selected, in bytes.
	partBytes = 1 << 20
	// largeBytes is how much a part of a commit that does not end has, in bytes.
	largeBytes = 16 << 20
	// passedBytes is how much of the log is passed over for a part, in bytes. It is more
	// where the state after a change is looked for.
	passedBytes = 16 << 20
	// markBytes is what a mark counts.
	markBytes = 256
)

// Part is a part of the log.
type Part struct {
	Events  []store.Event
	Next    uint64 // the number of the next item
	Lineage string
	End     bool // the log ends here
}

// Read reads the next part of the log from a number on: the changes that ahead selects,
// and all marks. If all is set, it reads what is left of trimmed parts, too; otherwise
// the item with that number has to be there.
func (r *Reader) Read(from uint64, all bool, ahead *Ahead) (part Part, err error) {
	part = Part{Next: max(from, 1), Lineage: r.Log.Lineage, End: true}
	if err := ahead.of(&r.Log, from); err != nil {
		return part, err
	}
	if r.Log.Last == 0 {
		return part, nil
	}
	if err = r.read(from, all, ahead, &part); !all {
		err = Cut(err)
	}
	return part, err
}

func (r *Reader) read(from uint64, all bool, ahead *Ahead, part *Part) error {
	l := &r.Log
	full, err := r.Full()
	if err != nil {
		return err
	}
	if !all && from <= full {
		return store.ErrTrimmed
	}
	reader := &events{Reader: r, open: map[string]*store.Event{}, now: time.Now().UnixNano()}
	var out []*store.Event
	size, passed, isGap := 0, 0, false
	atMark := true
	err = r.EachHead(from, func(b *record.Block) bool {
		if b.Last() < from {
			return true
		}
		mayEnd := atMark || !ahead.WholeCommits || size >= largeBytes
		isEnough := mayEnd && (size >= partBytes || passed >= passedBytes && len(reader.open) == 0)
		if part.End = b.First() > l.Last; part.End || isEnough {
			return false
		}
		part.End = true // unless another one follows
		// What is missing up to full was trimmed.
		if isGap = b.First() > part.Next && (!all || part.Next > full); isGap {
			return false
		}
		at := reader.timeOf(b)
		for i := range b.Entries {
			switch e := &b.Entries[i]; {
			case e.Number < from:
			case ahead.Filter.Matches(e.OwnKey()):
				if err := r.Check(b); err != nil {
					reader.err = err
					return false
				}
				out = append(out, reader.event(e, at))
				size += e.Size()
			default:
				passed += e.Size()
			}
		}
		if m := b.Mark; m != nil && m.Number >= from {
			size += markBytes
			out = append(out, &store.Event{Time: time.Unix(0, at), Mark: r.Mark(m)})
		}
		part.Next, atMark = b.Last()+1, b.Mark != nil || b.Thinned
		return reader.err == nil
	})
	isShort := part.End && part.Next <= l.Last && (!all || l.Last > full)
	if part.End && !isShort {
		part.Next = max(part.Next, l.Last+1)
	}
	if part.Next <= full { // what was found may be trimmed
		ahead.reset()
	}
	if err == nil {
		err = ahead.resolve(reader, part.Next)
	}
	if err == nil {
		err = reader.close()
	}
	switch {
	case err != nil:
		return err
	case all && (isGap || isShort):
		return r.Corrupt("log of "+r.Scope.String(), fmt.Errorf("item %d is missing", part.Next))
	case isGap || isShort:
		return store.ErrTrimmed
	}
	if part.End {
		ahead.reset()
	}
	for _, e := range out {
		part.Events = append(part.Events, e.Steps()...)
	}
	return nil
}

// events makes events of entries. The state after an entry is the state before the next
// entry of its key or, if there is none, that in the file.
type events struct {
	*Reader
	open map[string]*store.Event // whose state after is not known yet, by file key
	now  int64
	time int64 // of the last block; 0: none
	err  error
}

// timeOf returns the time of the next block. One of a clock that was ahead has that of
// the block before, or it is now.
func (r *events) timeOf(b *record.Block) int64 {
	switch {
	case b.Time <= r.now:
		r.time = b.Time
	case r.time == 0: // a part begins here
		r.time = cmp.Or(r.timeBefore(b), r.now)
	}
	return r.time
}

// timeBefore returns the time of the last block before one that is not of a clock that
// was ahead; 0 if there is none.
func (r *events) timeBefore(b *record.Block) int64 {
	c := r.bucket().Cursor()
	c.Seek(Key(b.Key))
	for k, v := c.Prev(); k != nil; k, v = c.Prev() {
		if at := record.BlockTime(v); !at.IsZero() && at.UnixNano() <= r.now {
			return at.UnixNano()
		}
	}
	return 0
}

// Mark returns a mark as the store shows it.
func (r *Reader) Mark(m *record.Mark) *store.Mark {
	return &store.Mark{
		Place:  store.Place{Lineage: r.Log.Lineage, Mark: m.Number, Random: m.Random, RV: m.To, Time: time.Unix(0, m.Time)},
		FromRV: m.From, Frozen: m.Frozen, Listing: m.Listing, Begins: m.Begins,
	}
}

// event returns the event of an entry.
func (r *events) event(e *record.LogEntry, at int64) *store.Event {
	before := r.before(e)
	r.resolve(e.Key, before)
	out := &store.Event{Key: e.OwnKey(), Old: before, Short: r.short(e), RV: e.RV, Time: time.Unix(0, at)}
	if e.Since != 0 {
		out.Since = time.Unix(0, e.Since)
	}
	switch {
	case e.Kind&record.KindDeleted != 0:
	case e.Number <= r.Log.Cut: // later changes were left out
		out.New = unknown(e.OwnKey())
	default:
		r.open[e.Key] = out
	}
	return out
}

// before returns the state before an entry.
func (r *events) before(e *record.LogEntry) *store.Version {
	switch {
	case e.Kind&record.KindUnknown != 0:
		return unknown(e.OwnKey())
	case e.Kind&record.KindShort != 0:
		return nil
	}
	v, err := r.version(e.Key, e.OwnKey(), e.Header, e.Record)
	r.err = errors.Join(r.err, err)
	return v
}

// short returns the last state of an object that came and went inside the commit.
func (r *events) short(e *record.LogEntry) *store.Version {
	if e.Kind&record.KindShort == 0 {
		return nil
	}
	if e.Header == nil {
		return unknown(e.OwnKey()) // it was too large
	}
	v, err := r.version(e.Key, e.OwnKey(), e.Header, e.Record)
	r.err = errors.Join(r.err, err)
	return v
}

// resolve sets the state after of the last event of a key.
func (r *events) resolve(key string, state *store.Version) {
	e, ok := r.open[key]
	if !ok {
		return
	}
	delete(r.open, key)
	if e.New = state; state == nil { // only damage has the object missing
		e.New = unknown(e.Key)
	}
}

// unknown returns a state of which only the key is known.
func unknown(key string) *store.Version {
	return &store.Version{Header: store.Header{Key: key}, Entry: store.Entry{Key: key}}
}

// close takes the remaining states from the file.
func (r *events) close() error {
	for key, e := range r.open {
		state, err := r.version(key, e.Key, r.header(key), r.record(key))
		if err != nil {
			return errors.Join(r.err, err)
		}
		r.resolve(key, state)
	}
	return r.err
}

func (r *Reader) header(key string) []byte {
	if r.Headers == nil {
		return nil
	}
	return r.Headers.Get([]byte(key))
}

func (r *Reader) record(key string) []byte {
	if r.Objects == nil {
		return nil
	}
	return r.Objects.Get([]byte(key))
}

// version returns a state in the log or in the file; nil if there was no object.
func (r *Reader) version(key, name string, header, rec []byte) (*store.Version, error) {
	if header == nil {
		return nil, nil
	}
	h, err := r.Seal.Header(seal.InScope, key, header)
	if err != nil {
		return nil, r.Unreadable("header "+key, err)
	}
	v := &store.Version{Header: h.Public(name)}
	v.Entry.Key = name
	if v.Entry.Raw, err = r.Seal.AppendRaw(nil, seal.InScope, key, rec); err != nil {
		return v, r.Unreadable("object "+key, err)
	}
	return v, nil
}

// Full returns the number above which the file has all items of the log. The file may be
// ahead of what is acknowledged.
func (r *Reader) Full() (uint64, error) {
	if r.Bucket == nil {
		return 0, nil
	}
	m, err := layout.ReadManifest(r.Scope.ID(), r.Bucket)
	if err != nil {
		return 0, r.Corrupt("scope "+r.Scope.String(), err)
	}
	return m.Log.Full, nil
}
