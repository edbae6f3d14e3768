package informer

import (
	"context"
	"time"

	"github.com/tidwall/btree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/internal/audit"
	"github.com/informctl/informctl/internal/endable"
)

// AuditStatus contains the results of an informer's audits.
type AuditStatus struct {
	Count    int       `json:"count"`         // completed since the start
	Last     time.Time `json:"last,omitzero"` // when the last one completed
	Objects  int       `json:"objects"`       // compared by the last one
	Findings int       `json:"findings"`      // of the last one
	// First is the first of these: the kind and the key.
	First string `json:"first,omitempty"`
	Total int    `json:"total"`           // findings of all audits
	Error string `json:"error,omitempty"` // why a later one failed
}

const (
	// auditSpread is the fraction by which an interval is lengthened at random, so that
	// informers do not audit at the same time.
	auditSpread = 0.2
	// auditPause is the pause between two pages of an audit, and auditTime the maximum
	// sum of the pauses: continuations expire five minutes after the list at the
	// earliest.
	auditPause = time.Second
	auditTime  = 2 * time.Minute
	// auditPatience is how long an audit waits until the watch has brought the store to
	// the list's resource version. A bookmark comes every minute.
	auditPatience = 5 * time.Minute
	// auditTold is the number of findings of one audit that are logged.
	auditTold = 10
)

// auditLoop audits every AuditInterval until the context ends.
func (inf *Informer) auditLoop(ctx context.Context) {
	if inf.opts.AuditInterval == 0 {
		return
	}
	for sleep(ctx, wait.Jitter(inf.opts.AuditInterval, auditSpread)) == nil {
		inf.audit(ctx)
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

// audit runs one audit, and requests a list if it has findings.
func (inf *Informer) audit(ctx context.Context) {
	logger := klog.FromContext(ctx)
	caughtUp := inf.state.IsCaughtUp()
	var from string
	var held *btree.Set[string]
	_ = inf.hub.Do(func(turn delivery.Turn) error { // as of one moment
		from, held = inf.store.Checkpoint().RV, turn.Known()
		return nil
	})
	if !caughtUp || from == "" {
		return // a list is due, which compares all objects, too
	}
	lister := inf.lister()
	list := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return endable.Call(ctx, func() (runtime.Object, error) { return lister.ListWithContext(ctx, opts) }, nil)
	}
	told := 0
	result, err := audit.Run(ctx, audit.Options{
		List: list, Store: inf.store, From: from, Held: held.Contains,
		Await: inf.awaitRV, Transform: inf.transformed, Content: true,
		Pause: func(ctx context.Context) error {
			pages := time.Duration(1 + held.Len()/audit.PageSize)
			return sleep(ctx, min(auditPause, auditTime/pages))
		},
		Found: func(f audit.Finding) error {
			if told++; told <= auditTold {
				logger.Error(nil, "Stored is what the server does not have: it has another history", "difference", string(f.Kind), "key", f.Key)
			}
			return nil
		},
	})
	if ctx.Err() != nil {
		return
	}
	inf.noteAudit(result, err)
	if err != nil {
		logger.Info("An audit did not end", "because", err.Error())
	} else {
		logger.V(2).Info("Audited", "objects", result.Listed, "same", result.Same, "findings", result.Findings)
	}
	if result.Findings > 0 {
		if told > auditTold {
			logger.Error(nil, "An audit has found more", "findings", result.Findings)
		}
		inf.mu.Lock()
		inf.findings.other = true
		inf.mu.Unlock()
		inf.reflector.Relist("an audit found another history: " + result.First.String())
	}
}

func (inf *Informer) noteAudit(result audit.Result, err error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	s := &inf.findings.audited
	s.Total += result.Findings
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.Error = ""
	s.Count++
	s.Last, s.Objects, s.Findings, s.First = time.Now(), result.Listed, result.Findings, ""
	if result.Findings > 0 {
		s.First = result.First.String()
	}
}

// awaitRV blocks until the store is complete up to a resource version, but no longer than
// auditPatience.
func (inf *Informer) awaitRV(ctx context.Context, rv string) error {
	for end := time.Now().Add(auditPatience); time.Now().Before(end); {
		order, err := resourceversion.CompareResourceVersion(inf.store.Checkpoint().RV, rv)
		if err != nil || order >= 0 {
			return nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}
