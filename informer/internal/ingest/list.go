package ingest

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// relist is one list of the reflector.
type relist struct {
	store.Relist
	p        *Pipeline
	reason   string
	held     *heal.List
	newest   string // the highest resource version of the objects
	refused  bool   // an object, a newer state of which may follow in the list
	finished bool
}

// Close implements reflector.Relist.
func (r *relist) Close() error {
	if !r.finished {
		r.held.Break()
		r.p.wire.tap.Begin() // a watch may continue: what the list has left is not missed
	}
	if r.p.other.Load() != sameHistory {
		// An audit has found it while the list began, which seemed to be the one that it
		// has asked for.
		r.p.reflector.Relist("what is stored is of another history")
	}
	return r.Relist.Close()
}

// Add implements reflector.Relist.
func (r *relist) Add(ctx context.Context, obj runtime.Object) error {
	obj, err := r.p.wire.take(ctx, obj, false)
	if err != nil {
		return err
	}
	own := "" // the transform may change it
	if r.refused {
		own = keyOf(obj)
	}
	transformed, err := r.p.transform.apply(obj)
	if err != nil {
		r.refused = true
		if key := rejectedKey(err, obj); key != "" {
			r.Keep(key)
		}
		return err
	}
	if err := r.Relist.Add(transformed); err != nil {
		r.refused = true
		return err
	}
	if r.refused {
		r.p.state.Accept(own, keyOf(transformed))
	}
	if m, err := meta.Accessor(transformed); err == nil {
		r.newest = store.Higher(r.newest, m.GetResourceVersion())
	}
	return nil
}

// Remove implements reflector.Relist.
func (r *relist) Remove(ctx context.Context, obj runtime.Object) error {
	obj, err := r.p.wire.take(ctx, obj, true)
	if err != nil {
		return err
	}
	own, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	key := own
	if transformed, transformErr := r.p.transform.apply(obj); transformErr == nil {
		// Add uses the key of the transformed object.
		key, err = store.KeyOf(cache.MetaNamespaceKeyFunc, transformed)
	}
	if err != nil {
		return err
	}
	r.Relist.Remove(key)
	r.p.state.Accept(own, key)
	return nil
}

// Finish implements reflector.Relist.
func (r *relist) Finish(ctx context.Context, rv string) error {
	p := r.p
	if err := p.wire.reached(ctx, rv); err != nil {
		return err
	}
	if r.reason == reflector.NoResource && p.holdsNothing() {
		return nil
	}
	if p.state.Foreign() == cluster.Foreign {
		if _, err := p.invalidate(ctx, store.ForeignContent); err != nil {
			return err
		}
	}
	_ = p.readKeys() // else cursors deliver what the list leaves
	for b, err := range r.Parts(rv) {
		if err != nil {
			return err
		}
		changes := make([]change, len(b.Changes))
		for i, c := range b.Changes {
			changes[i].Key = c.Key
			if !c.IsDeletion() {
				changes[i].Is = c.Entry()
			}
		}
		if err := p.apply(ctx, b, changes, p.before(ctx, changes, false)); err != nil {
			return err
		}
		r.held.Stored(b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	why, again := "", false
	err := p.hub.Do(func(turn delivery.Turn) error {
		if err := turn.MarkListed(); err != nil {
			return err
		}
		if err := r.tellWritten(turn, rv); err != nil {
			return err
		}
		again = r.reason != writtenBeside && !p.opts.Follow && r.held.WrittenBeside()
		if why = p.state.Listed(rv); why == cluster.Foreign {
			why = store.ForeignContent
		}
		if why != "" {
			p.opts.Applied(r.newest)
		}
		if p.opts.NotifyUnchanged {
			turn.Resync()
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.finished = true
	if p.unnoted { // it could not be written when the list began
		flushCtx, cancel := context.WithTimeout(ctx, time.Second)
		if p.store.Flush(flushCtx) == nil {
			p.noteRewound(ctx)
		}
		cancel()
	}
	if why != "" {
		// Readers of the file must see that objects are missing or old.
		if err := p.store.Invalidate(ctx, why); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Rejected objects could not be noted on disk")
		}
	}
	if again {
		p.reflector.Relist(writtenBeside)
	}
	return ctx.Err()
}

// writtenBeside is the reason of a list after one beside which the program has written
// through the indexer. client-go's list replaces what was written before it ends. Here it
// was compared as its objects came, and a store that is persistent keeps what is applied
// beside it, since nothing else tells it what is newer. One such list follows another
// list: what a program writes all the time is never the server's.
const writtenBeside = "the program has written objects while a list was received"

// wasWrittenBeside is the reason of the first list of the next process, which another one
// may follow.
const wasWrittenBeside = "the program had written objects while a list was received"

// tellWritten tells handlers what the program has written through the indexer and the
// list has found unchanged: the watch, which would have brought it, has ended before.
func (r *relist) tellWritten(turn delivery.Turn, rv string) error {
	keys := r.held.Untold()
	if len(keys) == 0 {
		return nil
	}
	before, err := r.p.store.Before(keys)
	if err != nil {
		r.p.state.Failed(err)
		return err
	}
	known := turn.Known()
	for _, key := range keys {
		is, exists := before.Held[key]
		if is.Err != nil {
			r.p.state.Failed(is.Err)
			return is.Err
		}
		if rv != "" && store.Higher(is.RV, rv) != rv {
			continue // it was written after the list, and the watch brings it
		}
		var was store.Entry
		if known.Contains(key) {
			was.Key = key
		}
		if exists || was.Key != "" {
			turn.Tell(delivery.Change{Key: key, Is: is.Entry}, was, delivery.Slim{})
		}
		r.held.Told(key)
	}
	return nil
}

// holdsNothing reports whether neither the store nor a handler has an object, and there
// is nothing that a list is compared with.
func (p *Pipeline) holdsNothing() bool {
	nothing := false
	_ = p.hub.Do(func(turn delivery.Turn) error {
		departer, isDeparter := p.store.(store.Departer)
		compares := isDeparter && departer.Compares()
		nothing = p.store.Len() == 0 && turn.Known().Len() == 0 && !compares
		return nil
	})
	return nothing
}
