package bolt

import (
	"math"
	"slices"
	"time"
)

// boundsOfLog returns the bounds of the scope's log, which has own bytes.
func (s *scopeStore) boundsOfLog(own int64) (bytes int64, age time.Duration) {
	bytes, age = s.opts.History.Bounds()
	if bytes > 0 {
		bytes = min(bytes, s.db.shareOfLogs(s, own))
	}
	return bytes, age
}

// shareOfLogs returns how many bytes each log may have, so that all of the file have
// Options.HistoryBytes. It counts own bytes for s, and what is acknowledged for the
// others; s may be nil.
func (d *DB) shareOfLogs(s *scopeStore, own int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shareOfLogsLocked(s, own)
}

func (d *DB) shareOfLogsLocked(s *scopeStore, own int64) int64 {
	all := d.logs.Bytes.Load() + own
	if s != nil {
		all -= from(s, (*state).logBytes)
	}
	if all <= d.logs.Max {
		return math.MaxInt64
	}
	sizes := make([]int64, 0, len(d.scopes))
	for _, other := range d.scopes {
		size := own
		if other != s {
			size = from(other, (*state).logBytes)
		}
		sizes = append(sizes, size)
	}
	return share(sizes, d.logs.Max)
}

// share returns the bound under which sizes add up to all at most, if only those above it
// shrink.
func share(sizes []int64, all int64) int64 {
	slices.Sort(sizes)
	for i, size := range sizes {
		if each := all / int64(len(sizes)-i); size > each {
			return max(each, 1)
		}
		all -= size
	}
	return math.MaxInt64
}

// trimLater requests another commit if logs have more bytes than their share.
func (d *committer) trimLater() {
	d.mu.Lock()
	defer d.mu.Unlock()
	share := d.shareOfLogsLocked(nil, 0)
	for _, s := range d.scopes {
		if from(s, func(s *state) bool { return s.changelog.HasMoreThan(share) }) {
			d.tell(false)
			return
		}
	}
}
