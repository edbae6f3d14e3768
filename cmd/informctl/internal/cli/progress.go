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

// terminal is standard error: lines and, where it is a terminal, a progress bar
// below them.
type terminal struct {
	is            bool
	doing, things string // what the bar counts
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

// Write writes whole lines, in place of the bar, which comes again when it is set.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar != nil {
		_ = t.bar.Clear()
	}
	return t.out.Write(p)
}

// set shows the bar at a number of objects; a total of 0 is not known.
func (t *terminal) set(objects, total int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar == nil {
		if total == 0 {
			total = -1
		}
		t.bar = progressbar.NewOptions(total, t.options()...)
	}
	// Objects may be created while they are listed.
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

// newLogger returns a logger of one line for each thing that happens.
func newLogger(w io.Writer, format string) logr.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String()) // JSON would have nanoseconds
		}
		return a
	}}
	if format == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, options))
}

// progress shows the first lists, the only thing here that takes its time.
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

// run shows progress until all cold scopes are there or the context ends.
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

// total adds up the sizes of the collections; 0 where one is not known.
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
		sum, done = sum+status.Listed, false
	}
	return sum, done
}
