package ingest

import (
	"context"
	"errors"
	"maps"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/store"
)

// before returns what the store holds under the keys of changes, once the queues of the
// handlers have room for them. Of an object that cannot be read it returns the key, if
// handlers know it. A new list repairs such a record; a header that cannot be read is
// repaired by the change, so that it matters only where it is needed: for a deletion, or
// everywhere if all is set.
func (p *Pipeline) before(ctx context.Context, changes []change, all bool) store.Before {
	p.hub.Room(ctx)
	deleted := map[string]bool{}
	var keys []string
	for _, c := range changes {
		if _, seen := deleted[c.Key]; !seen {
			keys = append(keys, c.Key)
		}
		deleted[c.Key] = deleted[c.Key] || c.Last != nil
	}
	b, err := p.store.Before(keys)
	if err != nil {
		b = store.Before{Held: map[string]store.Held{}}
		for _, key := range keys {
			b.Held[key] = store.Held{Err: err}
		}
	}
	for key, held := range b.Held {
		switch {
		case held.Err == nil:
		case held.Entry.Key != "":
			if all || deleted[key] {
				_ = p.state.Noticed(held.Err) // the entry serves
			}
		default:
			p.state.Lose(ctx, held.Err)
			if p.hub.IsKnown(key) {
				held.Entry.Key = key
				b.Held[key] = held
			}
		}
	}
	return b
}

// apply stores a batch and appends its changes to the handler queues, in one turn. It
// changes before.
func (p *Pipeline) apply(ctx context.Context, batch store.Batch, changes []change, before store.Before) error {
	defer p.hub.Spill(ctx)
	batch.Before = before
	held := before.Held
	p.departures.mark(&batch, changes, held)
	markShort(&batch, changes, held)
	rejected := p.prepare(&batch, changes, held)
	p.forgetOtherLast(changes, held, rejected)
	slim := p.hub.NewSlim()
	for _, c := range changes {
		slim.Add(held[c.Key].Entry.Object, c.Is.Object, c.Last)
	}
	rv, written := batch.RV, batch.RV
	note := func() {
		if p.state.Store(ctx, batch, rejected) {
			batch.RV = "" // frozen
			if n := len(changes); n == 0 || rejected[changes[n-1].Key] != nil {
				written = ""
			}
		}
	}
	return p.hub.Do(func(turn delivery.Turn) error {
		note()
		if turn.Untold() && !batch.Loaded {
			if err := turn.TellLoaded(); err != nil {
				return err
			}
		}
		err := p.store.Apply(batch)
		// An index that was added since refuses them.
		if len(objectErrors(err)) > 0 && !batch.Loaded {
			maps.Copy(rejected, p.prepare(&batch, changes, held))
			p.forgetOtherLast(changes, held, rejected)
			note()
			err = p.store.Apply(batch)
		}
		if err != nil {
			p.state.Lose(ctx, err)
			return err
		}
		p.opts.Metrics.stored(batch.RV)
		p.opts.Applied(written)
		p.departures.note(batch)
		p.state.Applied(rv)
		for _, c := range changes {
			if c.fate == toTell {
				turn.Tell(c.Change, held[c.Key].Entry, slim)
				held[c.Key] = store.Held{Entry: c.Is}
			}
		}
		if batch.Loaded {
			if err := turn.TellLoaded(); err != nil {
				return err
			}
		}
		return nil
	})
}

// prepare encodes the objects of a batch, before any handler holds them. It returns, by
// key, the errors of objects that cannot be stored. For such an object it puts the
// previous state of the key into the batch, for example its deletion, if the changes
// contain one.
func (p *Pipeline) prepare(batch *store.Batch, changes []change, held map[string]store.Held) map[string]error {
	rejected := map[string]error{}
	tried := batch.Changes
	batch.Changes = nil
	for len(tried) > 0 {
		part := store.Batch{Changes: tried}
		err := p.store.Prepare(&part)
		batch.Changes = append(batch.Changes, part.Changes...)
		tried = nil
		for _, bad := range objectErrors(err) {
			if rejected[bad.Key] == nil {
				rejected[bad.Key] = bad
			}
			if c, ok := refuseLast(changes, bad.Key); ok {
				tried = append(tried, c.stored())
			}
		}
		if part := (&store.Batch{Changes: tried}); len(tried) > 0 {
			p.departures.mark(part, changes, held)
		}
	}
	return rejected
}

func objectErrors(err error) (bad []*store.ObjectError) {
	if err == nil {
		return nil
	}
	errs := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		var one *store.ObjectError
		if errors.As(err, &one) {
			bad = append(bad, one)
		}
	}
	return bad
}
