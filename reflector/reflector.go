package reflector

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

// Sink takes what the reflector learns. Its methods are called one at a time.
type Sink interface {
	// Checkpoint says what the sink holds from an earlier process.
	Checkpoint() store.Checkpoint
	// Push takes one event, in the order of the watch; rv is what the stream is
	// complete up to after it. It blocks while the sink is full. An
	// *store.ObjectError says that this object cannot be taken.
	Push(ctx context.Context, t cache.DeltaType, obj runtime.Object, rv string) error
	// Reject is Push for an object that Push has refused and a new list could not
	// mend: the sink keeps its last good state and freezes the stored RV.
	Reject(ctx context.Context, obj runtime.Object, cause error)
	// Bookmark says that the stream is complete up to rv.
	Bookmark(ctx context.Context, rv string) error
	// Relist begins to replace what the sink holds. It blocks until everything
	// that was pushed before has been applied.
	Relist(ctx context.Context, reason string) (Relist, error)
	// CaughtUp says that what was pushed is the server's state, or a later one, of
	// the moment at which the reflector started. It blocks until that is applied.
	CaughtUp(ctx context.Context) error
}

// Relist is one list on its way to the sink.
type Relist interface {
	// Add takes one object of the list.
	Add(ctx context.Context, obj runtime.Object) error
	// Finish makes the sink hold what was added, complete up to rv.
	Finish(ctx context.Context, rv string) error
	// Close discards a list that was not finished.
	Close() error
}

// Options say what is reflected.
type Options struct {
	ListerWatcher cache.ListerWatcher
	Example       runtime.Object          // an object of the type that is expected
	Kind          schema.GroupVersionKind // of Example where it does not say; may be empty
	Sink          Sink
	// Verify is called before the first request, until it returns no error: whether
	// what Sink holds is of the server that will be asked. relist says why it is
	// not, and makes Run list instead of resuming. May be nil.
	Verify func(ctx context.Context) (relist string, err error)
	// OnError is told of every list, watch or probe that failed; may be nil.
	OnError func(context.Context, error)
	// PageSize is how many objects one request of a paged list asks for. 0 is 500.
	PageSize int64
}

// Reflector keeps a sink up to date. Make one with New.
type Reflector struct {
	opts Options
	lw   cache.ListerWatcherWithContext

	asked chan string // reasons of Relist; holds one

	// mu protects status and lastRV, which other goroutines read.
	mu     sync.Mutex
	status Status
	lastRV string

	// The fields below belong to Run's goroutine.
	held      string // complete up to; what the next watch starts from
	listed    bool   // a list was finished, or a stored one is resumed
	relist    string // why to list next; "" is to watch
	probeNext bool   // the next watch is preceded by a probe
	stored    bool   // held comes from an earlier process and is not verified yet
	resumed   bool   // the watch from held is still to be reported
	now       string // what catching up reaches; "" where nothing is to be caught up
	caughtUp  bool
	stream    *session // what a streamed list goes on as
	backoff   wait.Backoff
	tally     tally
	tolerant  bool // a list could not mend an object that cannot be taken
	started   time.Time
	verified  bool // Verify has answered
}

// tally counts what decides about the next step.
type tally struct {
	emptyAtOnce    int // watches that ended at once without an event
	tooLarge       int
	undecodable    int    // objects that could not be taken, at undecodableAt
	undecodableAt  string // the resource version that was held
	expired        int    // watches that ended because history was lost, or rewound
	whole          int    // catch-up watches that lasted to their timeout without a bookmark
	listStreams    int    // streamed lists that ended without their bookmark
	catchUpSeconds int64
}

const (
	defaultPage = 500
	// firstCatchUp is the shortest timeout, in seconds, for which an API server
	// sends the bookmark before the timeout; lastCatchUp bounds its doubling.
	firstCatchUp = 3
	lastCatchUp  = 60
	// watchSeconds is the least timeout of an ordinary watch; up to as much again
	// is added at random, so that clients do not come back together.
	watchSeconds = 300
	healthyAfter = 2 * time.Minute
)

// newBackoff is client-go's: 0.8 s doubling to 30 s, with full jitter.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// New checks the options. The error names the one that is missing.
func New(opts Options) (*Reflector, error) {
	switch {
	case opts.ListerWatcher == nil:
		return nil, errors.New("reflector: ListerWatcher is nil")
	case opts.Sink == nil:
		return nil, errors.New("reflector: Sink is nil")
	}
	if opts.PageSize <= 0 {
		opts.PageSize = defaultPage
	}
	return &Reflector{
		opts: opts, lw: cache.ToListerWatcherWithContext(opts.ListerWatcher),
		asked: make(chan string, 1), backoff: newBackoff(), tally: tally{catchUpSeconds: firstCatchUp},
	}, nil
}

// LastSyncResourceVersion returns the resource version of the last event or list
// that was received. It may be ahead of what the sink has applied, so it is
// never what to store.
func (r *Reflector) LastSyncResourceVersion() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastRV
}

// Relist makes Run list next, because the sink has lost something. It does not
// block and may be called by the sink itself.
func (r *Reflector) Relist(reason string) {
	select {
	case r.asked <- reason:
	default: // one is asked for already
	}
}

// Run lists and watches until the context ends or the sink is closed.
func (r *Reflector) Run(ctx context.Context) {
	r.begin(ctx)
	defer r.stopStream()
	for ctx.Err() == nil {
		err := r.step(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, store.ErrClosed) || errors.Is(err, cache.ErrFIFOClosed):
			return
		default:
			r.pause(ctx, err)
		}
	}
}

func (r *Reflector) begin(ctx context.Context) {
	r.started = time.Now()
	cp := r.opts.Sink.Checkpoint()
	if cp.RV == "" {
		r.relist = cp.Reason
		if r.relist == "" {
			r.relist = "nothing stored yet"
		}
		return
	}
	klog.FromContext(ctx).V(2).Info("Resuming from the stored resource version", "resourceVersion", cp.RV, "age", time.Since(cp.Time))
	r.hold(cp.RV)
	r.listed, r.stored, r.probeNext, r.resumed = true, true, true, true
}

// step does the one next thing: a list, a probe or a watch.
func (r *Reflector) step(ctx context.Context) error {
	if r.opts.Verify != nil && !r.verified {
		reason, err := r.opts.Verify(ctx)
		if err != nil {
			return err
		}
		if r.verified = true; reason != "" {
			r.relistFor(ctx, reason)
		}
	}
	select {
	case reason := <-r.asked:
		r.relistFor(ctx, reason)
	default:
	}
	if r.relist != "" || !r.listed {
		return r.list(ctx)
	}
	if r.probeNext {
		return r.probe(ctx)
	}
	return r.watch(ctx)
}

// pause waits after a failure, with jitter, for longer each time.
func (r *Reflector) pause(ctx context.Context, err error) {
	r.report(ctx, err)
	t := time.NewTimer(max(r.backoff.Step(), suggestedDelay(err)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (r *Reflector) report(ctx context.Context, err error) {
	r.setError(err)
	if r.opts.OnError != nil {
		r.opts.OnError(ctx, err)
	}
}

func (r *Reflector) setError(err error) {
	r.note(func(s *Status) {
		if s.LastError = ""; err != nil {
			s.failed(err)
		}
	})
}

func (r *Reflector) hold(rv string) {
	r.held = rv
	r.mu.Lock()
	r.lastRV = rv
	r.mu.Unlock()
}

// probe asks for the server's present resource version, consistently: an RV of
// the past there means that history was rewound (kubernetes#107457).
func (r *Reflector) probe(ctx context.Context) error {
	list, err := r.lw.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("ask for the present resource version: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("ask for the present resource version: %w", err)
	}
	r.setError(nil)
	now := accessor.GetResourceVersion()
	order, err := resourceversion.CompareResourceVersion(now, r.held)
	switch {
	case err != nil && r.stored:
		r.relist = "resource versions of this API cannot be compared"
		return nil
	case err != nil:
	case order < 0:
		klog.FromContext(ctx).Info("History was rewound", "held", r.held, "now", now)
		r.relist = "history was rewound"
		return nil
	}
	r.probeNext, r.stored = false, false
	if r.caughtUp {
		return nil
	}
	if r.now = now; now == r.held {
		return r.reachedNow(ctx)
	}
	return nil
}

// reachedNow ends catching up.
func (r *Reflector) reachedNow(ctx context.Context) error {
	if err := r.opts.Sink.CaughtUp(ctx); err != nil {
		return err
	}
	r.caughtUp = true
	r.note((*Status).caughtUp)
	klog.FromContext(ctx).Info("Caught up", "resourceVersion", r.held, "after", time.Since(r.started).Round(time.Millisecond))
	return nil
}

// isExpected reports whether an event's object is of the type that was asked for.
func (r *Reflector) isExpected(obj runtime.Object) error {
	if want, got := reflect.TypeOf(r.opts.Example), reflect.TypeOf(obj); want != nil && want != got {
		return fmt.Errorf("a %s where a %s was expected", got, want)
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); !r.opts.Kind.Empty() && !gvk.Empty() && gvk != r.opts.Kind {
		if _, partial := obj.(*metav1.PartialObjectMetadata); !partial {
			return fmt.Errorf("a %s where a %s was expected", gvk, r.opts.Kind)
		}
	}
	return nil
}
