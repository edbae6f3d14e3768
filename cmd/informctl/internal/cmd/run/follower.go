package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// follower keeps one scope up to date.
type follower struct {
	*cluster.Collection
	informer *informer.Informer
	inMemory bool // there is no file, which is no error
	once     bool
	ofAll    bool // of --all, so that a refusal is no error
	warm     bool // an earlier run has completed the first list
	// handler, if it is not nil, is done when an event handler has received the first
	// objects: --once waits for it.
	handler cache.DoneChecker

	outages *outages // shared by the followers of a run

	slots chan struct{} // one element per first list; nil: no bound
	moved func()        // gives the place in slots back; set by run
	stop  context.CancelFunc
	ended chan struct{} // closed when it has ended

	// mu protects the fields below.
	mu      sync.Mutex
	told    string // the kind of error that was last logged; "" after a success
	refused string // the verb of the request that failed last
	denied  bool   // because the server does not allow it
	failed  error  // why it ended
	unknown int    // failures that may pass, or not
	left    bool   // it ended because the server refuses it
}

func (o *options) newFollower(collection *cluster.Collection, db store.Backend) (*follower, error) {
	f := &follower{Collection: collection, once: o.once, ofAll: o.All, outages: &outages{}, moved: func() {}, ended: make(chan struct{})}
	var err error
	if f.Scope, err = collection.Scope.Canonical(); err != nil {
		return nil, err
	}
	indexes := make([]index.Index, 0, len(o.indexes))
	for _, idx := range o.indexes {
		// The index of nodes returns an error for an object that is not a pod.
		if idx.Name == index.NodeName().Name && f.Scope.Resource != "pods" {
			if !o.All {
				o.env.Note("%s: the index %s is of pods only", f.Scope, idx.Name)
			}
			continue
		}
		indexes = append(indexes, idx)
	}
	identify := collection.Identify
	if o.once {
		identify = nil // it was asked just now
	}
	f.informer, err = informer.New(collection.ListerWatcher(f.answered), collection.Example, informer.Options{
		Backend: db, Scope: f.Scope, Identify: identify, Indexes: indexes, DecodedBytes: 1,
		History: o.history.ofScope(f.Scope, o.serves),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Scope, err)
	}
	err = f.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		f.report(ctx, err)
	})
	return f, err
}

// run blocks until the context ends. With --once, it returns when the scope is caught up,
// or cannot be, and all of its objects are written.
func (f *follower) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer f.outages.end(f, false)
	if !f.await(ctx) {
		return f.result()
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer f.moved()
		select {
		case <-f.informer.HasSyncedChecker().Done():
			if f.once && f.handler != nil {
				select {
				case <-f.handler.Done():
				case <-ctx.Done():
				}
			}
			if f.once {
				cancel()
			}
		case <-ctx.Done():
		}
	})
	f.informer.RunWithContext(ctx)
	cancel()
	waiting.Wait()
	return f.result()
}

// await waits for a place in slots if the follower has a first list to make. It gives the
// place back when that is made, or could not be.
func (f *follower) await(ctx context.Context) bool {
	if f.slots == nil || f.warm {
		return true
	}
	select {
	case f.slots <- struct{}{}:
		f.moved = sync.OnceFunc(func() { <-f.slots })
		return true
	case <-ctx.Done():
		return false
	}
}

// result returns an error unless everything is stored that should be.
func (f *follower) result() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := f.informer.Status()
	switch {
	case f.failed != nil:
		return fmt.Errorf("%s: %w", f.Scope, f.failed)
	case status.Memory != "" && !f.inMemory:
		return fmt.Errorf("%s: not stored: %s", f.Scope, status.Memory)
	case f.left:
		return nil
	case f.once && !cache.IsDone(f.informer.HasSyncedChecker()):
		return fmt.Errorf("%s: interrupted before it was caught up", f.Scope)
	case f.once && len(status.Rejected) > 0:
		return fmt.Errorf("%s: %d objects cannot be stored, such as %s", f.Scope, len(status.Rejected), status.Rejected[0])
	}
	return nil
}

// answered is called at the end of each request.
func (f *follower) answered(verb string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		if f.refused = verb; !cluster.Unreachable(err) {
			f.outages.end(f, true)
		}
	// A watch that is allowed may stream the list, too.
	case f.refused == verb || f.refused == "" || verb == "watch":
		f.refused, f.told, f.denied = "", "", false
		f.outages.end(f, true)
	}
}

// onceTries is how many requests fail, within about half a minute, before a follower of
// --once ends that fails in a way that may pass or not. An example is a webhook that
// converts the objects and is down.
const onceTries = 6

// report logs an error once, until a request with the same verb succeeds or the error
// changes. A client that may list but not watch lists successfully before each watch
// fails, so success of another verb does not count. With --once it ends the follower if a
// retry cannot help. That the server cannot be reached is logged once for all followers.
func (f *follower) report(ctx context.Context, err error) {
	f.moved() // the others need not wait until the next attempt
	what, lasting := classify(err)
	if what == "" || ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !lasting {
		f.unknown++
		lasting = f.unknown >= onceTries
	}
	if f.once && lasting {
		if f.ofAll && isRefusal(err) {
			f.left = true
			klog.FromContext(ctx).Info("Left out", "because", cmdutil.OneLine(err))
		} else if f.failed == nil {
			f.failed = fmt.Errorf("%s: %w", what, err)
		}
		f.stop()
		return
	}
	f.denied = isRefusal(err)
	if what == unreached {
		f.outages.begin(f, err)
		return
	}
	if f.told == what {
		return
	}
	f.told = what
	cmdutil.Warnings(klog.FromContext(ctx)).Info(what+", trying again", "because", cmdutil.OneLine(err))
}

// isRefusal reports whether a server has refused to list or watch a resource.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// isDenied reports whether the server has refused the last request.
func (f *follower) isDenied() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.denied
}

// unreached is what classify says of an error without an answer.
const unreached = "Server cannot be reached"

// classify describes an error for a person and reports whether it is permanent. It
// returns "" for errors that are normal while following a server, such as lost history or
// a watch that ended.
func classify(err error) (what string, lasting bool) {
	switch {
	case apierrors.IsForbidden(err):
		return "No permission to list or watch", true
	case apierrors.IsBadRequest(err) || apierrors.IsInvalid(err):
		return "The server refuses what was asked for", true
	case apierrors.IsUnauthorized(err):
		return "Not logged in", true
	case apierrors.IsNotFound(err):
		return "The server has no such resource, or none that can be listed and watched", true
	case apierrors.IsMethodNotSupported(err):
		return "The resource cannot be listed or watched", true
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "No room to store what was received", true
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EIO), errors.Is(err, store.ErrCorrupt):
		return "What was received cannot be stored", true
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), reflector.IsCut(err):
		return "", false
	case cluster.Unreachable(err):
		return unreached, true
	}
	return "A request failed", false
}
