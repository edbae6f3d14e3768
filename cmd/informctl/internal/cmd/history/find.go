package history

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// find returns what was changed as it is printed, the newest last. It adds the errors of
// what cannot be read.
func (o *options) find(ctx context.Context, historians []*historian, unread *source.Unread) (found []*loggedChange, err error) {
	for _, from := range o.attempts(historians) {
		o.selection.Sieve.Restart()
		if found, err = o.findSince(ctx, from, historians, unread); err != nil {
			return nil, err
		}
		if begin := o.tailOf(found); begin > 0 {
			found = found[begin:]
			break
		}
	}
	if found = o.withoutNoise(found); o.folds() {
		found = folded(found)
	}
	return found, nil
}

// attempts returns the times from which on changes are looked for, one after the other
// until there are enough: the newest changes of a long log are found without all of it.
func (o *options) attempts(historians []*historian) (from []time.Time) {
	if o.tail == 0 {
		return []time.Time{o.from}
	}
	var first, last time.Time
	for _, h := range historians {
		// An error is that of read, too. A scope in memory may have no log yet.
		if log, err := h.view.History(); err == nil && !log.Begins.IsZero() {
			if first.IsZero() || log.Begins.Before(first) {
				first = log.Begins
			}
			if log.Last.Time.After(last) {
				last = log.Last.Time
			}
		}
	}
	if !o.to.IsZero() && o.to.Before(last) {
		last = o.to
	}
	if o.from.After(first) {
		first = o.from
	}
	for ago := time.Second; !first.IsZero() && ago < math.MaxInt64/8 && last.Add(-ago).After(first); ago *= 8 {
		from = append(from, last.Add(-ago))
	}
	return append(from, o.from)
}

// findSince returns what was changed since a time. The order of a log counts, and not its
// times: a clock may have been set back. Between logs the times count.
func (o *options) findSince(ctx context.Context, from time.Time, historians []*historian, unread *source.Unread) (found []*loggedChange, err error) {
	for _, h := range historians {
		var latest time.Time
		err := h.read(ctx, from, false, func(some []*loggedChange) error {
			for _, c := range some {
				if c.Time.After(latest) {
					latest = c.Time
				}
				c.latest = latest
				found = append(found, c)
			}
			return nil
		})
		if err != nil {
			if err := unread.Add(h.view.Info, err); err != nil {
				return nil, err
			}
		}
	}
	found = withoutRepeated(found)
	slices.SortStableFunc(found, func(a, b *loggedChange) int { return a.latest.Compare(b.latest) })
	return found, nil
}
