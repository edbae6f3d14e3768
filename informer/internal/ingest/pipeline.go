package ingest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/fifo"
	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/informer/internal/tap"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// Options configure a Pipeline.
type Options struct {
	Store store.Store   // opened; it is not closed
	Hub   *delivery.Hub // receives the changes
	State *heal.State   // receives what becomes of them

	ListerWatcher cache.ListerWatcher
	Scope         store.Scope
	Kind          schema.GroupVersionKind // see reflector.Options.Kind
	Codec         codec.Codec
	Example       runtime.Object
	Transform     cache.TransformFunc // nil: objects are stored as they are
	Strip         bool                // Transform removes managedFields, nothing else
	// Verifier asks the server for its cluster. nil: it is not asked.
	Verifier *cluster.Verifier
	// Follow says that the content belongs to the cluster that answers, because it is in
	// memory: nothing keeps it for the cluster of the scope.
	Follow bool
	// Gone returns an error unless the server serves the resource in no version. nil: it
	// is not asked.
	Gone            func(context.Context) error
	NoProbe         bool // see reflector.Options.NoProbe
	NotifyUnchanged bool // resync all handlers after a list
	Metrics         *Metrics
	OnError         func(context.Context, error) // see reflector.Options.OnError
	// Rewound is called when a list begins because this informer has found that history
	// was rewound, before the store notes that. RewoundNoted is called when the store has
	// noted it, whoever has found it.
	Rewound, RewoundNoted func(ctx context.Context)
	// Applied is called after each batch that was stored, with the Hub's lock held, and
	// after a list that freezes the stored resource version. It receives the resource
	// version that was written last: "" if it is unknown, or if the stored one is frozen
	// and no object was written at it.
	Applied func(rv string)
}

// Pipeline brings lists and watches to the store and the handlers. It is a
// reflector.Sink. Watch events go through the queue to the goroutine of applyWatch. A
// list goes to the store's relist; when it is complete and the queue is idle, the
// reflector's goroutine applies it. So one goroutine at a time applies, and what only it
// uses needs no lock.
type Pipeline struct {
	opts      Options
	store     store.Store
	hub       *delivery.Hub
	state     *heal.State
	queue     *fifo.Queue
	reflector *reflector.Reflector
	standIns  *tap.StandIns
	transform *transform
	wire      wire

	// Only the goroutine that applies uses these.
	replays    replays
	departures departures

	// other is otherHistory; the list for it has not begun.
	other atomic.Int32
	// unnoted: the history was rewound, and the scope does not say so on disk yet. The
	// goroutine of the reflector uses it.
	unnoted bool
	// away: an informer that follows is at another cluster than that of the scope, whose
	// history says nothing of other scopes. The goroutine of the reflector uses it.
	away bool
}

var _ reflector.Sink = (*Pipeline)(nil)

// New returns a Pipeline of an opened store. It panics if the options are not those of an
// informer.
func New(o Options) *Pipeline {
	p := &Pipeline{opts: o, store: o.Store, hub: o.Hub, state: o.State, queue: fifo.New(fifo.Options{}), standIns: newStandIns(o.Scope, o.Example)}
	p.transform = &transform{fn: o.Transform, example: o.Example, standIns: p.standIns}
	p.replays = replays{state: o.State, resumedAt: o.Store.Checkpoint().RV}
	compare := &small{store: o.Store, wire: &p.wire, transform: p.transform, other: p.OtherHistory}
	opts := reflector.Options{
		ListerWatcher: p.ListerWatcher(), Undecodable: p.standIns.Start, Example: o.Example, Kind: o.Kind,
		Sink: p, OnError: o.OnError, NoProbe: o.NoProbe,
		IsSmall: compare.isSmall, Compare: compare.compare, Len: o.Store.Len,
	}
	if o.Verifier != nil {
		opts.Verify = p.verify
	}
	t := newTap(o)
	if t != nil {
		opts.Request = t.With
	}
	r, err := reflector.New(opts)
	if err != nil {
		panic(err) // the informer has validated these options
	}
	p.reflector = r
	p.wire = wire{tap: t, codec: o.Codec, store: o.Store, relist: r.Relist}
	return p
}

// Open notes the keys of the objects that were stored at the start, which are not known
// after an error. It is called once, before Run.
func (p *Pipeline) Open(known *btree.Set[string], err error) { p.departures.begin(known, err) }

// Run lists, watches and applies. It blocks until the context ends and the goroutine that
// it starts has ended.
func (p *Pipeline) Run(ctx context.Context) {
	var applied sync.WaitGroup
	applied.Go(func() { p.applyWatch(ctx) })
	p.reflector.Run(ctx)
	<-ctx.Done()
	p.queue.Close()
	applied.Wait()
}

// Reflector returns the reflector, for its state.
func (p *Pipeline) Reflector() *reflector.Reflector { return p.reflector }

// ListerWatcher returns the ListerWatcher of which objects that the Go type does not take
// come as stand-ins.
func (p *Pipeline) ListerWatcher() ListerWatcher {
	return ListerWatcher{p.opts.ListerWatcher, p.standIns}
}

// Transform returns an object in the form in which it is stored. The error is that of the
// transform, or of an object that the Go type does not take.
func (p *Pipeline) Transform(obj runtime.Object) (runtime.Object, error) {
	return p.transform.apply(obj)
}

// otherHistory says whether what is stored is the server's history.
type otherHistory = int32

const (
	sameHistory     otherHistory = iota
	historyIsOther               // a comparison of this informer has shown it
	historyWasOther              // another informer or another cluster has shown it
)

// OtherHistory says that what is stored is not the server's history. The next list begins
// another one, and other informers are told.
func (p *Pipeline) OtherHistory() { p.other.Store(historyIsOther) }

// RewoundElsewhere implements rewind.Informer: it is OtherHistory if another informer has
// told that, and requests the list.
func (p *Pipeline) RewoundElsewhere(reason string) {
	p.other.CompareAndSwap(sameHistory, historyWasOther)
	p.reflector.Relist(reason)
}

// applyWatch applies the changes of the watch until the queue is closed.
func (p *Pipeline) applyWatch(ctx context.Context) {
	for {
		err := p.queue.PopBatch(ctx, func(b fifo.Batch) error {
			return p.opts.Metrics.processing(p.queue.Len(), func() error { return p.process(ctx, b) })
		})
		switch {
		case err == nil:
		case errors.Is(err, fifo.ErrClosed) || ctx.Err() != nil:
			return
		default:
			klog.FromContext(ctx).Error(err, "Changes could not be applied")
		}
	}
}

// process applies one batch of the queue. The store.Batch contains each object once, in
// its last state; handlers receive every change.
func (p *Pipeline) process(ctx context.Context, b fifo.Batch) error {
	if err := p.readKeys(); err != nil {
		return err // a list is due, which brings the changes
	}
	told := make([]change, len(b.Stream))
	for i, d := range b.Stream {
		told[i].Key = d.Key
		obj, known := d.Object.(runtime.Object)
		switch {
		case d.Type != cache.Deleted:
			told[i].Is, told[i].uid = p.wire.entry(d.Key, obj), uidOf(obj)
		case known:
			told[i].Last = obj
		}
	}
	before := p.before(ctx, told, p.replays.arePossible())
	p.replays.mark(b.Stream, told, before.Held)
	p.replays.accept(told)
	batch := store.Batch{RV: b.RV, CatchUp: !p.state.Life().IsCaughtUp()}
	last := make(map[string]int, len(told)) // the last change of each key
	for i, c := range told {
		last[c.Key] = i
	}
	for i, c := range told {
		// In the order of these, which is that of resource versions.
		if c.fate != isReplay && last[c.Key] == i {
			batch.Changes = append(batch.Changes, c.stored())
		}
	}
	p.state.Pass(batch)
	return p.apply(ctx, batch, told, before)
}

// readKeys reads the keys of the stored objects if Open could not.
func (p *Pipeline) readKeys() error {
	known, err := p.hub.ReadKeys()
	if known != nil {
		p.departures.begin(known, err)
	}
	return err
}
