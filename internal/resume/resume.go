// Package resume is between package durable and the informer: an event handler goes on
// where one of an earlier process ended.
package resume

import (
	"context"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

// Handler is an event handler that remembers up to where it has received the changes of a
// scope. The informer calls its methods in the goroutine of the handler, one at a time.
type Handler interface {
	cache.ResourceEventHandler
	// Opened is called first, when the informer has opened its scope. The handler calls
	// Begin, in Opened or later. Until then it receives nothing and counts as synced.
	Opened(Feed)
	// Lost is called if the log does not lead from the place of Begin to what there is:
	// see Feed.Begin.
	Lost(Feed, error)
	// Removed is called when the handler is removed from the informer. It is called by
	// another goroutine, also before Opened and while that runs: see Feed.Ended.
	Removed(Feed)
}

// Feed brings the notifications of one informer to a handler. A handler that is added
// several times has several feeds. Feeds of one registration compare equal. The methods
// may be called by any goroutine.
type Feed interface {
	// Scope returns the scope, and whether what it holds outlives the process.
	Scope() (scope store.Scope, persisted bool)
	// Begin brings what was changed after a place and then what changes. With everything
	// set it also brings all objects as initial adds, after what was changed, and what
	// has departed before; the place may then be zero. The handler has synced when it has
	// received all that. Begin may be called again.
	//
	// If the log does not lead on from a place, Lost is called. The handler then receives
	// everything. If the place has only a resource version, everything is not set and
	// the error is not store.ErrLineage, it receives the objects whose resource version
	// is higher, as adds that are not initial.
	//
	// If what was applied before cannot be written within 30 seconds, as on a full disk,
	// the handler receives what the log has and then everything, and Mark says no place.
	Begin(from store.Place, everything bool)
	// First and Last return the first and the last place in the log, which are zero if
	// there is none.
	First() store.Place
	Last() store.Place
	// Mark returns the last place in the log and a fence: when the handler has passed
	// it, it has received all changes up to that place. ok is false if that will not be
	// so, or not yet.
	Mark() (place store.Place, fence uint64, ok bool)
	// Passed reports whether the handler has returned from everything before a fence.
	Passed(fence uint64) bool
	// Ended reports whether the handler was removed, before Removed is called, or the
	// informer has ended.
	Ended() bool
	// Flush waits until what the informer has received before is written.
	Flush(context.Context) error
	// Len returns the number of objects.
	Len() int
	// Live reports whether Sweep brings something. It brings nothing before what Begin
	// brings, nor when the handler was removed or the informer has ended.
	Live() bool
	// Sweep brings up to limit stored objects with keys after one as initial adds, behind
	// what waits. It returns the last key, and whether more follow.
	Sweep(after string, limit int) (last string, more bool, err error)
}

// Logged is a Feed of an informer that logs with the logger of its context.
type Logged interface {
	// Logger returns that logger. It does not name the informer's resource.
	Logger() klog.Logger
}

// Confirmer is a Feed that keeps what has departed, for the next process, until its
// handler has confirmed it: that the handler has returned is not enough.
type Confirmer interface {
	// Departed returns the number of the last object that has departed. Its deletion is
	// before the fence of a Mark that is set later.
	Departed() uint64
	// Confirm says that the next process needs nothing of what has departed up to a
	// number.
	Confirm(number uint64)
}
