package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidwall/btree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/informer/internal/ingest"
	"github.com/informctl/informctl/informer/internal/rewind"
	"github.com/informctl/informctl/internal/audit"
	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// run is what an Informer does from Run to its end. Only Run's goroutine uses it.
type run struct{ *Informer }

// run runs the informer until the context ends.
func (r run) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The next informer of the scope must know it also while this one opens it.
	context.AfterFunc(ctx, func() { close(r.ending) })
	r.hub.Begin()
	var opened store.Store
	if ctx.Err() == nil { // else no handler is called, as by client-go's
		opened = r.work(ctx)
	}
	cancel()
	if opened != nil {
		if err := opened.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Last changes could not be written", "resource", r.Scope().String())
		}
	}
	r.release()
	r.hub.Wait()
}

// work opens the store and has everything work until the context ends. It returns the
// store, nil if it has opened none. A panic, for example of the Backend, goes to
// k8s.io/apimachinery/pkg/util/runtime as in client-go. If that does not end the process,
// the informer ends.
func (r run) work(ctx context.Context) (opened store.Store) {
	defer utilruntime.HandleCrashWithContext(ctx)
	f := r.find(ctx)
	if errors.Is(f.err, cluster.ErrNoTransport) && r.factory.opts.RequireTransport {
		r.refuse(ctx, f.err)
		return nil
	}
	r.logger = klog.FromContext(ctx)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(r.logger, "resource", r.Scope().String()))
	pipeline := r.open(ctx, f, &opened)
	id := ""
	if r.opener.isPersistent() {
		id = r.Scope().ID()
	}
	leave := r.history().Join(ctx, pipeline, id)
	var parts sync.WaitGroup // each ends when ctx does
	var lost <-chan struct{}
	if s, ok := opened.(store.Loser); ok {
		lost = s.Lost()
	}
	parts.Go(func() {
		r.hub.RunResyncs(ctx, lost, func() { r.state.NoticeLoss(ctx, opened) })
		leave() // the pipeline may still be at work
	})
	parts.Go(func() { r.audit(ctx, opened, pipeline) })
	parts.Go(func() { r.mutations.Run(ctx.Done()) })
	pipeline.Run(ctx)
	<-r.ending
	parts.Wait()
	return opened
}

// open opens the store and starts the handlers.
func (r run) open(ctx context.Context, f found, opened *store.Store) *ingest.Pipeline {
	r.content.opening.Lock() // AddIndexers waits until the store is opened
	defer r.content.opening.Unlock()
	*opened = r.opener.open(ctx, f, r.transform, r.content.present().Indexers())
	return r.start(ctx, *opened, f)
}

// history returns the history that the informer shares with others.
func (r run) history() rewind.History { return rewind.Of(r.opts.Backend, r.Scope()) }

// find finds the scope of the informer.
func (r run) find(ctx context.Context) found {
	if r.factory == nil {
		f := found{scope: r.scope}
		if r.opts.Identify != nil && r.opts.Backend != nil {
			f.verifier = cluster.NewVerifierOf(r.opts.Identify, r.lw, r.scope.Cluster)
		}
		return f
	}
	f := r.opener.find(ctx, r.factory.finder, r.lw, r.scope)
	f.group = r.factory
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scope, r.found = f.scope, true
	return f
}

// refuse blocks until the context of an informer ends that may not run in memory.
func (r run) refuse(ctx context.Context, why error) {
	klog.FromContext(ctx).Error(why, "Informer does not run, it could not be persisted", "type", fmt.Sprintf("%T", r.example))
	r.opener.refuse(why, false)
	<-r.ending
}

// release ends the informer, but for calls of handlers that are in progress.
func (r run) release() {
	r.state.End()
	r.hub.End()
	r.forgetLease()
	close(r.released)
	if r.factory != nil {
		r.factory.forget(r.Informer)
	}
}

// start makes the opened store the informer's and starts the handlers.
func (r run) start(ctx context.Context, opened store.Store, f found) *ingest.Pipeline {
	pipeline, warm := r.install(ctx, opened, f)
	r.rememberRV(opened.Checkpoint().RV)
	known, err := r.hub.Open(opened, warm)
	pipeline.Open(known, err)
	if err == nil && warm && r.opts.SyncWhen == Loaded {
		r.hub.MarkSynced()
	}
	return pipeline
}

// install makes the opened store the informer's and reports whether it holds a whole
// list.
func (r run) install(ctx context.Context, opened store.Store, f found) (p *ingest.Pipeline, warm bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p = ingest.New(ingest.Options{
		Store: opened, Hub: r.hub, State: r.state,
		ListerWatcher: r.lw, Scope: r.scope, Kind: r.expectedKind(), Codec: r.codec, Example: r.example,
		Transform: r.transform, Strip: stripsManagedFields(r.transform), Verifier: f.verifier, Follow: !r.opener.isPersistent(), Gone: f.gone,
		NoProbe: r.opts.NoProbe, NotifyUnchanged: r.opts.NotifyUnchanged,
		Metrics: r.metrics, OnError: r.onError, Applied: r.rememberRV,
		Rewound:      func(ctx context.Context) { r.history().Found(ctx, p) },
		RewoundNoted: func(ctx context.Context) { r.history().Noted(ctx, p) },
	})
	r.pipeline = p
	cp := opened.Checkpoint()
	if warm = cp.RV != "" || opened.Len() > 0 && cp.Reason != heal.WrittenUnlisted; warm {
		klog.FromContext(ctx).Info("Loaded", "objects", opened.Len(), "resourceVersion", cp.RV, "age", time.Since(cp.Time).Round(time.Second))
	}
	r.state.Open(ctx, heal.Opened{
		RV: cp.RV, Warm: warm, Relist: p.Reflector().Relist,
		Show: func() {
			_ = r.content.present().Close() // the one in memory
			r.content.set(opened)
		},
	})
	return p, warm
}

// expectedKind returns the kind that the reflector checks; only unstructured objects
// contain theirs.
func (r run) expectedKind() schema.GroupVersionKind {
	if r.scope.Form == store.Unstructured && r.scope.Kind.Kind != "" {
		return r.scope.Kind
	}
	return schema.GroupVersionKind{}
}

// rememberRV has the indexer remember the resource version that is reached, for readers
// that ask when the stored one is frozen or lost.
func (r run) rememberRV(rv string) {
	if rv != "" {
		r.indexer.Applied(rv)
	}
}

// audit audits every AuditInterval until the context ends.
func (r run) audit(ctx context.Context, opened store.Store, p *ingest.Pipeline) {
	if r.opts.AuditInterval == 0 {
		return
	}
	lister := p.ListerWatcher()
	r.audits.Run(ctx, audit.LoopOptions{
		Interval: r.opts.AuditInterval, Store: opened, Transform: p.Transform,
		List: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return endable.Call(ctx, func() (runtime.Object, error) { return lister.ListWithContext(ctx, opts) }, nil)
		},
		Moment: func() (rv string, held *btree.Set[string], ok bool) {
			caughtUp := r.state.Life().IsCaughtUp()
			_ = r.hub.Do(func(turn delivery.Turn) error {
				rv, held = opened.Checkpoint().RV, turn.Known()
				return nil
			})
			return rv, held, caughtUp && rv != ""
		},
		Other: func(first audit.Finding) {
			p.OtherHistory()
			p.Reflector().Relist("an audit found another history: " + first.String())
		},
		Differs: func(first audit.Finding) {
			p.Reflector().Relist("an audit found other content: " + first.String())
		},
	})
}
