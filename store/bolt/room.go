package bolt

import (
	"cmp"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// The logs give room to commits: while the volume, or Options.MaxBytes, leaves less than
// a part of the file's size, they are trimmed until half of the file's free pages are
// that much. If a commit has no room nevertheless, they are trimmed again, each time by
// twice as much, and a former content whose successor is whole is dropped. All of it is
// done in transactions of their own, because the pages that a transaction frees cannot be
// used in it. The trims keep what handlers have not received.
const (
	reservedPart = 4 // of the file
	maxReserved  = 64 << 20
)

// keepReserve trims the logs while there is less room than a commit may need. It waits
// until a quarter of the reserve is missing, and does not try again what has not helped.
func (d *committer) keepReserve() {
	reserve, room := d.reserve()
	logs := d.logs.Bytes.Load()
	d.leastLogs = min(d.leastLogs, logs)
	if room >= reserve-reserve/4 || logs <= d.leastLogs+changelog.TrimBytes {
		return
	}
	if d.trimLogs(reserve-room) == 0 {
		d.leastLogs = logs
	}
}

// reserve returns how much room there should be, and how much there is: on the volume,
// and in half of the file's free pages.
func (d *committer) reserve() (want, is int64) {
	reserve := func(size int64) int64 { return min(size/reservedPart, maxReserved) }
	size, is := d.file.Room(reserve)
	return reserve(size), is
}

// lacksRoom reports whether a write has failed because the disk, a quota or
// Options.MaxBytes is full.
func lacksRoom(err error) bool {
	if err == nil {
		return false
	}
	for _, full := range []error{bbolterrors.ErrMaxSizeReached, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) {
			return true
		}
		// bbolt does not wrap the error of a file that cannot be extended, or whose new
		// part finds no room when it is synced.
		text := err.Error()
		if (strings.Contains(text, "file resize error: ") || strings.Contains(text, "file sync error: ")) && strings.Contains(text, full.Error()) {
			return true
		}
	}
	return false
}

// trims bounds how often the logs are trimmed for one commit, each time by twice as much:
// what they give is in pieces, and an object needs pages in a row.
const trims = 4

// trimFor trims the logs by what a commit needs that has failed, and reports whether it
// has. It trims twice as much each time until a commit has succeeded.
func (d *committer) trimFor(captures []capture) bool {
	need := int64(changelog.TrimBytes)
	for i := range captures {
		// The commit that has failed may be in the file.
		captures[i].Attempts = from(captures[i].s, (*state).attempts)
		need += 2 * captures[i].Size()
	}
	freed := d.trimLogs(need << min(d.trims, 20))
	d.trims++
	return freed > 0
}

// trimLogs trims the logs by n bytes, the largest first, and returns by how much it has.
// A trim writes what stays beside what it drops. If there is no room for that, it trims
// by more, where something else stays.
func (d *committer) trimLogs(n int64) (freed int64) {
	scopes := d.byLogBytes()
	if len(scopes) == 0 {
		return 0
	}
	for all := d.logs.Bytes.Load(); ; n *= 2 {
		freed, err := d.trimOnce(scopes, n)
		if !lacksRoom(err) || n >= all {
			return freed
		}
	}
}

func (d *committer) trimOnce(scopes []*scopeStore, n int64) (freed int64, err error) {
	trimmed := map[*scopeStore]record.LogState{}
	err = d.update("trim logs", func(tx *bbolt.Tx) error {
		clear(trimmed)
		freed = 0
		for _, s := range scopes {
			if freed >= n {
				break
			}
			before, log, err := s.trimBy(tx, n-freed)
			if err != nil {
				return err
			}
			if log.Bytes < before {
				freed += before - log.Bytes
				trimmed[s] = log
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for s, log := range trimmed {
		s.locked(func(s *state) { s.trimmed(log) })
	}
	return freed, nil
}

// byLogBytes returns the open scopes that have a log in the file, the largest log first.
func (d *committer) byLogBytes() []*scopeStore {
	d.mu.Lock()
	defer d.mu.Unlock()
	bytes := map[*scopeStore]int64{}
	var scopes []*scopeStore
	for _, s := range d.scopes {
		if n := from(s, (*state).logBytes); n > 0 {
			bytes[s] = n
			scopes = append(scopes, s)
		}
	}
	slices.SortFunc(scopes, func(a, b *scopeStore) int { return cmp.Compare(bytes[b], bytes[a]) })
	return scopes
}

// trimBy frees about n bytes of the scope's log. It returns the bytes before, and the log
// after it.
func (s *scopeStore) trimBy(tx *bbolt.Tx, n int64) (before int64, log record.LogState, err error) {
	c, _ := s.capture(math.MaxInt64)
	if s.noBucket.Load() || c.isLost() || !s.db.isCurrent(s) {
		return 0, log, nil
	}
	w, err := s.writerOfLog(tx)
	if err != nil {
		return 0, log, err
	}
	before = w.Manifest.Log.Bytes
	if err := c.Trim(w, s.logOptions(), n); err != nil || w.Manifest.Log.Bytes == before {
		return before, w.Manifest.Log, err
	}
	return before, w.Manifest.Log, w.End()
}

// makeRoom leaves what a first list has written as it is, and drops the former content
// for which the captured list is whole. It reports whether there was any. Without that, a
// file that cannot grow would never take what the list has left.
func (d *committer) makeRoom(captures []capture) (made bool) {
	for i := range captures {
		c := &captures[i]
		if from(c.s, (*state).leaveWritten) {
			again, due := c.s.capture(c.share)
			if !due || again.Pack() != nil {
				continue // it is lost
			}
			*c, made = again, true
		}
		// The commit that has failed may be in the file.
		c.Attempts = from(c.s, (*state).attempts)
		if c.Lists == c.Marked {
			continue
		}
		dropped := false
		err := d.update("former objects", func(tx *bbolt.Tx) (err error) {
			if dropped = false; !d.isCurrent(c.s) || c.isLost() {
				return nil
			}
			dropped, err = c.dropFormer(tx)
			return err
		})
		made = made || dropped && err == nil
		c.Attempts = from(c.s, (*state).attempts)
	}
	return made
}

// dropFormer is commit.Part.DropFormer in a transaction.
func (c *capture) dropFormer(tx *bbolt.Tx) (dropped bool, err error) {
	w, err := c.s.writerOfLog(tx)
	if err != nil {
		return false, err
	}
	attempt, err := c.DropFormer(w, c.s.logOptions())
	if err != nil || attempt == nil {
		return false, err
	}
	c.s.locked(func(s *state) { s.attempted(*attempt) })
	return true, w.End()
}

// roomToDrop are the bytes of the pages that a transaction takes which drops a bucket.
const roomToDrop = 256 << 10

// hasRoom reports whether a file that is bounded has room for records, and roomToDrop
// beside them. It estimates how much of their pages bbolt fills, and knows that bbolt
// extends a file by AllocSize more than it needs, or not at all.
func (d *DB) hasRoom(tx *bbolt.Tx, records []record.Packed) bool {
	if d.opts.MaxBytes <= 0 {
		return true
	}
	file, err := os.Stat(d.file.Path())
	if err != nil {
		return true
	}
	need := int64(roomToDrop)
	for _, p := range records {
		need += int64(len(p.Bytes)) * 3 / 2
	}
	free := int64(tx.DB().Stats().FreePageN) * int64(tx.DB().Info().PageSize)
	end := max(file.Size(), int64(d.opts.MaxBytes-tx.DB().AllocSize))
	return need <= free+end-tx.Size()
}
