package reflector

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

// Rewound is the reason of a list that follows a resource version below the held one.
const Rewound = "history was rewound"

// Sink receives what the reflector lists and watches. Its methods are called one at a
// time.
type Sink interface {
	// Checkpoint returns the checkpoint that an earlier process has stored.
	Checkpoint() store.Checkpoint
	// Push adds one event, in the order of the watch. rv is the resource version that the
	// stream is complete up to after the event; "" if it is unknown. Push blocks while
	// the sink is full. An *store.ObjectError reports that the sink cannot take this
	// object.
	Push(ctx context.Context, t cache.DeltaType, obj runtime.Object, rv string) error
	// Reject is called instead of Push for an object that Push has refused and that a new
	// list did not repair. The sink keeps the last good state of the object and freezes
	// the stored RV.
	Reject(ctx context.Context, obj runtime.Object, cause error)
	// Bookmark records that the stream is complete up to rv.
	Bookmark(ctx context.Context, rv string) error
	// Relist starts to replace the content of the sink. It blocks until everything that
	// was pushed before has been applied.
	// The reason is Rewound if what the Sink holds is of a history that is no more, and
	// NoResource if the list is empty because there is no such resource.
	Relist(ctx context.Context, reason string) (Relist, error)
	// CaughtUp reports that the pushed state is at least as new as the server's state at
	// the start of the reflector. It blocks until that state is applied.
	CaughtUp(ctx context.Context) error
}

// Relist receives one list for the sink.
type Relist interface {
	// Add adds one object of the list. If an object is added again, its last state
	// counts.
	Add(ctx context.Context, obj runtime.Object) error
	// Remove removes an object from the list, whether it was added or not.
	Remove(ctx context.Context, obj runtime.Object) error
	// Finish replaces the content of the sink by the added objects, complete up to rv.
	Finish(ctx context.Context, rv string) error
	// Close discards an unfinished list.
	Close() error
}

// Options configure a Reflector.
type Options struct {
	ListerWatcher cache.ListerWatcher
	Example       runtime.Object          // an object of the expected type
	Kind          schema.GroupVersionKind // of Example, if Example does not contain it
	Sink          Sink
	// Verify is called before each probe and each list. It checks whether the content of
	// Sink is from the cluster that answers now. If it is not, relist is the reason, and
	// Run lists instead of resuming. An error is reported, and Verify is called again
	// after a backoff. May be nil.
	Verify func(ctx context.Context) (relist string, err error)
	// NoProbe opens every watch without the probe, as client-go does. A rewound history
	// is then not detected, so Run lists instead of resuming from the checkpoint of an
	// earlier process.
	NoProbe bool
	// Request returns the context of a request to ListerWatcher whose objects the Sink,
	// or Compare, receives; may be nil.
	Request func(context.Context) context.Context
	// IsSmall makes the first probe ask for WholeLimit objects instead of one, if it
	// returns true. If these are the whole collection, Compare reports whether the Sink
	// holds the same; relist is the reason for a list if what differs cannot have changed
	// since. After an error the catch-up goes on as without Compare. nil: no collection
	// is small.
	IsSmall func() bool
	Compare func(ctx context.Context, list runtime.Object) (same bool, relist string, err error)
	// Undecodable is called when client-go could not decode an object of a watch. It
	// reports whether the ListerWatcher will pass such an object in another form from now
	// on, so that the watch is worth opening again. nil: it will not.
	Undecodable func() bool
	// Len returns how many objects Sink holds, from which Run estimates how long a list
	// takes. May be nil.
	Len func() int
	// OnError is called with the error of every failed list, watch or probe; may be nil.
	OnError func(context.Context, error)
	// PageSize is the limit of objects in one page of a list. 0 means 500.
	PageSize int64
}

// Reflector keeps a sink up to date. Create one with New.
type Reflector struct {
	opts Options
	lw   cache.ListerWatcherWithContext

	asked chan string // reasons given to Relist; capacity 1

	// mu protects status and lastRV, which other goroutines read.
	mu     sync.Mutex
	status Status
	lastRV string

	// fake is true if the client reports that it does not support streamed lists, as
	// client-go's fakes do, and Verify is nil. The author of a test chooses the resource
	// versions of a fake and feeds its watch by hand, so the watch is opened once: like
	// client-go, the reflector then does not check, probe or end it.
	fake bool

	// Only Run's goroutine uses the fields below.
	held       string // RV that the stream is complete up to; the next watch starts here
	next       next
	relist     string // the reason for the next list, if next is toList
	stored     bool   // held is from an earlier process and has not been probed yet
	resumed    bool   // the watch that resumes from held has not been logged yet
	unordered  bool   // the order of the server's resource versions is meaningless
	now        string // the RV that ends catching up; "" if none is to be reached
	gap        gap    // what is known of the way to now
	caughtUp   bool
	stream     *session // the watch that continues a streamed list or probe
	noStreams  bool     // a streamed list of this server had no end: lists are in pages
	backoff    wait.Backoff
	tally      tally
	missing    missing
	tolerant   bool // no list repairs an object that the sink cannot take
	started    time.Time
	listTook   time.Duration // the last list
	listFailed time.Time     // the last list that the server failed
}

// next is the next step of Run.
type next uint8

const (
	toList next = iota
	// toListOrProbe is toList while a watch from the held resource version may still
	// work: if the server fails the list, Run probes and watches again.
	toListOrProbe
	toProbe // then watch
	toWatch
	// toUnprobedWatch is toWatch after probes that the server has failed; then Run probes
	// again.
	toUnprobedWatch
	// toFirstWatch is toWatch after the first list of a fake: the informer has caught up
	// when the watch is open, or does not open soon.
	toFirstWatch
)

// tally contains the counters that decide the next step.
type tally struct {
	emptyAtOnce    int // watches in a row that ended at once without an event
	tooLarge       int
	undecodable    repeated // objects that the sink could not take
	failures       repeated // watches that soon ended with an error of the server
	forbidden      repeated // watches that were forbidden although lists are not
	expired        int      // watches that ended because history was lost or rewound
	whole          int      // catch-up watches that timed out without a bookmark
	cut            int      // catch-up watches in a row that broke in silence
	unanswered     int      // streamed lists in a row without an answer, though pages had
	listStreams    int      // streamed lists in a row that broke after some objects
	probeStreams   int      // streamed lists of a probe in a row that failed
	failedProbes   int      // probes in a row that the server failed
	failedLists    int      // lists in a row that the server failed
	doubts         int      // resource versions below the held one without a rewind
	catchUpSeconds int64
}

// repeated counts an occurrence while the held resource version stays the same.
type repeated struct {
	at string
	n  int
}

// count adds one occurrence and returns the number of occurrences at this resource
// version.
func (r *repeated) count(held string) int {
	if r.at != held {
		*r = repeated{at: held}
	}
	r.n++
	return r.n
}

// WholeLimit is the number of objects that the first probe of a small collection asks
// for.
const WholeLimit = 450

const (
	defaultPage = 500
	// firstCatchUp is the shortest timeout, in seconds, of a watch for which an API
	// server sends a bookmark before the timeout. The timeout doubles up to lastCatchUp.
	firstCatchUp = 3
	lastCatchUp  = 60
	// watchSeconds is the minimum timeout of an ordinary watch. A random duration of up
	// to watchSeconds is added, so that clients do not reconnect at the same time.
	watchSeconds = 300
	healthyAfter = 2 * time.Minute
	doubtTries   = 3
	// failedListEvery is the least wait between whole lists that the server fails, after
	// the first ones.
	failedListEvery = time.Minute
)

// newBackoff returns client-go's backoff: 0.8 s, doubled up to 30 s, each with up to as
// much again by chance.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// New validates the options and returns a Reflector. The error names the missing option.
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
	if opts.Request == nil {
		opts.Request = func(ctx context.Context) context.Context { return ctx }
	}
	if opts.Undecodable == nil {
		opts.Undecodable = func() bool { return false }
	}
	return &Reflector{
		opts: opts, lw: cache.ToListerWatcherWithContext(opts.ListerWatcher),
		fake:  opts.Verify == nil && watchlist.DoesClientNotSupportWatchListSemantics(opts.ListerWatcher),
		asked: make(chan string, 1), backoff: newBackoff(), tally: tally{catchUpSeconds: firstCatchUp},
	}, nil
}

// LastSyncResourceVersion returns the resource version of the last received event or
// list. It may be ahead of the state that the sink has applied, so it must not be stored.
func (r *Reflector) LastSyncResourceVersion() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastRV
}

// Relist makes Run list next, because the sink has lost content. It does not block, and
// the sink may call it.
func (r *Reflector) Relist(reason string) {
	select {
	case r.asked <- reason:
	default: // a list is already requested
	}
}

// Run lists and watches until the context ends or the sink is closed.
func (r *Reflector) Run(ctx context.Context) {
	r.begin(ctx)
	defer r.stopStream()
	for ctx.Err() == nil {
		err := r.try(ctx)
		if noted := r.missed(ctx, err); noted != nil {
			err = noted
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrClosed) || errors.Is(err, cache.ErrFIFOClosed):
			klog.FromContext(ctx).Info("The store was closed: nothing is listed or watched any more", "because", err.Error())
			return
		default:
			r.pause(ctx, err)
		}
	}
}

// try runs the next step. A panic, for example of the ListerWatcher, goes to
// k8s.io/apimachinery/pkg/util/runtime as in client-go. If that does not end the process,
// the step is made again after a pause.
func (r *Reflector) try(ctx context.Context) (err error) {
	defer utilruntime.HandleCrashWithContext(ctx)
	err = errPanicked
	return r.step(ctx)
}

// errPanicked indicates a step that has panicked.
var errPanicked = errors.New("the step has panicked")

func (r *Reflector) begin(ctx context.Context) {
	r.started = time.Now()
	cp := r.opts.Sink.Checkpoint()
	switch {
	case cp.RV == "" && cp.Reason == "":
		r.relist = "nothing stored yet"
	case cp.RV == "" && cp.Reason == NoResource: // the process before has said so
		r.relist = wasNoResource
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

// step runs the next step: a list, a probe or a watch.
func (r *Reflector) step(ctx context.Context) error {
	select {
	case reason := <-r.asked:
		if r.next != toList || r.relist != Rewound { // that list fulfils the request
			r.relistFor(ctx, reason)
		}
	default:
	}
	if r.next == toProbe && (r.opts.NoProbe && !isNone(r.held) || r.isWatchedFake()) {
		r.next = toWatch
	}
	if r.next == toWatch || r.next == toUnprobedWatch || r.next == toFirstWatch {
		return r.watch(ctx)
	}
	if r.opts.Verify != nil {
		reason, err := r.opts.Verify(ctx)
		if err != nil {
			return err
		}
		if reason != "" {
			r.noStreams, r.tally.unanswered = false, 0 // another server
			r.relistFor(ctx, reason)
		}
	}
	if r.next == toProbe {
		return r.probe(ctx)
	}
	return r.list(ctx)
}

// afterLoss makes Run probe before the next watch, unless a list is next.
func (r *Reflector) afterLoss() {
	if r.next != toList && r.next != toListOrProbe {
		r.next = toProbe
	}
}

// pause waits after a failure. The wait has jitter and grows each time.
func (r *Reflector) pause(ctx context.Context, err error) {
	r.report(ctx, err)
	wait := max(r.backoff.Step(), suggestedDelay(err))
	if r.next == toList && r.tally.failedLists > failureTries && time.Since(r.listFailed) < failedListEvery {
		wait = max(wait, failedListEvery)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (r *Reflector) report(ctx context.Context, err error) {
	r.setError(err)
	if r.opts.OnError != nil {
		defer utilruntime.HandleCrashWithContext(ctx)
		r.opts.OnError(ctx, err)
	}
}

func (r *Reflector) setError(err error) {
	r.note(func(s *Status) {
		if err != nil {
			s.failed(err)
		} else {
			s.answered()
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

// isNone reports whether a watch from rv begins with what exists and says nothing of what
// was deleted before.
func isNone(rv string) bool { return rv == "" || rv == "0" }

// isLower returns false if the two cannot be compared.
func isLower(rv, than string) bool {
	order, err := resourceversion.CompareResourceVersion(rv, than)
	return err == nil && order < 0
}

// isExpected returns an error if an event's object is not of the expected type.
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
