package ingest

import (
	"context"
	"errors"
	"slices"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/store"
)

// apply stores a batch and appends its changes to the handler queues, in one turn.
func (p *Pipeline) apply(ctx context.Context, batch store.Batch, changes []change) error {
	p.hub.Room(ctx)
	defer p.hub.Spill(ctx)
	stored := p.uidsOfDeleted(changes)
	forgetOtherLast(changes, stored)
	p.departures.mark(&batch, changes, stored)
	rejected := p.prepare(&batch, changes, stored)
	old := make(map[string]store.Entry, len(batch.Changes))
	for _, c := range batch.Changes {
		e, ok, err := p.store.Entry(c.Key)
		if err != nil {
			// The old state cannot be read; a new list repairs the record.
			p.state.Lose(ctx, err)
			e, ok = store.Entry{Key: c.Key}, p.hub.IsKnown(c.Key)
		}
		if ok {
			old[c.Key] = e
		}
	}
	slim := p.hub.NewSlim()
	for _, c := range changes {
		slim.Add(old[c.Key].Object, c.Is.Object, c.Last)
	}
	rv := batch.RV
	return p.hub.Do(func(turn delivery.Turn) error {
		if p.state.Store(ctx, batch, rejected) {
			batch.RV = "" // frozen
		}
		if turn.Untold() && !batch.Loaded {
			if err := turn.TellLoaded(); err != nil {
				return err
			}
		}
		if err := p.store.Apply(batch); err != nil {
			p.state.Lose(ctx, err)
			return err
		}
		p.opts.Metrics.stored(batch.RV)
		p.opts.Applied()
		p.departures.note(batch)
		p.state.Applied(rv)
		for _, c := range changes {
			if c.fate == toTell {
				turn.Tell(c.Change, old[c.Key], slim)
				old[c.Key] = c.Is
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
func (p *Pipeline) prepare(batch *store.Batch, changes []change, stored map[string]string) map[string]error {
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
			p.departures.mark(part, changes, stored)
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

// uidsOfDeleted returns, by key, the UIDs of the stored objects that a batch deletes.
func (p *Pipeline) uidsOfDeleted(changes []change) map[string]string {
	var keys []string
	for _, c := range changes {
		if c.Last != nil {
			keys = append(keys, c.Key)
		}
	}
	headers := p.headersOf(keys)
	if headers == nil {
		return nil
	}
	stored := make(map[string]string, len(headers))
	for key, h := range headers {
		stored[key] = h.UID
	}
	return stored
}

// headersOf returns the headers of the stored objects with these keys, by key. It returns
// nil if there are no keys or the headers cannot be read.
func (p *Pipeline) headersOf(keys []string) map[string]store.Header {
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	headers, err := p.store.HeadersOf(slices.Compact(keys))
	if p.state.Noticed(err) != nil {
		return nil
	}
	byKey := make(map[string]store.Header, len(headers))
	for _, h := range headers {
		byKey[h.Key] = h
	}
	return byKey
}
