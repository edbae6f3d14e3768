package bolt

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/commit"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// state is what an open scope has in memory. It has a part for each feature, in the file
// of the feature. Each method in this file is an event: it calls the parts that the event
// concerns, and no other function does. So this file is the table of features and events.
//
// scopeStore.mu protects a state. Its methods do not wait, read no file and call no user
// code.
type state struct {
	shared *shared
	standing
	checkpoint store.Checkpoint
	losses     uint64 // how often the stored content was lost
	// turns counts how often the content has become another one. The outcome of a commit
	// says nothing of the content after a turn.
	turns uint64
	count
	overlay   overlay.Map
	changelog changelog.State
	departed  graveyard.State
	packing
	indexing
	cached
	loading
	progress
}

func (s *state) init(with *shared, opts store.Options) {
	s.shared = with
	s.overlay = overlay.NewMap(&with.pending)
	s.changelog.Sum, s.changelog.Unlogged = &with.logs, opts.History.Bytes < 0
	s.indexing = indexing{
		indexes:  &indexes.Set{Stored: map[string]index.Index{}, Volatile: cache.Indexers{}},
		inMemory: map[string]*indexes.Memory{},
	}
	s.progress.attempt, s.lostSignal, s.progress.shared = make(chan struct{}), make(chan struct{}, 1), with
}

// part is the state of a feature that holds something of the stored content.
type part interface {
	// Lost forgets it, because the content is lost. It is called again if the content is
	// lost again, and does not depend on the order of the parts.
	Lost(cause error)
}

// parts returns all parts. Whoever waits is told last.
func (s *state) parts() []part {
	return []part{&s.count, &s.overlay, &s.changelog, &s.departed, &s.packing, &s.indexing, &s.cached, &s.loading, &s.progress}
}

// opened takes over the stored content.
func (s *state) opened(m *record.Manifest) {
	s.departed.Opened(m.Log)
	s.checkpoint = m.Checkpoint()
	s.count.opened(m)
	if m.Complete {
		s.move(phaseReady, nil, phaseEmpty)
	} else {
		s.move(phaseLoading, nil, phaseEmpty)
	}
	s.changelog.Opened(m)
}

// openedUseless takes over the log of stored content that cannot be used.
func (s *state) openedUseless(l record.LogState) { s.departed.Opened(l) }

// earlier returns what the scope had reached before its file was lost, "" if it was not.
func (s *state) earlier() string { return s.changelog.Earlier() }

// follows takes over what a store that was opened before had reached before its file was
// lost, "" if it was not: that may not be in the file.
func (s *state) follows(earlier string) { s.changelog.Follows(earlier) }

// openedNone notes that nothing that is stored can be read.
func (s *state) openedNone() { s.packing.Lost(nil) }

// begins takes over the manifest of an empty content that is about to be written.
func (s *state) begins(m *record.Manifest) { s.checkpoint = m.Checkpoint() }

// begun takes over the manifest of an empty content that was written.
func (s *state) begun(m *record.Manifest) {
	s.turns++
	s.changelog.Begun(m)
}

// begunInMemory notes that an empty content could not be written. compares reports
// whether the file has a former content for it. The next commit drops the old bucket.
func (s *state) begunInMemory(compares bool) {
	s.departed.Compares = compares
	s.changelog.BegunInMemory()
	s.progress.changed()
}

// formerKept notes whether there is a former content to compare the next list with.
func (s *state) formerKept(is bool) { s.departed.Compares = is }

// listBegun reports whether the list is loaded: there is nothing to compare it with.
func (s *state) listBegun(r *relist) (isLoaded bool) {
	isLoaded = s.beginLoad()
	s.relist = r
	s.changelog.ListBegun(isLoaded)
	return isLoaded
}

// partLoaded notes that a part of a list was written, after which the records in the file
// have so many bytes. It returns the error of a list that is lost.
func (s *state) partLoaded(r *relist, entries []*overlay.Entry, bytes int64) error {
	if r.lost != nil {
		return r.lost
	}
	for _, e := range entries {
		s.indexing.applied(e)
	}
	s.storedBytes = bytes
	return nil
}

// listEnded reports whether the list was being loaded and is not whole.
func (s *state) listEnded() (isBroken bool) {
	s.relist = nil
	return s.isLoading()
}

// listBroken drops what was loaded of a list that has ended unfinished, and what was
// applied beside it.
func (s *state) listBroken() {
	s.turns++
	s.endLoad()
	s.count.forget()
	s.overlay.Forget()
	s.indexing.forget()
	s.objects.Forget()
}

// applied makes a batch visible. existed says of each entry whether its key had an
// object; it may be wrong if known is false.
func (s *state) applied(b store.Batch, entries []*overlay.Entry, l loadedList, existed []bool, known bool) {
	s.miscounted = s.miscounted || !known
	if b.Loaded {
		// What was applied beside the list is newer.
		beside := s.overlay.View()
		beside.Scan(func(e *overlay.Entry) bool { s.indexing.applied(e); return true })
		for _, e := range l.left {
			if !beside.Has(e.Key) {
				s.appliedEntry(e, true, e.InFile)
			}
		}
		if r := s.loading.listed(); r != nil {
			s.count.listed(&r.Listed, s.overlay.View())
		}
	}
	s.departed.Joined(l.gone, l.dropped)
	for i, e := range entries {
		// What is applied beside a first list is not logged.
		if s.phase == phaseReady || s.phase == phaseEmpty {
			s.changelog.AppliedEntry(e, b)
		}
		s.appliedEntry(e, existed[i], existed[i])
	}
	s.changelog.Applied(b, s.checkpoint.RV)
	if b.Loaded {
		s.turns++
		s.move(phaseReady, nil, allPhases...)
	}
	switch {
	case s.phase == phaseLoading: // what is stored is not complete
	case b.RV != "":
		s.move(phaseReady, nil, phaseEmpty)
		s.setCheckpoint(b.Checkpoint(s.checkpoint))
	case b.Reason != "":
		s.setCheckpoint(b.Checkpoint(s.checkpoint))
	}
	if len(entries) > 0 || b.Loaded {
		s.move(phaseReady, nil, phaseEmpty)
		s.progress.changed()
	}
}

// appliedEntry makes an entry visible. existed says whether its key had an object, and
// stored whether the file has one, as far as nothing waits.
func (s *state) appliedEntry(e *overlay.Entry, existed, stored bool) {
	if e.Head == nil && !existed && (e.Order == 0 || s.changelog.Unlogged) {
		return // nothing was deleted, and nobody is told
	}
	s.cached.applied(e)
	s.indexing.applied(e)
	s.count.applied(e, existed)
	e.Departing = e.Departing && existed
	old, _ := s.overlay.Get(e.Key)
	s.departed.Applied(e, old)
	s.changelog.Replaces(e, old, stored)
	e.Applied = true
	s.overlay.Set(e)
}

// indexesBuilt takes over a set of indexes, and the entries of those in memory, unless
// they are of lost content: then it returns the cause.
func (s *state) indexesBuilt(set *indexes.Set, built map[string]*indexes.Memory) error {
	if s.cause != nil {
		return s.cause
	}
	s.indexes = set
	maps.Copy(s.inMemory, built)
	return nil
}

// indexesDamaged gives up all indexes in memory.
func (s *state) indexesDamaged() {
	s.indexes = &indexes.Set{Stored: s.indexes.Stored, Volatile: cache.Indexers{}}
	clear(s.inMemory)
}

// indexesNotStored takes over that indexes are kept in memory. The next commit drops old
// ones from the file.
func (s *state) indexesNotStored(set *indexes.Set, built map[string]*indexes.Memory, old []string) {
	s.indexes, s.oldIndexes = set, old
	maps.Copy(s.inMemory, built)
	s.progress.changed()
}

func (s *state) oldIndexesDropped() { s.oldIndexes = nil }

// settled notes that handlers have received all departed objects up to a number. It
// reports whether that has to be written.
func (s *state) settled(number uint64) (isNew bool) {
	if isNew = s.departed.Settle(number); isNew {
		s.progress.changed()
	}
	return isNew
}

// invalidated notes that the content is not that of a resource version any more.
func (s *state) invalidated(b store.Batch) {
	s.setCheckpoint(b.Checkpoint(s.checkpoint))
	s.changelog.Applied(b, s.checkpoint.RV)
}

func (s *state) setCheckpoint(c store.Checkpoint) {
	s.checkpoint = c
	s.progress.changed()
}

// captured returns what the next commit writes, and whether it has to: the state has
// changed, or the log is to be trimmed to its share.
func (s *state) captured(share int64) (c capture, due bool) {
	over := overlay.NewView()
	if !s.isLoading() { // what is applied beside a first list waits for its end
		over = s.overlay.View()
	}
	return capture{
		applied: s.latest, losses: s.losses, turns: s.turns, share: share, Part: commit.Part{
			Overlay: over, Packer: s.packer.Load(), Checkpoint: s.checkpoint, Loading: s.phase == phaseLoading || s.phase == phaseEmpty,
			Told: s.departed.Told, Settled: s.departed.Settled, Gone: s.departed.Gone, Capture: s.changelog.Captured(),
		},
	}, (s.dirty || s.changelog.HasMoreThan(share)) && s.cause == nil
}

// attempted notes a commit before its outcome is known: if it is not, the file is opened
// again before committed.
func (s *state) attempted(a changelog.Attempt) { s.changelog.Attempted(a) }

// attemptsVoid notes that what commits of unknown outcome have written has to be dropped.
func (s *state) attemptsVoid() { s.changelog.Attempts = nil }

// mayHaveWritten reports whether the log in the file ends with a commit of unknown
// outcome.
func (s *state) mayHaveWritten(m *record.Manifest) bool { return s.changelog.MayHaveWritten(m.Log) }

// committed takes over the outcome of a commit. What has changed since stays to be
// written. It reports whether departed objects were dropped for the first time.
func (s *state) committed(c capture, err error) (overflows bool) {
	if err == nil && c.Written && s.turns == c.turns {
		s.overlay.Committed(c.Overlay)
		overflows = s.departed.Committed(len(c.Gone), c.Departed, c.Dropped)
		s.changelog.Committed(c.Capture, c.Log, c.Checkpoint.RV, c.share)
		s.count.committed(c, s.overlay.Len() == 0 && !s.isLoading())
		s.written, s.lostErr = c.applied, nil
	}
	s.progress.committed(err)
	return overflows
}

// leaveWritten takes out of the next commit what the file has already. It reports whether
// there was any.
func (s *state) leaveWritten() bool { return s.overlay.LeaveWritten() }

// passedOver is called instead of committed if the scope was not written. It ends the
// wait for an attempt of a lost scope, because no attempt will follow.
func (s *state) passedOver() {
	if s.phase == phaseLost || s.phase == phaseMending {
		s.progress.endAttempt()
	}
}

// trimmed takes over the log after a commit that has only trimmed it.
func (s *state) trimmed(log record.LogState) {
	if log.Last == s.changelog.Log.Last { // else it was lost since
		s.changelog.SetLog(log, s.changelog.StoredRV)
	}
}

// lost forgets everything that the file had, or may have had.
func (s *state) lost(cause error) {
	s.move(phaseLost, cause, allPhases...)
	s.losses++
	s.turns++
	s.checkpoint = store.Batch{Reason: cause.Error()}.Checkpoint(store.Checkpoint{})
	for _, p := range s.parts() {
		p.Lost(cause)
	}
}

// wiping makes reads return store.ErrWiped until the outcome of a wipe is known.
func (s *state) wiping() {
	s.move(phaseHidden, errHidden, phaseEmpty, phaseLoading, phaseReady)
}

// notWiped ends wiping, unless the content was lost before or since.
func (s *state) notWiped() {
	s.move(s.before, nil, phaseHidden)
	if s.dirty { // the committer may have skipped the scope meanwhile
		s.shared.tell(true)
	}
}

// outdated ends the reads of a closed store before its scope begins again in another one.
func (s *state) outdated() {
	s.move(phaseLost, store.ErrClosed, allPhases...)
	s.replaced()
}

// replaced forgets what was not written, because the scope was closed and is opened
// again.
func (s *state) replaced() {
	s.turns++
	s.overlay.Forget()
	s.changelog.SetLog(record.LogState{}, "")
	s.objects.Forget()
	s.progress.replaced()
}

// isOutdated reports whether outdated was called.
func (s *state) isOutdated() bool { return s.phase == phaseLost && errors.Is(s.cause, store.ErrClosed) }

// closed leaves the budget of decoded objects to other scopes.
func (s *state) closed() { s.objects.Forget() }

func (s *state) countLosses() uint64 { return s.losses }

func (s *state) logBytes() int64 { return s.changelog.Log.Bytes }

// attempts returns the commits that may be in the file.
func (s *state) attempts() []changelog.Attempt { return slices.Clone(s.changelog.Attempts) }

// dropLog takes the log out of the sum of the file's, because the scope is not used.
func (s *state) dropLog() { s.changelog.SetLog(record.LogState{}, "") }
