package bolt

import (
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
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
		indexes:   &indexes.Set{Stored: map[string]index.Index{}, Volatile: cache.Indexers{}},
		inMemory:  map[string]*indexes.Memory{},
		indexErrs: map[string]error{},
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
	s.checkpoint = m.Checkpoint()
	s.count.opened(m)
	if m.Complete {
		s.move(phaseReady, nil, phaseEmpty)
	} else {
		s.move(phaseLoading, nil, phaseEmpty)
	}
	s.changelog.Opened(m)
}

// listBegun reports whether the list is loaded: there is nothing to compare it with.
func (s *state) listBegun(r *relist) (isLoaded bool) {
	isLoaded = s.beginLoad()
	s.relist = r
	s.changelog.ListBegun(isLoaded)
	return isLoaded
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
				s.appliedEntry(e, true)
			}
		}
		if r := s.loading.listed(); r != nil {
			s.count.listed(r, s.overlay.View())
		}
	}
	s.departed.Joined(l.gone, l.dropped)
	for i, e := range entries {
		// What is applied beside a first list is not logged.
		if s.phase == phaseReady || s.phase == phaseEmpty {
			s.changelog.AppliedEntry(e, b)
		}
		s.appliedEntry(e, existed[i])
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
		s.setCheckpoint(b.Checkpoint())
	case b.Reason != "":
		s.setCheckpoint(b.Checkpoint())
	}
	if len(entries) > 0 || b.Loaded {
		s.move(phaseReady, nil, phaseEmpty)
		s.progress.changed()
	}
}

func (s *state) appliedEntry(e *overlay.Entry, existed bool) {
	if e.Head == nil && !existed && (e.Order == 0 || s.changelog.Unlogged) {
		return // nothing was deleted, and nobody is told
	}
	s.cached.applied(e)
	s.indexing.applied(e)
	s.count.applied(e, existed)
	e.Departing = e.Departing && existed
	old, _ := s.overlay.Get(e.Key)
	s.departed.Applied(e, old)
	s.overlay.Set(e)
}

// invalidated notes that the content is not that of a resource version any more.
func (s *state) invalidated(b store.Batch) {
	s.setCheckpoint(b.Checkpoint())
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
		share: share, over: over, packer: s.packer.Load(), checkpoint: s.checkpoint, loading: s.phase == phaseLoading || s.phase == phaseEmpty, applied: s.latest,
		losses: s.losses, turns: s.turns, stored: -1, told: s.departed.Told, settled: s.departed.Settled, gone: s.departed.Gone,
		Capture: s.changelog.Captured(),
	}, (s.dirty || s.changelog.HasMoreThan(share)) && s.cause == nil
}

// committed takes over the outcome of a commit. What has changed since stays to be
// written. It reports whether departed objects were dropped for the first time.
func (s *state) committed(c capture, err error) (overflows bool) {
	if err == nil && c.stored >= 0 && s.turns == c.turns {
		s.overlay.Committed(c.over)
		overflows = s.departed.Committed(len(c.gone), c.departed, c.dropped)
		s.changelog.Committed(c.Capture, c.log, c.checkpoint.RV, c.share)
		s.count.committed(c, s.overlay.Len() == 0 && !s.isLoading())
		s.written = c.applied
	}
	s.progress.committed(err)
	return overflows
}

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

// Lost forgets everything that the file had, or may have had.
func (s *state) lost(cause error) {
	s.move(phaseLost, cause, allPhases...)
	s.losses++
	s.turns++
	s.checkpoint = store.Batch{Reason: cause.Error()}.Checkpoint()
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
