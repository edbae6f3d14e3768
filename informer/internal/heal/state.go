package heal

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/informctl/informctl/store"
)

// State is how far the store of an informer has come, and what is missing in it. Its
// methods may be called by any goroutine; those that block say so.
type State struct {
	urge  func() (end func())
	lists atomic.Uint64 // completely applied lists; changed under mu

	// mu protects the fields below. The lock of delivery's Hub may be held when it is
	// taken, and not the other way around: with mu held, only the functions of Opened are
	// called.
	mu     sync.Mutex
	cond   *sync.Cond      // broadcast when a read or a wait may go on
	ctx    context.Context // of Open
	relist func(reason string)
	life   Life
	// reached is the resource version of the last list, event or bookmark that was
	// applied; "" if it says nothing of the state.
	reached   string
	hold      hold
	listing   listing
	repair    repair
	unindexed map[string]error // by key: why an index function failed at the start
	// ahead has objects that the program has written, through the indexer, at resource
	// versions that the watch has not reached, and that it has not sent since: the
	// resource versions, by key. Until the watch has passed them, no resource version is
	// stored: the watch of the next process would bring nothing of an object that is not
	// selected, and nobody would know that the server has not sent it.
	ahead map[string]string
}

// New returns the State of an informer that has not started. urge keeps slow handlers
// from delaying changes until the function that it returns is called.
func New(urge func() (end func())) *State {
	s := &State{
		urge: urge, hold: hold{rejected: map[string]error{}, written: sets.New[string]()},
		unindexed: map[string]error{}, ahead: map[string]string{},
	}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// listing tells the changes of a list from those of the watch, whose resource versions
// are places. A list's changes come in key order, so a client that has the newest of them
// may lack others.
type listing struct {
	runs bool   // a list is compared or applied, or one has not ended
	upTo string // the resource version of the last list of this process
}

// IsListed reports whether the resource version of a change is no place: the change may
// come from a list, or something before it could not be stored. It may be true for other
// changes, too.
func (s *State) IsListed(rv string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing.runs || !s.hold.isEmpty() {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(rv, s.listing.upTo)
	return s.listing.upTo != "" && (err != nil || order <= 0)
}

// Reject freezes the stored resource version until the object with that key can be stored
// or is deleted. Without a key, a new list is needed.
func (s *State) Reject(ctx context.Context, key string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold.reject(ctx, key, cause)
}

// Accept ends the rejection of objects.
func (s *State) Accept(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.hold.rejected, key)
	}
}

// MayBeRejected reports whether the newest state of an object could not be stored, as far
// as that is known.
func (s *State) MayBeRejected(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold.rejected[key] != nil || s.hold.missing != nil
}

// Written notes an object that the program writes through the indexer, at a resource
// version; "" for a deletion. It returns the reason for a checkpoint without a resource
// version: "" if the informer does not run. It is called before the object is stored.
func (s *State) Written(key, rv string) (reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.life.runs() {
		return ""
	}
	if order, err := resourceversion.CompareResourceVersion(rv, s.reached); err == nil && order > 0 {
		s.ahead[key] = store.Higher(s.ahead[key], rv)
	} else {
		s.hold.written.Insert(key)
	}
	if s.life.phase == Loading {
		return WrittenUnlisted
	}
	return writtenByProgram
}

// Holds reports whether a resource version that the program gives, as with Replace, is
// not to be stored: while the informer runs, none is beyond what the watch has reached,
// and none while something is held back.
func (s *State) Holds(rv string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.life.runs() {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(rv, s.reached)
	return err != nil || order > 0 || !s.hold.isEmpty() || len(s.ahead) > 0
}

// Pass notes that the watch has come to the resource version of a batch, which is about
// to be stored. If it has passed an object that the program has written, and has not
// brought it, no later watch brings it either: the informer does not select it, or the
// server has never had it.
func (s *State) Pass(batch store.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, rv := range s.ahead {
		order, err := resourceversion.CompareResourceVersion(rv, batch.RV)
		if err != nil || order > 0 || slices.ContainsFunc(batch.Changes, func(c store.Change) bool { return c.Key == key }) {
			continue
		}
		delete(s.ahead, key)
		s.hold.written.Insert(key)
	}
}

// IsAhead reports whether the program has written an object at a resource version that
// the watch had not reached, and no change of it has been stored since.
func (s *State) IsAhead(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead[key] != ""
}

// Unindexed notes a stored object for which an index function has failed.
func (s *State) Unindexed(bad *store.ObjectError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unindexed[bad.Key] = bad
}

// Store notes which objects of a batch can and cannot be stored. It reports whether the
// stored resource version is frozen.
func (s *State) Store(ctx context.Context, batch store.Batch, rejected map[string]error) (frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range batch.Changes {
		delete(s.hold.rejected, c.Key)
		delete(s.unindexed, c.Key)
		s.hold.written.Delete(c.Key)
		delete(s.ahead, c.Key)
	}
	for key, cause := range rejected {
		s.hold.reject(ctx, key, cause)
	}
	if batch.Loaded {
		// The list contains everything that was lost before.
		s.hold.missing = nil
	}
	return !s.hold.isEmpty() || len(s.ahead) > 0
}

// Applied notes that a batch was stored. rv is the resource version that is reached with
// it, which is not stored while the stored one is frozen; "" if it is unknown.
func (s *State) Applied(rv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rv != "" && s.hold.isOrdered() {
		s.reached = rv
	}
	s.cond.Broadcast()
}

// Foreign returns why the server may be another cluster, or "".
func (s *State) Foreign() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold.foreign
}

// SetForeign notes why the server may be another cluster, "" if it is the right one. It
// returns what Foreign returned before.
func (s *State) SetForeign(why string) (was string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, s.hold.foreign = s.hold.foreign, why
	if was != "" && why == "" {
		s.reached = "" // of the other cluster
	}
	return was
}

// List is a list that runs. If it is not applied, a watch may continue, and what could
// not be stored before is still not stored.
type List struct {
	s        *State
	listing  listing
	rejected map[string]error
	written  sets.Set[string]
	ahead    map[string]string
	missing  error
	stored   bool // in part at least
}

// Rewind forgets how far the informer has come: that was in another history.
func (s *State) Rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = ""
}

// Begin notes that a list begins. Its objects that cannot be stored are rejected again,
// and what the program writes beside it is not the server's.
func (s *State) Begin() *List {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &List{s: s, listing: s.listing, rejected: s.hold.rejected, written: s.hold.written, ahead: s.ahead, missing: s.hold.missing}
	s.hold.rejected, s.hold.written, s.hold.missing = map[string]error{}, sets.New[string](), nil
	s.ahead = map[string]string{}
	s.listing.runs = true
	return l
}

// Stored notes that a part of the list was stored. One goroutine uses a List.
func (l *List) Stored(b store.Batch) {
	l.stored = true
	for _, c := range b.Changes {
		delete(l.rejected, c.Key)
		l.written.Delete(c.Key)
		delete(l.ahead, c.Key)
	}
	if b.Loaded { // handlers are told everything
		l.written.Clear()
		clear(l.ahead)
	}
}

// Untold returns the keys, in order, that the program has written before the list, and
// that the list has found as they were written: no handler has been told.
// It may have found others so that were written while it ran.
func (l *List) Untold() []string {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return sets.List(l.written.Union(sets.KeySet(l.ahead)).Union(sets.KeySet(l.s.ahead)))
}

// WrittenBeside reports whether the program has written objects while the list ran. A
// store may have kept them instead of what was listed.
func (l *List) WrittenBeside() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return len(l.s.hold.written) > 0
}

// Told notes that handlers are told an object that the program has written.
func (l *List) Told(key string) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	delete(l.s.ahead, key)
}

// Break notes that the list has ended before it was whole.
func (l *List) Break() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.stored {
		s.listing = l.listing
	}
	maps.Copy(s.hold.rejected, l.rejected)
	maps.Copy(s.hold.written, l.written)
	maps.Copy(s.ahead, l.ahead)
	if s.hold.missing == nil {
		s.hold.missing = l.missing
	}
}

// Listed notes that a whole list was stored. It returns why the stored resource version
// has to be taken back, or "".
func (s *State) Listed(rv string) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists.Add(1)
	s.reached = rv
	// The list compared every record and rewrote the damaged ones.
	s.hold.missing = nil
	s.listing = listing{upTo: rv}
	s.life.move(CatchingUp, Loading)
	s.cond.Broadcast()
	if why = s.hold.why(); why == "" && len(s.ahead) > 0 {
		why = writtenByProgram
	}
	return why
}

// Report is what a State knows at one moment.
type Report struct {
	Life    Life
	Missing error // why changes are missing
	// Rejected contains, in no order, the keys of objects that cannot be stored, and of
	// stored ones that are not in an index.
	Rejected []string
}

// Report returns what the State knows.
func (s *State) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Report{
		Life: s.life, Missing: s.hold.missing,
		Rejected: make([]string, 0, len(s.hold.rejected)+len(s.unindexed)),
	}
	for key := range s.hold.rejected {
		r.Rejected = append(r.Rejected, key)
	}
	for key := range s.unindexed {
		if s.hold.rejected[key] == nil {
			r.Rejected = append(r.Rejected, key)
		}
	}
	return r
}
