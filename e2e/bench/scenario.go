package main

import (
	"context"
	"fmt"
	"time"

	"github.com/informctl/informctl/informer"
)

// scenario is the sequence of steps of one child process. The names of its figures begin
// with its name.
type scenario struct {
	Name     string
	OursOnly bool
	EachKind bool // measured with each kind, not only with pods
	Fresh    bool // without a file of an earlier process
	Ahead    int  // distance from the file's to the server's resource version
	SyncWhen informer.SyncPolicy
	// DecodedBytes is the value of informer.Options.DecodedBytes.
	DecodedBytes int64
	// Restart measures a controller that is started twice, with a file of its own.
	Restart bool
	// Query measures the command on the file, which no informer has open.
	Query   bool
	After   string // runs after the start, see afters; "" means nothing
	Percent int    // of the objects are changed before a relist
	Rate    int    // changes per second; 0 means as fast as possible
}

func scenarios() []scenario {
	const relist, change, reads = "relist", "change", "reads"
	return []scenario{
		{Name: "cold", EachKind: true, Fresh: true},
		{Name: "warm", EachKind: true, OursOnly: true, Ahead: 1},
		{Name: "loaded", OursOnly: true, Ahead: 1, SyncWhen: informer.Loaded},
		{Name: "relist0", After: relist},
		{Name: "relist1", After: relist, Percent: 1},
		{Name: "relist100", After: relist, Percent: 100},
		{Name: "saturated", EachKind: true, After: change},
		{Name: "rate1000", After: change, Rate: 1000},
		{Name: "rate100", OursOnly: true, After: change, Rate: 100},
		{Name: "rate10", OursOnly: true, After: change, Rate: 10},
		{Name: "reads", EachKind: true, After: reads},
		{Name: "decoded", OursOnly: true, After: reads, DecodedBytes: -1},
		{Name: "restart", Restart: true},
		{Name: "query", OursOnly: true, Query: true},
	}
}

// afters are the functions that can run after a start.
var afters = map[string]func(context.Context, *child) error{
	"relist": relist, "change": change, "reads": func(_ context.Context, c *child) error { return c.kind.reads(c) },
}

// relist makes the server lose its history and waits until the informer has the server's
// state.
func relist(ctx context.Context, c *child) error {
	before, err := writtenBytes()
	if err != nil {
		return err
	}
	notified := c.seen.notifications()
	began := time.Now()
	count := c.Objects * c.Scenario.Percent / 100
	answer, err := c.server.ask(ctx, "lose", count, 0)
	if err != nil {
		return err
	}
	// Strings are compared, because all resource versions have the same length.
	for c.inf.GetStore().LastStoreSyncResourceVersion() < answer.RV {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s, at %q: %w", answer.RV, c.inf.GetStore().LastStoreSyncResourceVersion(), ctx.Err())
		}
	}
	c.figures["consistent"] = time.Since(began).Seconds()
	if err := c.heapProfile(); err != nil {
		return err
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	after, err := writtenBytes()
	c.figures["written"] = float64(after - before)
	c.figures["notifications"] = float64(c.seen.notifications() - notified)
	c.figures["changed"] = float64(count)
	c.figures["relistAnon"], _ = c.memory.peak()
	return err
}

// maxSaturated is the number of changes that are made as fast as possible.
const maxSaturated = 20_000

// change measures how changes of objects arrive at the handler.
func change(ctx context.Context, c *child) error {
	count := min(c.Objects, maxSaturated)
	if c.Scenario.Rate > 0 {
		count = max(1, int(float64(c.Scenario.Rate)*c.Seconds))
	}
	written, commits, err := c.writes()
	if err != nil {
		return err
	}
	enough := c.seen.expect(count)
	began := time.Now()
	if _, err := c.server.ask(ctx, "change", count, c.Scenario.Rate); err != nil {
		return err
	}
	if err := c.seen.wait(ctx, enough); err != nil {
		return err
	}
	took := c.seen.last.Sub(began).Seconds()
	c.figures["eventsPerSecond"] = float64(count) / took
	c.figures["p50"], c.figures["p99"] = percentile(c.seen.delays, 50), percentile(c.seen.delays, 99)
	if err := c.settle(ctx); err != nil {
		return err
	}
	writtenAfter, commitsAfter, err := c.writes()
	c.figures["writtenPerSecond"] = float64(writtenAfter-written) / took
	c.figures["commitsPerSecond"] = float64(commitsAfter-commits) / took
	return err
}

// writes returns the bytes written so far and the number of commits.
func (c *child) writes() (written, commits int64, err error) {
	if written, err = writtenBytes(); err != nil || !c.Ours {
		return written, 0, err
	}
	commits, err = lastTransaction(c.File)
	return written, commits, err
}
