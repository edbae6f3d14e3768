package reflector

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// catchUpEnded handles a catch-up watch that lasted to its timeout. If it delivered
// events or a lower bookmark, the timeout was too short: the next watch gets a longer
// one. If it delivered nothing, the timeout stays. If two such watches had no bookmark
// that says anything new, and the last one had no event either, the server may not send
// bookmarks, or its watch cache lags: only a list can tell.
//
// A server also sends no bookmark as long as its watch cache is at the last event that it
// replayed, selected or not (k8s.io/apiserver, cacheWatcher.process). The probe before
// the next watch brings its watch cache up to date, if there was a write to any resource.
func (r *Reflector) catchUpEnded(ctx context.Context, s *session) {
	if s.brought() {
		r.lengthenCatchUp()
	}
	if s.moved > 0 {
		r.tally.whole = 0
		return
	}
	r.afterLoss()
	if r.tally.whole++; r.tally.whole >= 2 && s.events == 0 {
		r.tally.whole = 0
		r.listRather(ctx, "the server does not say when a watch has caught up")
	}
}

func (r *Reflector) lengthenCatchUp() {
	r.tally.catchUpSeconds = min(2*r.tally.catchUpSeconds, lastCatchUp)
}

// cutShort handles a watch that ended before its timeout. The next catch-up watch gets a
// longer timeout, but a shorter one than this watch has lasted if that was long enough
// for a bookmark, because a proxy may cut every watch after that time. After cutTries
// watches in a row that delivered nothing, only a list can tell the state of the server.
func (r *Reflector) cutShort(ctx context.Context, s *session, lasted time.Duration) {
	r.tally.whole = 0
	r.lengthenCatchUp()
	if most := int64(lasted.Seconds()) - 1; most >= firstCatchUp {
		r.tally.catchUpSeconds = min(r.tally.catchUpSeconds, most)
	}
	if r.caughtUp || s.brought() {
		r.tally.cut = 0
		return
	}
	r.tally.cut++
	if lasted > s.timeout { // nothing ended it in time, so it was not cut
		r.tally.cut += cutTries / 3
	}
	if r.tally.cut >= cutTries {
		r.tally.cut = 0
		r.listRather(ctx, "the server does not say when a watch has caught up")
	}
}

// gap is the way from one resource version to the goal of a catch-up.
type gap struct {
	from   string        // the resource version held at the begin
	took   time.Duration // of the watches since then
	events int           // that they delivered
}

const (
	// betweenWatches is about how long the next watch takes to begin after one was cut.
	betweenWatches = time.Second
	// leastList is how long a list is expected to take at least.
	leastList = time.Minute
	// listSpeedup is how many times as fast as a watch a list is expected to deliver
	// objects, in bulk and compressed.
	listSpeedup = 10
)

// closeGap is called at the end of a watch. If the goal of the catch-up is not reached,
// a list becomes the next step as soon as the watches have taken as long as a short list
// and would still take longer than a list. Servers end the watch of a client that reads
// slowly, so a catch-up could go on for hours, and behind a server with many writes for
// ever.
func (r *Reflector) closeGap(ctx context.Context, s *session) {
	if r.now == "" || s.events == 0 {
		return
	}
	r.backoff = newBackoff()
	r.gap.took += s.last.Sub(s.asked) + betweenWatches
	r.gap.events += s.events
	from, errFrom := strconv.ParseUint(r.gap.from, 10, 64)
	held, errHeld := strconv.ParseUint(r.held, 10, 64)
	now, errNow := strconv.ParseUint(r.now, 10, 64)
	if errors.Join(errFrom, errHeld, errNow) != nil || held <= from || now <= held {
		return
	}
	left := r.gap.took.Seconds() * float64(now-held) / float64(held-from)
	list := max(leastList, r.listTook).Seconds()
	if r.opts.Len != nil {
		list = max(list, r.gap.took.Seconds()/float64(r.gap.events)*float64(r.opts.Len())/listSpeedup)
	}
	if r.gap.took >= leastList && left > list {
		r.listRather(ctx, "the watches catch up more slowly than a list would")
	}
}
