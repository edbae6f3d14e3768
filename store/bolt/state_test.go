package bolt

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/listing"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

var sequences = flag.Int("sequences", 5000, "random sequences of events that TestState plays")

// machine plays events on a state without a file, and knows what readers must see.
type machine struct {
	*testing.T
	s    *state
	rng  *rand.Rand
	play []string // the events so far
	n    int      // versions that were made

	file     map[string]int // objects in the file, with their versions
	complete bool           // file is a whole list
	visible  bool           // readers see the file
	view     map[string]int // what readers must see while the scope is well
	beside   map[string]int // what was applied beside a first list; 0: deleted
	loaded   map[string]int // of the list that is being loaded
	captured *capture
	snapshot map[string]int // the view when captured was made
	departed uint64         // highest number that was seen
}

func newMachine(t *testing.T, rng *rand.Rand) *machine {
	s := &state{}
	s.init(&shared{logs: changelog.Sum{Max: math.MaxInt64, Exceeded: func() {}}, changed: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}, store.Options{})
	var err error
	if s.objects, err = objcache.New(store.Options{DecodedBytes: 1}); err != nil {
		t.Fatal(err)
	}
	packer, err := pack.New(pack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.packer.Store(packer)
	return &machine{T: t, s: s, rng: rng, file: map[string]int{}, view: map[string]int{}, visible: true}
}

// merged is what a reader finds: the file, if it may be seen, under the overlay.
func (m *machine) merged() map[string]int {
	out := map[string]int{}
	if m.visible {
		maps.Copy(out, m.file)
	}
	m.s.overlay.View().Scan(func(e *overlay.Entry) bool {
		if out[e.Key] = version(e); e.Head == nil {
			delete(out, e.Key)
		}
		return true
	})
	return out
}

func version(e *overlay.Entry) (n int) {
	if e.Head != nil {
		_, _ = fmt.Sscan(e.Head.RV, &n)
	}
	return n
}

func (m *machine) entry(key string, deleted bool) *overlay.Entry {
	m.n++
	e := &overlay.Entry{Key: key, Name: key, Indexes: m.s.indexes}
	if !deleted {
		e.Head = &record.Header{RV: fmt.Sprint(m.n)}
	}
	return e
}

// events are the events by name. Each returns false if it cannot happen now.
var events = map[string]func(*machine) bool{
	"put":           func(m *machine) bool { return m.apply(false, false, "rv") },
	"put, no rv":    func(m *machine) bool { return m.apply(false, false, "") },
	"delete":        func(m *machine) bool { return m.apply(true, false, "rv") },
	"depart":        func(m *machine) bool { return m.apply(true, true, "rv") },
	"list begins":   (*machine).listBegins,
	"list breaks":   (*machine).listBreaks,
	"list whole":    (*machine).listWhole,
	"capture":       (*machine).capture,
	"written":       func(m *machine) bool { return m.commit(true, false, nil) },
	"not written":   func(m *machine) bool { return m.commit(false, false, errors.New("full")) },
	"unknown":       func(m *machine) bool { return m.commit(true, false, errors.New("unknown")) },
	"written, lost": func(m *machine) bool { return m.commit(true, true, nil) },
	"lost":          (*machine).lose,
	"wipe begins":   func(m *machine) bool { m.s.wiping(); return true },
	"wipe did not":  func(m *machine) bool { m.s.notWiped(); return true },
}

func (m *machine) apply(deleted, departs bool, rv string) bool {
	if m.s.cause != nil {
		return false // the store refuses it
	}
	e := m.entry(string(rune('a'+m.rng.IntN(3))), deleted)
	e.Departing = departs
	_, existed := m.merged()[e.Key]
	if rv != "" {
		rv = fmt.Sprint(m.n)
	}
	isBeside := m.s.isLoading()
	m.s.applied(store.Batch{RV: rv, Changes: []store.Change{{}}}, []*overlay.Entry{e}, loadedList{}, []bool{existed}, true)
	switch {
	case isBeside && deleted && existed:
		m.beside[e.Key] = 0
	case isBeside && !deleted:
		m.beside[e.Key] = version(e)
	case isBeside:
	case deleted:
		delete(m.view, e.Key)
	default:
		m.view[e.Key] = version(e)
	}
	if departs && existed {
		if m.departed++; e.Departs != m.departed {
			m.fail("departed number %d, want %d", e.Departs, m.departed)
		}
	}
	return true
}

func (m *machine) listBegins() bool {
	if m.s.relist != nil || m.s.phase == phaseHidden {
		return false
	}
	if !m.s.listBegun(&relist{List: &listing.List{}}) {
		return true
	}
	m.visible, m.complete = false, false
	m.file, m.loaded, m.beside = map[string]int{}, map[string]int{}, map[string]int{}
	for _, key := range []string{"a", "b", "c"}[:m.rng.IntN(4)] {
		m.n++
		m.loaded[key] = m.n
		m.s.relist.Listed.Add(key)
	}
	maps.Copy(m.file, m.loaded) // its parts are written while they arrive
	return true
}

func (m *machine) listBreaks() bool {
	if m.s.relist == nil || m.s.phase == phaseHidden {
		return false
	}
	m.s.relist = nil
	if m.s.isLoading() {
		m.s.listBroken()
		m.file, m.view, m.visible = map[string]int{}, map[string]int{}, true
		m.captured = nil
	}
	return true
}

func (m *machine) listWhole() bool {
	if m.s.relist == nil || m.s.relist.lost != nil || m.s.phase == phaseHidden {
		return false
	}
	if !m.s.isLoading() { // what it differs in was applied
		m.n++
		m.s.applied(store.Batch{RV: fmt.Sprint(m.n)}, nil, loadedList{}, nil, true)
		m.s.relist = nil
		return true
	}
	m.n++
	m.s.applied(store.Batch{RV: fmt.Sprint(m.n), Loaded: true}, nil, loadedList{}, nil, true)
	m.s.relist = nil
	m.visible, m.view = true, maps.Clone(m.loaded)
	for key, v := range m.beside {
		if m.view[key] = v; v == 0 {
			delete(m.view, key)
		}
	}
	return true
}

func (m *machine) capture() bool {
	if m.captured != nil {
		return false
	}
	c, due := m.s.captured(math.MaxInt64)
	if !due {
		return false
	}
	m.captured, m.snapshot = &c, maps.Clone(m.view)
	return true
}

// commit ends the commit of what was captured. The content may be lost before the state
// is told.
func (m *machine) commit(written, lost bool, err error) bool {
	c := m.captured
	if c == nil {
		return false
	}
	m.captured = nil
	if written && c.losses == m.s.losses {
		c.Overlay.Scan(func(e *overlay.Entry) bool {
			if m.file[e.Key] = version(e); e.Head == nil {
				delete(m.file, e.Key)
			}
			return true
		})
		c.Written, c.Stored, c.Bytes, c.Log = true, len(m.file), 1, m.s.changelog.Log
		c.Log.Last++
		c.Log.Bytes += 10
		if !c.Loading && m.visible {
			m.complete = true
			if !maps.Equal(m.file, m.snapshot) {
				m.fail("the file has %v at %q, and %v was captured", m.file, c.Checkpoint.RV, m.snapshot)
			}
		}
	}
	if lost {
		m.lose()
	}
	if m.s.committed(*c, err); lost {
		m.nothingIsLeft()
	}
	return true
}

func (m *machine) lose() bool {
	m.s.lost(store.ErrWiped)
	m.file, m.view, m.visible, m.complete = map[string]int{}, map[string]int{}, true, false
	m.nothingIsLeft()
	if m.s.departed.Told != m.s.departed.Last || m.s.departed.Last != m.departed {
		m.fail("numbers begin again at %d of %d", m.s.departed.Last, m.departed)
	}
	return true
}

// nothingIsLeft checks that what was lost is forgotten.
func (m *machine) nothingIsLeft() {
	if s := m.s; s.length != 0 || s.storedBytes != 0 || s.changelog.Log.Last != 0 || s.changelog.StoredRV != "" || s.overlay.Len() != 0 || s.shared.logs.Bytes.Load() != 0 {
		m.fail("%d objects of %d bytes are left, and a log up to %d at %q", s.length, s.storedBytes, s.changelog.Log.Last, s.changelog.StoredRV)
	}
}

func (m *machine) fail(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.play, "; "))
}

// step plays an event and checks what must hold after each.
func (m *machine) step(name string) {
	m.Helper()
	if !events[name](m) {
		return
	}
	m.play = append(m.play, name)
	if m.s.relist != nil && m.s.relist.lost != nil {
		m.s.relist = nil // whoever lists is told
		if m.s.isLoading() {
			m.s.listBroken()
		}
	}
	s := m.s
	if isReady := s.phase == phaseReady; s.isReady.Load() != isReady {
		m.fail("ready is %t in phase %s", !isReady, s.phase)
	}
	if s.dirty != (s.written != s.latest) {
		m.fail("dirty is %t, %d of %d changes are written", s.dirty, s.written, s.latest)
	}
	bytes := 0
	s.overlay.View().Scan(func(e *overlay.Entry) bool { bytes += e.Size(); return true })
	if bytes != s.overlay.Bytes() || int64(bytes) != s.shared.pending.Load() {
		m.fail("%d bytes wait, %d and %d are counted", bytes, s.overlay.Bytes(), s.shared.pending.Load())
	}
	if s.cause != nil || s.isLoading() {
		return
	}
	if got := m.merged(); !maps.Equal(got, m.view) {
		m.fail("readers see %v, want %v", got, m.view)
	}
	if s.length != len(m.view) {
		m.fail("the count is %d, and readers see %v", s.length, m.view)
	}
}

// TestState plays every sequence of some events, and random ones of many.
func TestState(t *testing.T) {
	names := slices.Sorted(maps.Keys(events))
	const short = 4
	played := 0
	sequence := make([]int, short)
	for more := true; more; played++ {
		m := newMachine(t, rand.New(rand.NewPCG(uint64(played), 1)))
		for _, i := range sequence {
			m.step(names[i])
		}
		more = false
		for i := range sequence {
			if sequence[i]++; sequence[i] < len(names) {
				more = true
				break
			}
			sequence[i] = 0
		}
	}
	seed := rand.Uint64()
	t.Logf("%d sequences of %d events; seed %d", played, short, seed)
	for i := range *sequences {
		m := newMachine(t, rand.New(rand.NewPCG(seed, uint64(i))))
		for range 60 {
			m.step(names[m.rng.IntN(len(names))])
		}
	}
}
