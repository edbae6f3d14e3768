package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidwall/btree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

const (
	// spread is the fraction by which an interval is lengthened at random, so that
	// informers do not audit at the same time.
	spread = 0.2
	// pause is the pause between two pages of an audit, and pauses the maximum sum of the
	// pauses: continuations expire five minutes after the list at the earliest.
	pause  = time.Second
	pauses = 2 * time.Minute
	// patience is how long an audit waits until the watch has brought the store to the
	// list's resource version. A bookmark comes every minute.
	patience = 5 * time.Minute
	// logged is the number of findings of one audit that are logged.
	logged = 10
)

// LoopOptions specify what a Loop audits.
type LoopOptions struct {
	// Interval is the time between audits, plus up to a fifth at random.
	Interval  time.Duration
	List      func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Store     store.Store
	Transform func(runtime.Object) (runtime.Object, error)
	// Moment returns, as of one moment, the resource version that the store is complete
	// up to and the keys of its objects. ok is false if a list is due, which compares all
	// objects, too: the audit is then left out.
	Moment func() (rv string, held *btree.Set[string], ok bool)
	// Other is called with the first finding that only another history of the server
	// explains, if there is one, and else Differs with the first finding of an audit that
	// has ended, if any.
	Other, Differs func(first Finding)
}

// Tally is what the audits of a Loop have found.
type Tally struct {
	Count    int       // completed audits
	Last     time.Time // when the last one completed
	Objects  int       // compared by the last one
	Findings int       // of the last one
	First    string    // the first of these: the kind and the key
	Total    int       // findings of all audits
	Error    string    // why a later one failed
}

// Loop audits the store of an informer while that runs. The zero value is ready.
type Loop struct {
	mu    sync.Mutex // protects tally
	tally Tally
}

// Tally returns what the audits have found so far. It may be called by any goroutine.
func (l *Loop) Tally() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally
}

// Run audits after every interval. It blocks until the context ends.
func (l *Loop) Run(ctx context.Context, o LoopOptions) {
	// The longest durations overflow with jitter.
	for sleep(ctx, max(o.Interval, wait.Jitter(o.Interval, spread))) == nil {
		l.audit(ctx, o)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// audit runs one audit. A panic, for example of List, goes to
// k8s.io/apimachinery/pkg/util/runtime. If that does not end the process, the audit
// fails.
func (l *Loop) audit(ctx context.Context, o LoopOptions) {
	defer utilruntime.HandleCrashWithContext(ctx, func(_ context.Context, cause any) {
		l.note(Result{}, fmt.Errorf("panicked: %v", cause))
	})
	logger := klog.FromContext(ctx)
	from, held, ok := o.Moment()
	if !ok {
		return
	}
	told := 0
	result, err := Run(ctx, Options{
		List: o.List, Store: o.Store, From: from, Held: held.Contains,
		Await: o.await, Transform: o.Transform, Content: true,
		Pause: func(ctx context.Context) error {
			pages := time.Duration(1 + held.Len()/PageSize)
			return sleep(ctx, min(pause, pauses/pages))
		},
		Found: func(f Finding) error {
			if told++; told > logged {
				return nil
			}
			if f.Kind == OtherContent {
				logger.Error(nil, "Stored is other content than the server has at the same resource version", "key", f.Key)
				return nil
			}
			logger.Error(nil, "Stored is what the server does not have: it has another history", "difference", string(f.Kind), "key", f.Key)
			return nil
		},
	})
	if ctx.Err() != nil {
		return
	}
	l.note(result, err)
	if err != nil {
		logger.Info("An audit did not end", "because", err.Error())
	} else {
		logger.V(2).Info("Audited", "objects", result.Listed, "same", result.Same, "findings", result.Findings)
	}
	if result.Findings > 0 {
		if told > logged {
			logger.Error(nil, "An audit has found more", "findings", result.Findings)
		}
		switch {
		case result.Other.Kind != "":
			o.Other(result.Other)
		case err == nil: // else what was not compared may show another history
			o.Differs(result.First)
		}
	}
}

func (l *Loop) note(result Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.tally
	t.Total += result.Findings
	if err != nil {
		t.Error = err.Error()
		return
	}
	t.Error = ""
	t.Count++
	t.Last, t.Objects, t.Findings, t.First = time.Now(), result.Listed, result.Findings, ""
	if result.Findings > 0 {
		t.First = result.First.String()
	}
}

// await blocks until the store is complete up to a resource version, but no longer than
// patience.
func (o LoopOptions) await(ctx context.Context, rv string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		order, err := resourceversion.CompareResourceVersion(o.Store.Checkpoint().RV, rv)
		if err != nil || order >= 0 {
			return nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}
