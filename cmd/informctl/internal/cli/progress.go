package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
	"k8s.io/client-go/tools/cache"
)

// terminal is standard error. If it is a terminal, it has a progress bar below the lines.
type terminal struct {
	is            bool
	doing, things string // labels of the bar
	every         time.Duration

	// mu protects the fields below.
	mu  sync.Mutex
	out io.Writer
	bar *progressbar.ProgressBar
}

func newTerminal(out io.Writer) *terminal {
	f, ok := out.(*os.File)
	return &terminal{out: out, is: ok && term.IsTerminal(int(f.Fd())), doing: "listing", things: "objects", every: 50 * time.Millisecond}
}

// Write writes whole lines in place of the bar. The next set shows the bar again.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar != nil {
		_ = t.bar.Clear()
	}
	return t.out.Write(p)
}

// set shows the bar at a number of objects. A total of 0 means that it is not known.
func (t *terminal) set(objects, total int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar == nil {
		if total == 0 {
			total = -1
		}
		t.bar = progressbar.NewOptions(total, t.options()...)
	}
	// Objects may be created during the list.
	if limit := t.bar.GetMax(); limit > 0 && objects >= limit {
		t.bar.ChangeMax(objects + 1)
	}
	_ = t.bar.Set(objects)
}

func (t *terminal) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar != nil {
		_ = t.bar.Clear()
		t.bar = nil
	}
}

// newLogger returns a logger that writes one line per message.
func newLogger(w io.Writer, format string) logr.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			// JSON would contain nanoseconds.
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	if format == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, options))
}

// progress shows the progress of the first lists. Nothing else in run takes long.
type progress struct {
	out    *terminal
	logger logr.Logger
	cold   []*follower
}

func newProgress(out *terminal, logger logr.Logger, followers []*follower) *progress {
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
	defer p.out.clear()
	if len(p.cold) == 0 {
		return
	}
	total := p.total(ctx)
	every := 5 * time.Second
	if p.out.is {
		every = 100 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		objects, done := p.objects()
		switch {
		case done:
			return
		case p.out.is:
			p.out.set(objects, total)
		case objects > 0:
			p.logger.Info("Listing", "objects", objects, "of", total)
		}
	}
}

// total returns the sum of the sizes of the collections, 0 if one of them is not known.
func (p *progress) total(ctx context.Context) (sum int) {
	for _, f := range p.cold {
		n := f.total(ctx)
		if n == 0 {
			return 0
		}
		sum += n
	}
	return sum
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
