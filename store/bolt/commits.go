package bolt

import (
	"slices"
	"time"

	"github.com/informctl/informctl/store"
)

var (
	_ store.Committer   = (*scopeStore)(nil)
	_ store.ReadCounter = (*scopeStore)(nil)
)

// Reads implements store.ReadCounter.
func (s *scopeStore) Reads() store.Reads {
	return store.Reads{
		Hits: s.hits.Load(), Misses: s.misses.Load(), Longest: s.db.file.LongestRead(),
		Encodes: s.codec.Encodes.Read(), Decodes: s.codec.Decodes.Read(), DecodedBytes: s.objects.Bytes(),
	}
}

// Commits implements store.Committer.
func (s *scopeStore) Commits() store.Commits {
	s.db.mu.Lock()
	c := s.db.commits
	c.Durations, c.Sizes = slices.Clone(c.Durations), slices.Clone(c.Sizes)
	s.db.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Rebuilds = s.db.file.Rebuilds()
	c.Err, c.Waiting, c.Stored = s.commitErr, int64(s.overlay.Bytes()), s.storedBytes
	c.AllWaiting, c.MaxWaiting = s.db.pending.Load(), s.db.opts.MaxPending
	return c
}

// newBuckets returns n empty buckets. The first has the bound least; each further bound
// is times the previous one.
func newBuckets(least, times float64, n int) []store.Bucket {
	buckets := make([]store.Bucket, n)
	for i := range buckets {
		buckets[i].UpTo = least
		least *= times
	}
	return buckets
}

func countIn(buckets []store.Bucket, value float64) {
	for i := range buckets {
		if value <= buckets[i].UpTo {
			buckets[i].Count++
		}
	}
}

// noteWaiting logs when the waiting changes exceed MaxPending and when they no longer do.
func (d *DB) noteWaiting() {
	c := store.Commits{AllWaiting: d.pending.Load(), MaxWaiting: d.opts.MaxPending}
	is := c.AllWaiting > c.MaxWaiting
	if d.overwhelm.Swap(is) == is { // the common case of every Apply
		return
	}
	if why := c.TooMuchWaits(); is {
		d.opts.Logger.Info("The disk does not keep up: "+why, "path", d.path)
		return
	}
	d.opts.Logger.Info("The disk keeps up again", "path", d.path, "waiting", c.AllWaiting)
}

// noteCommit counts a committed transaction and the bytes that it wrote.
func (d *committer) noteCommit(took time.Duration, captures []capture) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commits.Count++
	d.commits.Took += took
	wrote := 0
	for i := range captures {
		wrote += captures[i].PackedBytes()
	}
	d.commits.Bytes += int64(wrote)
	countIn(d.commits.Durations, took.Seconds())
	countIn(d.commits.Sizes, float64(wrote))
	d.commits.Last, d.commits.LastTook = time.Now(), took
}
