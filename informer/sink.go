package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/fifo"
	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// sink is the informer as its reflector sees it. Watch events go through the queue to
// processLoop. A list goes to the store's relist; when it is complete and the queue is
// idle, the reflector's goroutine applies it.
type sink Informer

var _ reflector.Sink = (*sink)(nil)

// Checkpoint implements reflector.Sink.
func (s *sink) Checkpoint() store.Checkpoint { return s.store.Checkpoint() }

// Push implements reflector.Sink.
func (s *sink) Push(ctx context.Context, t cache.DeltaType, obj runtime.Object, rv string) error {
	s.metrics.pushed()
	inf := (*Informer)(s)
	obj, err := inf.taken(ctx, obj)
	if err != nil {
		return err
	}
	if bad := inf.sieve.Refused(obj); bad != nil && t != cache.Deleted {
		// The server will send it like that again.
		s.Reject(ctx, obj, bad)
		return nil
	} else if bad != nil {
		return s.queue.Push(ctx, t, cache.DeletedFinalStateUnknown{Key: rejectedKey(bad, obj), Obj: obj}, rv)
	}
	if t == cache.Deleted {
		if obj, err = inf.decoded(obj); err != nil {
			return err
		}
	}
	if _, encoded := obj.(*store.EncodedObject); encoded {
		if _, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj); err != nil {
			return err // entryOf needs the key
		}
		return s.queue.Push(ctx, t, obj, rv) // the tap has transformed it
	}
	if inf.transform == nil {
		return s.queue.Push(ctx, t, obj, rv)
	}
	own, _ := store.KeyOf(cache.MetaNamespaceKeyFunc, obj) // the transform may change obj
	transformed, err := inf.transformed(obj)
	if err == nil {
		if key, _ := cache.MetaNamespaceKeyFunc(transformed); key != own {
			// It may have been rejected under its own name, and is told under another.
			s.state.Accept(own)
		}
		return s.queue.Push(ctx, t, transformed, rv)
	}
	if key := rejectedKey(err, obj); t == cache.Deleted && key != "" {
		// The object is gone, so its state does not matter.
		return s.queue.Push(ctx, t, cache.DeletedFinalStateUnknown{Key: key, Obj: obj}, rv)
	}
	return err
}

// taken returns the object of a list or a watch, encoded if it came so. If the
// ListerWatcher is found to change objects, a list is due.
func (inf *Informer) taken(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	taken, err := inf.tap.Take(obj)
	return taken, inf.asSent(ctx, err)
}

// asSent requests a list if an error of the tap says that the ListerWatcher changes or
// omits objects.
func (inf *Informer) asSent(ctx context.Context, err error) error {
	if err != nil {
		klog.FromContext(ctx).Error(err, "Objects are not taken as the server encodes them")
		inf.reflector.Relist("the ListerWatcher changes objects")
	}
	return err
}

// decoded returns an object that may be encoded.
func (inf *Informer) decoded(obj runtime.Object) (runtime.Object, error) {
	o, ok := obj.(*store.EncodedObject)
	if !ok {
		return obj, nil
	}
	return o.Cell.Decode(func() (runtime.Object, error) { return codec.DecodeAliased(inf.codec, o.Data, false) })
}

// entryOf returns the entry of an object of the watch.
func (inf *Informer) entryOf(key string, obj runtime.Object) store.Entry {
	o, ok := obj.(*store.EncodedObject)
	if !ok {
		return store.Entry{Key: key, Object: obj}
	}
	e, err := inf.store.(store.EncodedTaker).EncodedEntry(o)
	if err != nil {
		panic(err) // the queue has found the key
	}
	return e
}

// Bookmark implements reflector.Sink.
func (s *sink) Bookmark(ctx context.Context, rv string) error {
	if err := (*Informer)(s).asSent(ctx, s.tap.Reached(rv)); err != nil {
		return err
	}
	return s.queue.Bookmark(ctx, rv)
}

// Reject implements reflector.Sink.
func (s *sink) Reject(ctx context.Context, obj runtime.Object, cause error) {
	key := rejectedKey(cause, obj)
	if s.queue.Idle(ctx) != nil { // else an earlier state in the queue would unmark it
		return
	}
	s.state.Reject(ctx, key, cause)
}

// rejectedKey returns the key that an object had before a transform changed it, or "".
func rejectedKey(cause error, obj runtime.Object) string {
	var bad *store.ObjectError
	if errors.As(cause, &bad) && bad.Key != "" {
		return bad.Key
	}
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return ""
	}
	return key
}

// transformed runs the transform and checks its result.
func (inf *Informer) transformed(obj runtime.Object) (_ runtime.Object, err error) {
	if _, encoded := obj.(*store.EncodedObject); encoded {
		return obj, nil // the tap has transformed it
	}
	if bad := inf.sieve.Refused(obj); bad != nil {
		return nil, bad
	}
	if inf.transform == nil {
		return obj, nil
	}
	key, _ := cache.MetaNamespaceKeyFunc(obj) // only for the errors below
	defer func() {
		if r := recover(); r != nil {
			err = &store.ObjectError{Key: key, Err: fmt.Errorf("transform panicked with a %T", r)}
		}
	}()
	inf.transforming.Lock()
	defer inf.transforming.Unlock()
	out, err := inf.transform(obj)
	if err != nil {
		return nil, &store.ObjectError{Key: key, Err: fmt.Errorf("transform: %w", err)}
	}
	if err := inf.isStorable(out); err != nil {
		return nil, &store.ObjectError{Key: key, Err: fmt.Errorf("transform: %w", err)}
	}
	if u, ok := out.(*unstructured.Unstructured); ok {
		if err := makePlain(u); err != nil {
			return nil, &store.ObjectError{Key: key, Err: fmt.Errorf("transform: %w", err)}
		}
	}
	return out.(runtime.Object), nil
}

// isStorable checks the result of a transform: an object of the example's type with a
// name.
func (inf *Informer) isStorable(out any) error {
	v := reflect.ValueOf(out)
	if want := reflect.TypeOf(inf.example); !v.IsValid() || v.Type() != want {
		return fmt.Errorf("returned a %T, want a %s", out, want)
	}
	if v.IsNil() {
		return fmt.Errorf("returned a nil %T", out)
	}
	if accessor, err := meta.Accessor(out); err != nil || accessor.GetName() == "" {
		return errors.New("returned an object without a name")
	}
	return nil
}

// CaughtUp implements reflector.Sink.
func (s *sink) CaughtUp(ctx context.Context) error {
	if err := s.queue.Idle(ctx); err != nil {
		return err
	}
	inf := (*Informer)(s)
	if err := inf.state.CatchUp(ctx); err != nil {
		return err
	}
	inf.hub.MarkSynced()
	return nil
}

// Relist implements reflector.Sink. From here until the list is applied, the stored
// checkpoint has no RV, so a process that starts meanwhile lists again.
func (s *sink) Relist(ctx context.Context, reason string) (reflector.Relist, error) {
	if reason == reflector.NoResource && !(*Informer)(s).isIdentified() {
		return nil, errUnidentified // it may be that no API server answers at all
	}
	if err := s.queue.Idle(ctx); err != nil {
		return nil, err
	}
	rewound := (*Informer)(s).isRewound(reason)
	if cp := s.store.Checkpoint(); rewound && (cp.RV != "" || cp.Reason != reason) {
		// Places in the log belong to the other history from here on; after a list that
		// failed they do already. A store that refuses this has lost its log already, or
		// is closed.
		_ = s.store.Apply(store.Batch{Reason: reason, Rewound: true})
	}
	if cp := s.store.Checkpoint(); cp.RV != "" || rewound {
		if err := s.invalidate(ctx, reason); err != nil {
			return nil, err
		}
	}
	s.tap.Begin()
	r, err := s.store.Relist()
	if err != nil {
		return nil, err
	}
	// The checkpoint has no RV now, so nothing has to freeze it.
	return &relist{Relist: r, inf: (*Informer)(s), reason: reason, held: s.state.Begin(rewound)}, nil
}

// invalidate notes on disk that what is stored has no resource version. The error is that
// of ctx.
func (s *sink) invalidate(ctx context.Context, reason string) error {
	err := s.store.Invalidate(ctx, reason)
	if err != nil && ctx.Err() == nil {
		// The file keeps its older RV with the objects of that RV: after a crash, the
		// next process starts with both.
		klog.FromContext(ctx).Error(err, "The list that begins could not be noted on disk")
	}
	return ctx.Err()
}

// errUnidentified refuses to believe that a resource is gone.
var errUnidentified = errors.New("the server does not serve the resource, and does not identify its cluster")

// isIdentified reports whether the server last identified itself as the right cluster, as
// far as it was asked.
func (inf *Informer) isIdentified() bool {
	return !inf.verifier.Failed() && inf.state.Foreign() == ""
}

// isRewound reports whether what is stored is not the server's history.
func (inf *Informer) isRewound(reason string) bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	is := reason == reflector.Rewound || inf.findings.other
	inf.findings.other = false
	return is
}

type relist struct {
	store.Relist
	inf      *Informer
	reason   string
	held     *heal.List
	finished bool
}

// Close implements reflector.Relist.
func (r *relist) Close() error {
	if !r.finished {
		r.held.Break()
		r.inf.tap.Begin() // a watch may continue: what the list has left is not missed
	}
	return r.Relist.Close()
}

// Add implements reflector.Relist.
func (r *relist) Add(ctx context.Context, obj runtime.Object) error {
	obj, err := r.inf.taken(ctx, obj)
	if err != nil {
		return err
	}
	transformed, err := r.inf.transformed(obj)
	if err != nil {
		if key := rejectedKey(err, obj); key != "" {
			r.Keep(key)
		}
		return err
	}
	return r.Relist.Add(transformed)
}

// Remove implements reflector.Relist.
func (r *relist) Remove(ctx context.Context, obj runtime.Object) error {
	obj, err := r.inf.taken(ctx, obj)
	if err != nil {
		return err
	}
	own, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	key := own
	if transformed, transformErr := r.inf.transformed(obj); transformErr == nil {
		// Add uses the key of the transformed object.
		key, err = store.KeyOf(cache.MetaNamespaceKeyFunc, transformed)
	}
	if err != nil {
		return err
	}
	r.Relist.Remove(key)
	r.inf.state.Accept(own, key)
	return nil
}

// Finish implements reflector.Relist.
func (r *relist) Finish(ctx context.Context, rv string) error {
	inf := r.inf
	if err := inf.asSent(ctx, inf.tap.Reached(rv)); err != nil {
		return err
	}
	if r.reason == reflector.NoResource && inf.holdsNothing() {
		return nil
	}
	if r.reason == cluster.Foreign {
		if err := (*sink)(inf).invalidate(ctx, cluster.ForeignContent); err != nil {
			return err
		}
	}
	_ = inf.readKeys() // else cursors deliver what the list leaves
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
		if err := inf.apply(ctx, b, changes); err != nil {
			return err
		}
		r.held.Stored(b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	why := ""
	err := inf.hub.Do(func(turn delivery.Turn) error {
		if err := turn.MarkListed(); err != nil {
			return err
		}
		if why = inf.state.Listed(rv); why == cluster.Foreign {
			why = cluster.ForeignContent
		}
		if inf.opts.NotifyUnchanged {
			turn.Resync()
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.finished = true
	if why != "" {
		// Readers of the file must see that objects are missing or old.
		if err := inf.store.Invalidate(ctx, why); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Rejected objects could not be noted on disk")
		}
	}
	return ctx.Err()
}

// holdsNothing reports whether neither the store nor a handler has an object.
func (inf *Informer) holdsNothing() bool {
	nothing := false
	_ = inf.hub.Do(func(turn delivery.Turn) error {
		nothing = inf.store.Len() == 0 && turn.Known().Len() == 0
		return nil
	})
	return nothing
}

// processLoop applies the changes of the watch until the queue is closed.
func (inf *Informer) processLoop(ctx context.Context) {
	for {
		err := inf.queue.PopBatch(ctx, func(b fifo.Batch) error {
			return inf.metrics.processing(inf.queue.Len(), func() error { return inf.process(ctx, b) })
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
func (inf *Informer) process(ctx context.Context, b fifo.Batch) error {
	if err := inf.readKeys(); err != nil {
		return err // a list is due, which brings the changes
	}
	told := make([]change, len(b.Stream))
	for i, d := range b.Stream {
		told[i].Key = d.Key
		obj, known := d.Object.(runtime.Object)
		switch {
		case d.Type != cache.Deleted:
			told[i].Is, told[i].uid = inf.entryOf(d.Key, obj), uidOf(obj)
		case known:
			told[i].Last = obj
		}
	}
	inf.markReplays(b.Stream, told)
	inf.acceptReplays(told)
	batch := store.Batch{RV: b.RV, CatchUp: !inf.state.IsCaughtUp()}
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
	return inf.apply(ctx, batch, told)
}

// apply stores a batch and appends its changes to the handler queues, in one turn.
func (inf *Informer) apply(ctx context.Context, batch store.Batch, changes []change) error {
	inf.hub.Room(ctx)
	defer inf.hub.Spill(ctx)
	stored := inf.uidsOfDeleted(changes)
	forgetOtherLast(changes, stored)
	inf.depart(&batch, changes, stored)
	rejected := inf.prepare(&batch, changes, stored)
	old := make(map[string]store.Entry, len(batch.Changes))
	for _, c := range batch.Changes {
		e, ok, err := inf.store.Entry(c.Key)
		if err != nil {
			// The old state cannot be read; a new list repairs the record.
			inf.state.Lose(ctx, err)
			e, ok = store.Entry{Key: c.Key}, inf.hub.IsKnown(c.Key)
		}
		if ok {
			old[c.Key] = e
		}
	}
	slim := inf.hub.NewSlim()
	for _, c := range changes {
		slim.Add(old[c.Key].Object, c.Is.Object, c.Last)
	}
	rv := batch.RV
	return inf.hub.Do(func(turn delivery.Turn) error {
		if inf.state.Store(ctx, batch, rejected) {
			batch.RV = "" // frozen
		}
		if turn.Untold() && !batch.Loaded {
			if err := turn.TellLoaded(); err != nil {
				return err
			}
		}
		if err := inf.store.Apply(batch); err != nil {
			inf.state.Lose(ctx, err)
			return err
		}
		inf.metrics.stored(batch.RV)
		inf.rememberRV()
		inf.departed(batch)
		inf.state.Applied(rv)
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

// prepare encodes the objects of a batch, without mu and before any handler holds them.
// It returns, by key, the errors of objects that cannot be stored. For such an object it
// puts the previous state of the key into the batch, for example its deletion, if the
// changes contain one.
func (inf *Informer) prepare(batch *store.Batch, changes []change, stored map[string]string) map[string]error {
	rejected := map[string]error{}
	tried := batch.Changes
	batch.Changes = nil
	for len(tried) > 0 {
		part := store.Batch{Changes: tried}
		err := inf.store.Prepare(&part)
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
			inf.depart(part, changes, stored)
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
