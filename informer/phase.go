package informer

import "slices"

// phase is where an Informer is in its life. Only moveLocked changes it.
//
//	from                 to          when
//	created              opening     Run is called
//	opening              loading     the store is opened
//	loading              catchingUp  the store holds a whole list: at the start or later
//	loading, catchingUp  current     the server's state at the start is stored
//	any but ended        ended       the store is released
//
// A list that a current informer applies changes no phase. HasSynced is a latch beside
// the phase: see Options.SyncWhen.
type phase uint8

const (
	created phase = iota
	opening
	loading    // handlers wait
	catchingUp // handlers receive the stored objects
	current
	ended
)

// moveLocked changes the phase if it is one of from.
func (inf *Informer) moveLocked(to phase, from ...phase) {
	if !slices.Contains(from, inf.phase) {
		return
	}
	if to == ended {
		inf.before = inf.phase
	}
	inf.phase = to
}

// wasLocked returns the phase, or the last one before the end.
func (inf *Informer) wasLocked() phase {
	if inf.phase == ended {
		return inf.before
	}
	return inf.phase
}

// isOpenedLocked reports whether Run has opened the store, even if the informer has ended
// since.
func (inf *Informer) isOpenedLocked() bool { return inf.wasLocked() >= loading }

// isCaughtUpLocked reports whether the store has reached the server's state at the start.
func (inf *Informer) isCaughtUpLocked() bool { return inf.wasLocked() == current }
