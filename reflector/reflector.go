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
	"k8s.io/client-go/util/watchlist"
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
	// Add takes one object of the list. The last state of an object that is added
	// again counts.
	Add(ctx context.Context, obj runtime.Object) error
	// Remove takes back an object that was added, or would have been.
	Remove(ctx context.Context, obj runtime.Object) error
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
	// Verify is called before each probe and each list: whether what Sink holds is of
	// the cluster that answers now. relist says why it is not, and makes Run list
	// instead of resuming. An error is reported, and Verify is called again after a
	// backoff. May be nil.
	Verify func(ctx context.Context) (relist string, err error)
	// NoProbe opens every watch without asking for the present resource version
	// before, as client-go does. A history that was rewound is not noticed then. What
	// an earlier process left is listed, not resumed.
	NoProbe bool
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

	// fake: the client says that it streams no lists, as client-go's fakes do, and nobody
	// verifies which cluster answers. A fake's resource versions are what the
	// author of a test has written, and a watch that the author feeds by hand is opened
	// once: such a watch is not doubted, probed or ended, as client-go's is not.
	fake bool

	// The fields below belong to Run's goroutine.
	held      string // complete up to; what the next watch starts from
	next      next
	relist    string // why to list, where that is next
	stored    bool   // held comes from an earlier process and was not probed yet
	resumed   bool   // the watch from held is still to be reported
	unordered bool   // the server's resource versions have no order that means anything
	now       string // what catching up reaches; "" where it is not known yet
	caughtUp  bool
	stream    *session // what a streamed list goes on as
	backoff   wait.Backoff
	tally     tally
	tolerant  bool // a list could not mend an object that cannot be taken
	started   time.Time
}

// next says what Run does next.
type next uint8

const (
	toList  next = iota
	toProbe      // and then watch
	toWatch
)

// tally counts what decides about the next step.
type tally struct {
	emptyAtOnce    int // watches that ended at once without an event
	tooLarge       int
	undecodable    repeated // objects that could not be taken
	failures       repeated // watches that the server ended with an error soon after they began
	expired        int      // watches that ended because history was lost, or rewound
	whole          int      // catch-up watches that lasted to their timeout without a bookmark
	cut            int      // catch-up watches in a row that were cut short and brought nothing
	listStreams    int      // streamed lists in a row that broke with a part of the list
	doubts         int      // resource versions below the held one that were no rewind
	catchUpSeconds int64
}

// repeated counts what happens while the held resource version stays the same.
type repeated struct {
	at string
	n  int
}

// count returns how often it has happened at that resource version, this time included.
func (r *repeated) count(held string) int {
	if r.at != held {
		*r = repeated{at: held}
	}
	r.n++
	return r.n
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
	doubtTries   = 3
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
		fake:  opts.Verify == nil && watchlist.DoesClientNotSupportWatchListSemantics(opts.ListerWatcher),
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
	switch {
	case cp.RV == "" && cp.Reason == "":
		r.relist = "nothing stored yet"
	case cp.RV == "":
		r.relist = cp.Reason
	case r.opts.NoProbe:
		r.relist = "the stored resource version is not to be probed"
	default:
		klog.FromContext(ctx).V(2).Info("Resuming from the stored resource version", "resourceVersion", cp.RV, "age", time.Since(cp.Time))
		r.hold(cp.RV)
		r.next, r.stored, r.resumed = toProbe, true, true
	}
}

// step does the one next thing: a list, a probe or a watch.
func (r *Reflector) step(ctx context.Context) error {
	select {
	case reason := <-r.asked:
		r.relistFor(ctx, reason)
	default:
	}
	if r.next == toProbe && (r.opts.NoProbe || r.fake && r.caughtUp) {
		r.next = toWatch
	}
	if r.next == toWatch {
		return r.watch(ctx)
	}
	if r.opts.Verify != nil {
		reason, err := r.opts.Verify(ctx)
		if err != nil {
			return err
		}
		if reason != "" {
			r.relistFor(ctx, reason)
		}
	}
	if r.next == toProbe {
		return r.probe(ctx)
	}
	return r.list(ctx)
}

// afterLoss makes the next watch one that follows a probe, unless a list is next.
func (r *Reflector) afterLoss() {
	if r.next != toList {
		r.next = toProbe
	}
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
	r.received(rv)
}

func (r *Reflector) received(rv string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastRV = rv
}

// probe asks for the server's present resource version before a watch is opened: one
// below the held one means that history was rewound (kubernetes#107457).
func (r *Reflector) probe(ctx context.Context) error {
	now, err := r.present(ctx)
	if err != nil {
		return err
	}
	r.setError(nil)
	order, err := resourceversion.CompareResourceVersion(now, r.held)
	switch {
	case err != nil && r.stored:
		r.relistFor(ctx, "resource versions of this API cannot be compared")
		return nil
	case err != nil || r.unordered:
	case order < 0:
		klog.FromContext(ctx).Info("History was rewound", "held", r.held, "now", now)
		r.relistFor(ctx, errRewound.Error())
		return nil
	}
	r.next, r.stored = toWatch, false
	if r.caughtUp {
		return nil
	}
	// What was the server's state at the first probe is enough: a later one must not
	// move the goal of a watch that is cut again and again.
	if r.now == "" {
		r.now = now
	}
	if reached, err := resourceversion.CompareResourceVersion(r.held, r.now); r.now == r.held || err == nil && reached >= 0 {
		return r.reachedNow(ctx)
	}
	return nil
}

// present returns the server's resource version of this moment, by a consistent list of
// one object.
func (r *Reflector) present(ctx context.Context) (string, error) {
	list, err := r.listPage(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("ask for the present resource version: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("ask for the present resource version: %w", err)
	}
	return accessor.GetResourceVersion(), nil
}

// doubt is called when a watch has brought a resource version below the held one. An
// API server does that after its history was rewound, and only a probe says so. Fake
// clients and aggregated servers number as they like: where what the server lists is
// numbered below what it has just sent, or history was not rewound again and again,
// resource versions say nothing until the next list.
func (r *Reflector) doubt(ctx context.Context, rv string) error {
	if r.unordered || r.opts.NoProbe {
		r.hold(rv)
		return nil
	}
	if r.fake {
		r.unordered = true
		r.hold(rv)
		return nil
	}
	now, err := r.present(ctx)
	if err != nil {
		return err
	}
	r.received(rv)
	switch isFake := isLower(now, rv); {
	case isFake:
	case isLower(now, r.held):
		return fmt.Errorf("%w: %s after %s, and %s now", errRewound, rv, r.held, now)
	default:
		if r.tally.doubts++; r.tally.doubts < doubtTries {
			return nil
		}
	}
	klog.FromContext(ctx).Info("Resource versions of this server have no order, none is stored until the next list",
		"before", r.held, "after", rv, "now", now)
	r.unordered = true
	r.hold(rv)
	return nil
}

// isLower is false where the two cannot be compared.
func isLower(rv, than string) bool {
	order, err := resourceversion.CompareResourceVersion(rv, than)
	return err == nil && order < 0
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
