package run

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// progress shows the progress of the first lists. Nothing else in run takes long.
type progress struct {
	out    *cmdutil.Terminal
	logger logr.Logger
	cold   []*follower
}

func newProgress(out *cmdutil.Terminal, logger logr.Logger, followers []*follower) *progress {
	p := &progress{out: out, logger: logger}
	for _, f := range followers {
		if !f.warm {
			p.cold = append(p.cold, f)
		}
	}
	return p
}

// run shows progress until all first lists are complete or the context ends.
func (p *progress) run(ctx context.Context) {
	defer p.out.Clear()
	if len(p.cold) == 0 {
		return
	}
	total, known := p.total(ctx)
	every := 5 * time.Second
	if p.out.Is {
		every = 100 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for said := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		objects, done := p.objects()
		switch {
		case done:
			return
		case p.out.Is:
			p.out.Set(objects, total)
		case objects > 0 && objects != said: // else what is left is refused, or waits
			said = objects
			p.log(objects, total, known)
		}
	}
}

func (p *progress) log(objects, total int, known bool) {
	values := []any{"objects", objects}
	if known {
		values = append(values, "of", total)
	}
	p.logger.Info("Listing", values...)
}

// total returns the sum of the sizes of the collections, 0 if one of them is not known.
func (p *progress) total(ctx context.Context) (sum int, known bool) {
	for _, f := range p.cold {
		n, known := f.Total(ctx)
		if !known {
			return 0, false
		}
		sum += n
	}
	return sum, true
}

func (p *progress) objects() (sum int, done bool) {
	done = true
	for _, f := range p.cold {
		status := f.informer.Status()
		if cache.IsDone(f.informer.HasSyncedChecker()) || status.Lists > 0 {
			sum += status.Objects
			continue
		}
		sum, done = sum+status.Listed, done && f.isDenied()
	}
	return sum, done
}
