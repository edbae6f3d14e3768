package ingest

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/internal/builtin"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// Checkpoint implements reflector.Sink.
func (p *Pipeline) Checkpoint() store.Checkpoint {
	cp := p.store.Checkpoint()
	if cp.Reason == writtenBeside { // of the process before
		cp.Reason = wasWrittenBeside
	}
	return cp
}

// Push implements reflector.Sink.
func (p *Pipeline) Push(ctx context.Context, t cache.DeltaType, obj runtime.Object, rv string) error {
	p.opts.Metrics.pushed()
	obj, err := p.wire.take(ctx, obj, t == cache.Deleted)
	if err != nil {
		return err
	}
	if bad := p.standIns.Refused(obj); bad != nil && t != cache.Deleted {
		// The server will send it like that again.
		p.Reject(ctx, obj, bad)
		return nil
	} else if bad != nil {
		return p.queue.Push(ctx, t, cache.DeletedFinalStateUnknown{Key: rejectedKey(bad, obj), Obj: obj}, rv)
	}
	if t == cache.Deleted {
		if obj, err = p.wire.decode(obj); err != nil {
			return err
		}
	}
	if _, encoded := obj.(*store.EncodedObject); encoded {
		if _, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj); err != nil {
			return err // wire.entry needs the key
		}
		return p.queue.Push(ctx, t, obj, rv) // the tap has transformed it
	}
	if p.transform.fn == nil {
		return p.queue.Push(ctx, t, obj, rv)
	}
	own, _ := store.KeyOf(cache.MetaNamespaceKeyFunc, obj) // the transform may change obj
	transformed, err := p.transform.apply(obj)
	if err == nil {
		if key, _ := cache.MetaNamespaceKeyFunc(transformed); key != own {
			// It may have been rejected under its own name, and is told under another.
			p.state.Accept(own)
		}
		return p.queue.Push(ctx, t, transformed, rv)
	}
	if key := rejectedKey(err, obj); t == cache.Deleted && key != "" {
		// The object is gone, so its state does not matter.
		return p.queue.Push(ctx, t, cache.DeletedFinalStateUnknown{Key: key, Obj: obj}, rv)
	}
	return err
}

// Bookmark implements reflector.Sink.
func (p *Pipeline) Bookmark(ctx context.Context, rv string) error {
	if err := p.wire.reached(ctx, rv); err != nil {
		return err
	}
	return p.queue.Bookmark(ctx, rv)
}

// Reject implements reflector.Sink.
func (p *Pipeline) Reject(ctx context.Context, obj runtime.Object, cause error) {
	key := rejectedKey(cause, obj)
	if p.queue.Idle(ctx) != nil { // else an earlier state in the queue would unmark it
		return
	}
	p.state.Reject(ctx, key, cause)
}

// CaughtUp implements reflector.Sink.
func (p *Pipeline) CaughtUp(ctx context.Context) error {
	if err := p.queue.Idle(ctx); err != nil {
		return err
	}
	if err := p.state.CatchUp(ctx); err != nil {
		return err
	}
	p.hub.MarkSynced()
	p.noteCurrent(ctx)
	return nil
}

// noteCurrent has the store note that its content is current: what the next process
// catches up on was made after that.
func (p *Pipeline) noteCurrent(ctx context.Context) {
	_ = p.hub.Do(func(delivery.Turn) error {
		rv := p.store.Checkpoint().RV
		if isFrozen := p.state.Store(ctx, store.Batch{}, nil); isFrozen || rv == "" {
			return nil
		}
		err := p.store.Apply(store.Batch{RV: rv})
		if err != nil {
			p.state.Lose(ctx, err)
		}
		return err
	})
}

// Relist implements reflector.Sink. From here until the list is applied, the stored
// checkpoint has no RV, so a process that starts meanwhile lists again.
func (p *Pipeline) Relist(ctx context.Context, reason string) (reflector.Relist, error) {
	if reason == reflector.NoResource {
		if err := p.confirmGone(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.queue.Idle(ctx); err != nil {
		return nil, err
	}
	other := p.other.Load()
	rewound := other != sameHistory || reason == reflector.Rewound
	if rewound {
		p.state.Rewind()
	}
	noted := reason
	switch was := p.store.Checkpoint().Reason; was {
	// Until the right cluster is listed: the next process drops what there is. Until a
	// list is whole: what there is is none.
	case store.ForeignContent, heal.WrittenUnlisted:
		noted = was
	}
	if cp := p.store.Checkpoint(); rewound && (cp.RV != "" || cp.Reason != noted || noted == heal.WrittenUnlisted) {
		if (reason == reflector.Rewound || other == historyIsOther) && !p.away && p.opts.Rewound != nil {
			p.opts.Rewound(ctx)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err() // it may not have told the others
		}
		// Places in the log belong to the other history from here on; after a list that
		// failed they do already. A store that refuses this has lost its log already, or
		// is closed. A handler that begins after the turn reads the log of this history.
		_ = p.hub.Do(func(turn delivery.Turn) error {
			turn.Rewound()
			return p.store.Apply(store.Batch{Reason: noted, Rewound: true})
		})
	}
	written := true
	if cp := p.store.Checkpoint(); cp.RV != "" || rewound {
		var err error
		if written, err = p.invalidate(ctx, noted); err != nil {
			return nil, err
		}
	}
	if p.unnoted = p.unnoted || rewound; written {
		p.noteRewound(ctx)
	}
	p.wire.tap.Begin()
	r, err := p.store.Relist()
	if err != nil {
		return nil, err
	}
	// A list that could not begin leaves that to the next one.
	p.other.CompareAndSwap(other, sameHistory)
	// The checkpoint has no RV now, so nothing has to freeze it.
	return &relist{Relist: r, p: p, reason: reason, held: p.state.Begin()}, nil
}

// noteRewound says that the scope itself says on disk that its history was rewound.
func (p *Pipeline) noteRewound(ctx context.Context) {
	if p.unnoted && p.opts.RewoundNoted != nil {
		p.opts.RewoundNoted(ctx)
	}
	p.unnoted = false
}

// invalidate notes on disk that what is stored has no resource version, and reports
// whether that is written. The error is that of ctx.
func (p *Pipeline) invalidate(ctx context.Context, reason string) (written bool, _ error) {
	err := p.store.Invalidate(ctx, reason)
	if err != nil && ctx.Err() == nil {
		// The file keeps its older RV with the objects of that RV: after a crash, the
		// next process starts with both.
		klog.FromContext(ctx).Error(err, "The list that begins could not be noted on disk")
	}
	return err == nil, ctx.Err()
}

// errUnidentified refuses to believe that a resource is gone.
var errUnidentified = errors.New("the server does not serve the resource, and does not identify its cluster")

// confirmGone returns an error if the resource may exist, although the server does not
// serve it: it may be another server, serve the resource in another version, or have an
// API of Kubernetes itself switched off.
func (p *Pipeline) confirmGone(ctx context.Context) error {
	if !p.isIdentified() {
		return errUnidentified // it may be that no API server answers at all
	}
	err := builtin.ConfirmGone(schema.ParseGroupResource(p.opts.Scope.Resource))
	if err != nil && !p.holdsNothing() {
		return err
	}
	if p.opts.Gone == nil {
		return nil
	}
	return p.opts.Gone(ctx)
}

// isIdentified reports whether the server last identified itself as the right cluster, as
// far as it was asked.
func (p *Pipeline) isIdentified() bool {
	return !p.opts.Verifier.Failed() && p.state.Foreign() == ""
}

// verify implements reflector.Options.Verify: it asks the server whether it is the
// cluster of the informer's scope. If it is another one, or has never identified itself,
// the informer lists and stores no resource version until the server is that cluster,
// because the scope belongs to another cluster. An informer that follows lists the other
// cluster, which is its own from then on.
func (p *Pipeline) verify(ctx context.Context) (relist string, err error) {
	answer := p.opts.Verifier.Ask(ctx)
	if p.state.Foreign() != "" {
		// What is still in the queue must not count as the right cluster's.
		if err := p.queue.Idle(ctx); err != nil {
			return "", err
		}
	}
	is, judged, err := p.opts.Verifier.Judge(ctx, answer)
	if !judged {
		return "", err
	}
	if p.opts.Follow {
		if is != cluster.Foreign {
			return "", nil
		}
		p.away = p.opts.Verifier.Adopt() != p.opts.Scope.Cluster
		p.other.Store(historyWasOther)
		return cluster.Followed, nil
	}
	if p.state.SetForeign(is) == is {
		return "", nil
	}
	// An audit may have compared with the other cluster: no other informer is told.
	p.other.CompareAndSwap(historyIsOther, historyWasOther)
	return cmp.Or(is, cluster.HomeAgain), nil
}
