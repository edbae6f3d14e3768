package tap

import (
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
)

// answer counts the marked objects of one answer.
type answer struct {
	number uint64
	stream bool
	page   string // the continue token of its request
	closed bool
	sent   uint64 // objects
	taken  uint64
	// ended says that a watch has no marks behind the objects that were sent.
	ended bool
	// encoded contains the objects of an answer that were sent and not taken yet, nil for
	// those that are asSent. kept is the number of their bytes.
	encoded [][]byte
	kept    int
}

// point is a place in an answer that has a resource version: the end of a list, or a
// bookmark. Who takes objects must have taken those before it when it is reached.
type point struct {
	answer *answer
	sent   uint64
	rv     string
}

// maxKept bounds the bytes of a watch that a Tap keeps: who takes its objects is never so
// far behind, but a ListerWatcher may omit all of them. A list is in memory anyway, and
// is taken, or forgotten with the next request.
const maxKept = 64 << 20

// begin begins an answer. What precedes a watch was taken, or will not be: watches that
// have ended, and lists. So will a list of which nothing was taken when another one
// begins: client-go's pager begins again when its token has expired. So will a page of
// which nothing was taken when it is asked for again: it could not be decoded.
func (t *Tap) begin(isStream bool, page string) *answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	forget := func(a *answer) bool { return a.closed || isStream && !a.stream }
	isDropped := func(a *answer) bool {
		return !isStream && !a.stream && a.taken == 0 && (page == "" || page == a.page)
	}
	maps.DeleteFunc(t.answers, func(_ uint64, a *answer) bool { return forget(a) })
	t.points = slices.DeleteFunc(t.points, func(p point) bool { return forget(p.answer) || isDropped(p.answer) })
	t.last++
	a := &answer{number: t.last, stream: isStream, page: page}
	t.answers[a.number] = a
	return a
}

// drop forgets an answer of which nothing was marked.
func (t *Tap) drop(a *answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.answers, a.number)
}

func (t *Tap) addPoint(a *answer, rv string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points = append(t.points, point{a, a.sent, rv})
}

func (t *Tap) close(a *answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.closed = true
}

// Begin says that a list begins, from its first request, or has failed: what was sent
// before is not taken any more.
func (t *Tap) Begin() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked()
}

// forgetLocked forgets what was sent and not taken.
func (t *Tap) forgetLocked() {
	for _, a := range t.answers { // a body that is read on has it, too
		a.encoded, a.kept = nil, 0
	}
	clear(t.answers)
	t.points = nil
}

// decline ends the tap with an answer that cannot be tapped any further.
func (t *Tap) decline(a *answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.declineLocked(a)
}

func (t *Tap) declineLocked(a *answer) {
	t.move(declined, untapped, tapped)
	a.ended = true
}

// hasOmitted reports whether an object was omitted that precedes one without a mark: what
// a watch sends before that was taken.
func (t *Tap) hasOmitted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasOmittedLocked()
}

func (t *Tap) hasOmittedLocked() bool {
	if t.state.Load() != declined {
		return false
	}
	for _, a := range t.answers {
		if a.ended && a.taken < a.sent {
			return true
		}
	}
	return false
}

// Reached says that all objects up to the end of the list, or the bookmark, with this
// resource version were taken. It returns ErrChanged if one was not.
func (t *Tap) Reached(rv string) error {
	if t == nil || t.state.Load() == changed {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasOmittedLocked() {
		return t.refuseLocked()
	}
	isMissed := func(p point) bool { return p.answer.taken < p.sent }
	// A page that was asked for beside a streamed list, and not used, is not the list.
	isUsed := func(p point) bool { return !p.answer.stream && p.answer.taken > 0 }
	var at *point
	for i := range t.points {
		if p := &t.points[i]; p.rv == rv && (at == nil || isMissed(*at) || isUsed(*p)) {
			at = p
		}
	}
	if at == nil {
		return nil
	}
	// A ListerWatcher may merge watches: those beside it may be behind.
	last := *at
	isReached := func(p point) bool {
		return p.answer.stream == last.answer.stream && (!p.answer.stream || p.answer == last.answer && p.sent <= last.sent)
	}
	if last.answer.stream { // a page that was asked for beside it is not used
		maps.DeleteFunc(t.answers, func(_ uint64, a *answer) bool { return !a.stream && a.taken == 0 })
	}
	missed := slices.ContainsFunc(t.points, func(p point) bool { return isReached(p) && isMissed(p) })
	t.points = slices.DeleteFunc(t.points, isReached)
	if missed {
		return t.refuseLocked()
	}
	return nil
}

// next returns the number of the next object of an answer, and keeps the encoding of the
// object until the object is taken. data is nil for an object without an encoding.
func (t *Tap) next(a *answer, data []byte) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.sent++
	a.encoded = append(a.encoded, data)
	if a.kept += len(data); a.stream && a.kept > maxKept {
		t.declineLocked(a)
		a.encoded, a.kept = nil, 0
	}
	return a.sent
}

// isNext reports whether an object is the next one of its answer. It returns what was
// kept of the object.
func (t *Tap) isNext(mark string) (kept []byte, is bool) {
	var n [numbers / 2]byte
	if _, err := hex.Decode(n[:], []byte(mark)); err != nil {
		return nil, false
	}
	answer, object := binary.BigEndian.Uint64(n[:]), binary.BigEndian.Uint64(n[8:])
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.answers[answer]
	if a == nil || object != a.taken+1 {
		return nil, false
	}
	a.taken++
	if len(a.encoded) > 0 {
		kept, a.encoded[0] = a.encoded[0], nil
		a.encoded = a.encoded[1:]
		a.kept -= len(kept)
	}
	if len(a.encoded) == 0 {
		a.encoded = nil
	}
	return kept, true
}
