package delivery

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

// calls makes the calls of one handler. Only its goroutine uses it.
type calls struct {
	handler cache.ResourceEventHandler
	// follower is the handler of a client, nil for that of a program, whose methods may
	// have the same names.
	follower Follower
	// goesOn says that the handler is a resume.Handler. An update is an add for it if the
	// state before is not known: filters, which find no difference between an object and
	// itself, would drop a change that the next process does not hear of either.
	goesOn  bool
	logger  *klog.Logger
	latches *latches
	env     *Env
}

// decode decodes the encoded objects of a batch in parallel. It adds the objects that the
// handler will receive to the mutation detector.
func (c *calls) decode(batch []queue.Notification, s Store) {
	var waiting []*store.Entry
	for i := range batch {
		for _, e := range []*store.Entry{&batch[i].Old, &batch[i].New} {
			if e.Object == nil && e.Raw != nil {
				waiting = append(waiting, e)
			}
		}
	}
	_ = parallel.Do(len(waiting), func(i int) error {
		obj, err := s.Decode(*waiting[i])
		if err != nil {
			c.env.Failed(err) // logs the error and requests a list
			return nil
		}
		*waiting[i] = store.Entry{Key: waiting[i].Key, Object: obj}
		return nil
	})
	for _, n := range batch {
		if n.New.Object != nil {
			c.env.Handed(n.New.Object)
		}
	}
}

// deliver makes one call. A panic is handled as in client-go: the handler's logger logs
// it and the process ends, or, with utilruntime.ReallyCrash off, the notification is
// skipped.
func (c *calls) deliver(n queue.Notification) (panicked bool) {
	panicked = true
	defer utilruntime.HandleCrashWithLogger(*c.logger)
	if c.follower != nil && c.follow(c.follower, n) {
		return false
	}
	switch n.Kind {
	case queue.Added:
		if n.New.Object != nil {
			c.handler.OnAdd(n.New.Object, n.Initial)
		}
	case queue.Updated:
		switch {
		case n.New.Object == nil:
		case n.Old.Object != nil:
			c.handler.OnUpdate(n.Old.Object, n.New.Object)
		case c.goesOn:
			c.handler.OnAdd(n.New.Object, false)
		default:
			c.handler.OnUpdate(n.New.Object, n.New.Object)
		}
	case queue.Resynced:
		if n.New.Object != nil {
			c.handler.OnUpdate(n.New.Object, n.New.Object)
		}
	case queue.Deleted:
		c.handler.OnDelete(c.lastState(n))
	case queue.Vanished:
		c.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: n.Key, Obj: c.lastState(n)})
	case queue.Synced:
		c.latches.markSynced()
	}
	return false
}

// Follower is a handler that distinguishes states that are not known. It belongs to a
// client (Options.Client), receives these calls instead of OnUpdate and OnDelete, and no
// resyncs.
type Follower interface {
	cache.ResourceEventHandler
	// Updated receives a changed object. before is nil if the state before is not known.
	Updated(before, now runtime.Object)
	// Deleted receives the last state of a deleted object, which has nothing but its name
	// if it is not known. before is the last state that handlers have received, nil if it
	// is not known; the last state is another one if that could not be stored.
	Deleted(before, last runtime.Object)
}

// follow makes the call of a Follower. It returns false if the notification is for
// another method.
func (c *calls) follow(f Follower, n queue.Notification) bool {
	switch n.Kind {
	case queue.Updated:
		if n.New.Object != nil {
			f.Updated(n.Old.Object, n.New.Object)
		}
	case queue.Deleted:
		f.Deleted(n.New.Object, c.lastState(n))
	case queue.Vanished:
		f.Deleted(n.Old.Object, c.lastState(n))
	case queue.Added, queue.Resynced, queue.Synced:
		return false
	}
	return true
}

// lastState returns the last state of a deleted object. It is never nil, because handlers
// assert its type. If the last state cannot be read, the object has only its name.
func (c *calls) lastState(n queue.Notification) runtime.Object {
	if n.Old.Object != nil {
		return n.Old.Object
	}
	return c.env.Blank(n.Key)
}

// latches are what the callers of a Registration wait for: that its handler has synced,
// and that it receives no more. They are safe for concurrent use, except that one
// goroutine closes them.
type latches struct {
	name func() string
	told chan struct{} // closed when the handler has synced
	done chan struct{} // closed when the goroutine ends, or will never start
}

// markSynced says that the handler has synced. A handler that waited has synced before.
func (l *latches) markSynced() {
	if !l.HasSynced() {
		close(l.told)
	}
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (l *latches) HasSynced() bool { return cache.IsDone(l) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (l *latches) HasSyncedChecker() cache.DoneChecker { return l }

// Name implements cache.DoneChecker.
func (l *latches) Name() string { return l.name() }

// Done implements cache.DoneChecker.
func (l *latches) Done() <-chan struct{} { return l.told }

// ShutdownChan returns a channel that is closed when the handler receives no more
// notifications; see cache.ShutDownEventHandler.
func (l *latches) ShutdownChan() <-chan struct{} { return l.done }
