package bolt

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/listing"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

var (
	sequences = flag.Int("sequences", 5000, "random sequences of sixty events that TestState plays")
	depth     = flag.Int("depth", wholeDepth, "TestState plays every sequence of up to so many events; fewer with -short or -race")
)

const wholeDepth, shortDepth = 6, 4

// keys are those of the objects. A sequence of few events uses the first two.
var keys = [...]string{"a", "b", "c"}

// held has the version of the object of each key; 0 is none.
type held [len(keys)]int

func (c held) len() (n int) {
	for _, v := range c {
		if v != 0 {
			n++
		}
	}
	return n
}

// change is what happened to a key at the server: a version, or the deletion of all
// before.
type change struct {
	key, n  int
	deleted bool
}

// departure is a deletion that handlers which come later are told.
type departure struct {
	number uint64
	key    string
}

// disk is what the file has of the scope.
type disk struct {
	held
	checkpoint store.Checkpoint
	whole      bool // it is a list, and what was applied since
	log        record.LogState
	departed   []departure // of log, by number
	former     held
}

// machine plays events on a state, with a model of the file and of the server, and knows
// what readers must see.
type machine struct {
	*testing.T
	s    *state
	rng  *rand.Rand // nil: nothing is left to chance
	play []string   // the events so far

	n       int      // the last change of the server, which is its resource version
	history []change // of the server, in order
	server  held

	file     disk
	view     held // what readers must see while the scope is well
	departed []departure
	last     uint64 // departure that was numbered
	// departures up to these were received by all handlers of an earlier process, and of
	// this one
	settled, received uint64

	// short has the last versions of objects that were created and deleted since the file
	// was written.
	short held

	isLost, isHidden bool // readers see nothing

	list     *playedList
	captured *capture
	seen     held        // the view when captured was made
	brief    held        // short when captured was made
	leaving  []departure // departed when captured was made
	settles  uint64      // received when captured was made
	written  bool        // captured was written, or skipped; its outcome was not told
	err      error       // of captured
}

// playedList is a list that goes on.
type playedList struct {
	held        // what it has
	rv     int  // of it
	loaded bool // there is nothing to compare it with
	inFile [len(keys)]bool
	beside [len(keys)]*change // what was applied beside it
}

func newMachine(t *testing.T, rng *rand.Rand) *machine {
	s := newState(t, &shared{
		logs:    changelog.Sum{Max: math.MaxInt64, Exceeded: func() {}},
		changed: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
	})
	packer, err := pack.New(pack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.packer.Store(packer)
	return &machine{T: t, s: s, rng: rng}
}

func newState(t *testing.T, with *shared) *state {
	s := &state{}
	opts := store.Options{DecodedBytes: -1}
	s.init(with, opts)
	s.indexes.Volatile = cache.Indexers{"by": nil}
	s.inMemory["by"] = indexes.NewMemory()
	var err error
	if s.objects, err = objcache.New(opts); err != nil {
		t.Fatal(err)
	}
	return s
}

// clone returns a machine that goes on from where m is. m stays as it is.
func (m *machine) clone() *machine {
	c, was := *m, m.s
	c.history, c.departed = slices.Clip(m.history), slices.Clip(m.departed)
	c.file.departed, c.play = slices.Clip(m.file.departed), slices.Clip(m.play)
	if m.list != nil {
		list := *m.list
		c.list = &list
	}
	if m.captured != nil {
		captured := *m.captured
		c.captured = &captured
	}
	s := newState(m.T, &shared{logs: changelog.Sum{Max: math.MaxInt64, Exceeded: func() {}}, changed: make(chan struct{}, 1), urgent: make(chan struct{}, 1)})
	c.s = s
	s.phase, s.before, s.cause, s.role = was.phase, was.before, was.cause, was.role
	s.isReady.Store(was.isReady.Load())
	s.checkpoint, s.losses, s.turns = was.checkpoint, was.losses, was.turns
	s.count, s.departed = was.count, was.departed
	was.overlay.View().Scan(func(e *overlay.Entry) bool { s.overlay.Set(e); return true })
	s.changelog = was.changelog
	s.changelog.Attempts, s.changelog.Sum = slices.Clip(was.changelog.Attempts), &s.shared.logs
	s.shared.logs.Bytes.Store(was.shared.logs.Bytes.Load())
	s.packer.Store(was.packer.Load())
	s.indexes = was.indexes
	for value := range values {
		for _, key := range was.inMemory["by"].Find(values[value]["by"]) {
			s.inMemory["by"].Add(key, values[value]["by"][0])
		}
	}
	for _, key := range keys {
		if v, ok := was.objects.Peek(key); ok {
			s.objects.Set(key, v)
		}
	}
	if was.relist != nil {
		r := *was.relist
		s.relist = &r
	}
	s.dirty, s.latest, s.written, s.commitErr, s.lostErr = was.dirty, was.latest, was.written, was.commitErr, was.lostErr
	return &c
}

// TestClone fails if clone does not know a field of a state.
func TestClone(t *testing.T) {
	for typ, fields := range map[reflect.Type]string{
		reflect.TypeFor[state]():    "shared standing checkpoint losses turns count overlay changelog departed packing indexing cached loading progress",
		reflect.TypeFor[standing](): "phase before cause role isReady",
		reflect.TypeFor[packing]():  "packer",
		reflect.TypeFor[indexing](): "indexes inMemory oldIndexes",
		reflect.TypeFor[cached]():   "objects hits misses",
		reflect.TypeFor[loading]():  "relist",
		reflect.TypeFor[progress](): "dirty latest written commitErr lostErr attempt lostSignal shared",
		reflect.TypeFor[shared]():   "pending logs changed urgent",
	} {
		var names []string
		for i := range typ.NumField() {
			names = append(names, typ.Field(i).Name)
		}
		if got := strings.Join(names, " "); got != fields {
			t.Errorf("%s has the fields %s", typ, got)
		}
	}
}

// values are those of objects in the index: of even and of odd versions.
var values = [2]map[string][]string{{"by": {"even"}}, {"by": {"odd"}}}

var versions [256]struct {
	head   record.Header
	object metav1.PartialObjectMetadata
}

func init() {
	for n := range versions {
		versions[n].head.RV = strconv.Itoa(n)
		versions[n].object.ResourceVersion = strconv.Itoa(n)
	}
}

// entry returns the entry of a version; 0 is a deletion.
func (m *machine) entry(key, version int) *overlay.Entry {
	e := &overlay.Entry{Key: keys[key], Name: keys[key], Indexes: m.s.indexes}
	if version != 0 {
		e.Head, e.Volatile = &versions[version].head, values[version%2]
	}
	return e
}

func version(e *overlay.Entry) int {
	if e.Head == nil {
		return 0
	}
	n, _ := strconv.Atoi(e.Head.RV)
	return n
}

// over lays entries over what is held.
func over(c held, v overlay.View) held {
	for i, key := range keys {
		if e, ok := v.Get(key); ok {
			c[i] = version(e)
		}
	}
	return c
}

// merged is what a reader finds: the file, unless it has a part of a list, under the
// overlay.
func (m *machine) merged() (c held) {
	if !m.s.isLoading() {
		c = m.file.held
	}
	return over(c, m.s.overlay.View())
}

// event is something that can happen to a scope.
type event struct {
	name string
	// play returns false, and has changed nothing, if the event cannot happen now.
	play func(*machine) bool
	// isRare is set if only the random sequences have the event: it is like another one.
	isRare bool
}

var events = []event{
	{name: "put", play: func(m *machine) bool { return m.change(m.pick(), false, false, true) }},
	{name: "put, no rv", play: func(m *machine) bool { return m.change(m.pick(), false, false, false) }},
	{name: "depart", play: func(m *machine) bool { return m.change(m.there(), true, true, true) }},
	{name: "delete", play: func(m *machine) bool { return m.change(m.pick(), true, false, true) }, isRare: true},
	{name: "depart, no rv", play: func(m *machine) bool { return m.change(m.pick(), true, true, false) }, isRare: true},
	{name: "bookmark", play: (*machine).bookmark},
	{name: "unseen", play: func(m *machine) bool { m.unseen(m.pick()); return true }, isRare: true},
	{name: "invalidated", play: (*machine).invalidate, isRare: true},
	{name: "caught up", play: (*machine).catchUp},
	{name: "told handlers", play: (*machine).settle},
	{name: "list begins", play: (*machine).listBegins},
	{name: "part", play: (*machine).part},
	{name: "list is whole", play: (*machine).listWhole},
	{name: "list breaks", play: (*machine).listBreaks},
	{name: "committed", play: func(m *machine) bool { return m.capture() && m.write(true, nil) && m.told() }},
	{name: "captured", play: (*machine).capture},
	{name: "passed over", play: (*machine).passedOver, isRare: true},
	{name: "written", play: func(m *machine) bool { return m.write(true, nil) }},
	{name: "not written", play: func(m *machine) bool { return m.write(false, errors.New("full")) && m.told() }},
	{name: "unknown", play: func(m *machine) bool { return m.write(true, errors.New("unknown")) && m.told() }},
	{name: "skipped", play: func(m *machine) bool { return m.write(false, nil) && m.told() }},
	{name: "outcome told", play: func(m *machine) bool { return m.told() }},
	{name: "lost", play: (*machine).lose},
	{name: "wipe begins", play: (*machine).wipeBegins},
	{name: "wipe failed", play: (*machine).wipeFailed},
	{name: "wipe done", play: (*machine).wipeDone},
	{name: "opened again", play: func(m *machine) bool { return m.openAgain(m.file.whole) }},
	{name: "opened with another transform", play: (*machine).openOther},
}

// pick returns a key by chance or, without any, the keys by turns.
func (m *machine) pick() int {
	if m.rng == nil {
		return m.n % 2
	}
	return m.rng.IntN(len(keys))
}

// there returns a key that readers see, if there is one.
func (m *machine) there() int {
	if m.rng == nil && m.view[0] == 0 && m.view[1] != 0 {
		return 1
	}
	if m.rng == nil {
		return 0
	}
	return m.rng.IntN(len(keys))
}

func (m *machine) isLoading() bool { return m.list != nil && m.list.loaded && m.s.relist.lost == nil }

// happened notes a change of the server.
func (m *machine) happened(key int, deleted bool) int {
	m.n++
	m.history = append(m.history, change{key: key, n: m.n, deleted: deleted})
	if m.server[key] = m.n; deleted {
		m.server[key] = 0
	}
	return m.server[key]
}

// unseen changes the server alone: the object is created, or deleted.
func (m *machine) unseen(key int) { m.happened(key, m.server[key] != 0) }

// mayAdvance reports whether a change may have a resource version: it is the next one of
// the watch. That of a list that is loaded ignores it.
func (m *machine) mayAdvance() bool {
	return m.isLoading() || m.list == nil && m.view == m.server
}

func (m *machine) change(key int, deleted, departs, hasRV bool) bool {
	if m.s.cause != nil || hasRV && !m.mayAdvance() || m.rng == nil && deleted && m.view[key] == 0 && !m.isLoading() {
		return false // the store refuses it, or nobody does it
	}
	b := store.Batch{Changes: []store.Change{{}}}
	v := m.happened(key, deleted)
	if hasRV {
		b.RV = strconv.Itoa(m.n)
	}
	m.apply(b, departs, change{key: key, n: v})
	return true
}

// apply applies changes. The n of a change is its version, 0 if it is a deletion.
func (m *machine) apply(b store.Batch, departs bool, changes ...change) {
	was, waits := m.merged(), m.s.overlay.View()
	var entries []*overlay.Entry
	var existed []bool
	for _, c := range changes {
		e := m.entry(c.key, c.n)
		if e.Departing = departs && c.n == 0; c.n != 0 {
			e.Object = &versions[c.n].object
		}
		entries, existed = append(entries, e), append(existed, was[c.key] != 0)
	}
	m.s.applied(b, entries, loadedList{}, existed, true)
	for i, c := range changes {
		_, ok := waits.Get(keys[c.key])
		switch {
		case !ok || c.n != 0 || entries[i].Departs != 0 || entries[i].Order == 0:
			m.short[c.key] = 0
		case existed[i]:
			m.short[c.key] = was[c.key]
		}
		switch {
		case !m.isLoading():
			m.view[c.key] = c.n
		case c.n != 0 || existed[i]:
			m.list.beside[c.key] = &changes[i]
		}
		if c.n == 0 && departs && existed[i] {
			if old, ok := waits.Get(keys[c.key]); ok { // one change in the file
				m.forgets(departure{old.Departs, old.Key})
			}
			m.departs(keys[c.key], entries[i].Departs)
		}
	}
}

// forgets expects that a departure is not told, unless it is in the file.
func (m *machine) forgets(d departure) {
	if !slices.Contains(m.file.departed, d) {
		m.departed = slices.DeleteFunc(slices.Clone(m.departed), func(is departure) bool { return is == d })
	}
}

// departs expects the next number of a departure.
func (m *machine) departs(key string, number uint64) {
	if m.last++; number != m.last {
		m.fail("departed number %d, want %d", number, m.last)
	}
	m.departed = append(m.departed, departure{number, key})
}

func (m *machine) bookmark() bool {
	if m.s.cause != nil || !m.mayAdvance() {
		return false
	}
	m.s.applied(store.Batch{RV: strconv.Itoa(m.n)}, nil, loadedList{}, nil, true)
	return true
}

func (m *machine) invalidate() bool {
	if m.s.cause != nil {
		return false
	}
	m.s.invalidated(store.Batch{Reason: "asked for", Rewound: m.n%2 == 0})
	return true
}

// catchUp applies what the server has changed while no process ran.
func (m *machine) catchUp() bool {
	if m.s.cause != nil || m.list != nil || m.s.checkpoint.RV == "" || m.view == m.server {
		return false
	}
	var changes []change
	for key, v := range m.server {
		if v != m.view[key] {
			changes = append(changes, change{key: key, n: v})
		}
	}
	m.apply(store.Batch{RV: strconv.Itoa(m.n), CatchUp: true, Changes: make([]store.Change, len(changes))}, true, changes...)
	return true
}

// settle confirms that handlers have received what has departed.
func (m *machine) settle() bool {
	if m.s.cause != nil || !m.s.settled(math.MaxUint64) {
		return false
	}
	m.received = m.last
	return true
}

// listBegins lists the server, which has changed unseen.
func (m *machine) listBegins() bool {
	r := m.s.relist
	if m.isHidden || r != nil && r.lost == nil { // a wipe keeps it waiting
		return false
	}
	m.unseen(m.pick())
	if m.s.cause == nil && m.s.phase == phaseReady {
		m.s.invalidated(store.Batch{Reason: "listing"})
	}
	r = &relist{List: &listing.List{}}
	m.list = &playedList{held: m.server, rv: m.n}
	for key, v := range m.list.held {
		if v != 0 {
			r.Listed.Add(keys[key])
		}
	}
	want := m.s.phase != phaseReady
	if m.list.loaded = m.s.listBegun(r); m.list.loaded != want {
		m.fail("the list is loaded: %t", !want)
	}
	return true
}

// part takes one object of the list into the file, or applies one that differs.
func (m *machine) part() bool {
	if m.list == nil || m.s.relist.lost != nil || m.isHidden {
		return false
	}
	if !m.list.loaded {
		c, differs := m.difference()
		if differs {
			m.apply(store.Batch{Changes: []store.Change{{}}}, true, c)
		}
		return differs
	}
	for key, v := range m.list.held {
		if v == 0 || m.list.inFile[key] {
			continue
		}
		m.list.inFile[key] = true
		m.file.held[key] = v
		m.s.inMemory["by"].Set(keys[key], values[v%2]["by"])
		return true
	}
	return false
}

// difference returns the first difference of the list.
func (m *machine) difference() (change, bool) {
	for key, v := range m.list.held {
		if v != m.view[key] {
			return change{key: key, n: v}, true
		}
	}
	return change{}, false
}

// listWhole applies the list. What of it is not in the file is left to the committer.
func (m *machine) listWhole() bool {
	if m.list == nil || m.s.relist.lost != nil || m.isHidden {
		return false
	}
	list := m.list
	if !list.loaded {
		for c, differs := m.difference(); differs; c, differs = m.difference() {
			m.apply(store.Batch{Changes: []store.Change{{}}}, true, c)
		}
		m.s.applied(store.Batch{RV: strconv.Itoa(list.rv)}, nil, loadedList{}, nil, true)
		m.s.relist, m.list = nil, nil
		return true
	}
	var l loadedList
	m.view = list.held
	for key, v := range list.held {
		if beside := list.beside[key]; beside != nil {
			m.view[key] = beside.n
		}
		if v != 0 && !list.inFile[key] {
			l.left = append(l.left, m.entry(key, v))
		}
		if v == 0 && m.file.former[key] != 0 && m.s.losses == 0 {
			e := m.entry(key, 0)
			e.Before = m.entry(key, m.file.former[key])
			l.gone = append(l.gone, e)
		}
	}
	m.s.applied(store.Batch{RV: strconv.Itoa(list.rv), Loaded: true}, nil, l, nil, true)
	for _, e := range l.gone {
		m.departs(e.Key, e.Departs)
	}
	m.s.relist, m.list, m.isLost = nil, nil, false
	return true
}

func (m *machine) listBreaks() bool {
	if m.s.relist == nil || m.isHidden && m.list.inFile != [len(keys)]bool{} {
		return false // a wipe keeps it from dropping what it has written
	}
	m.s.relist, m.list = nil, nil
	if m.s.isLoading() {
		if !m.isHidden {
			m.emptyFile()
		}
		m.s.listBroken()
		m.view, m.departed = held{}, m.inFile()
	}
	return true
}

// inFile returns what has departed in the file and was not received by all handlers of an
// earlier process.
func (m *machine) inFile() []departure {
	return slices.DeleteFunc(slices.Clone(m.file.departed), func(d departure) bool { return d.number <= m.settled })
}

// emptyFile begins the scope in the file again.
func (m *machine) emptyFile() {
	f := &m.file
	f.held, f.whole, f.checkpoint = held{}, false, store.Checkpoint{Reason: "began again"}
	f.log.Lineage += "'"
	m.s.changelog.Opened(&record.Manifest{Log: f.log})
}

func (m *machine) capture() bool {
	if m.captured != nil {
		return false
	}
	c, due := m.s.captured(math.MaxInt64)
	if !due {
		return false
	}
	m.captured, m.seen, m.brief = &c, m.view, m.short
	m.leaving, m.settles = slices.Clip(m.departed), m.received
	return true
}

// passedOver tells the scope that a commit writes nothing of it.
func (m *machine) passedOver() bool {
	if _, due := m.s.captured(math.MaxInt64); due || m.captured != nil {
		return false
	}
	attempt := m.s.attempt
	if m.s.passedOver(); m.isLost != isClosed(attempt) {
		m.fail("who waits for an attempt is told: %t", isClosed(attempt))
	}
	return true
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// write is the transaction of a commit. Without an error it writes what was captured, or
// skips it.
func (m *machine) write(writes bool, err error) bool {
	c, f := m.captured, &m.file
	if c == nil || m.written || m.isHidden {
		return false
	}
	m.written, m.err, c.Written = true, err, false
	if c.losses != m.s.losses || !writes {
		return true
	}
	f.held = over(f.held, c.Overlay)
	f.checkpoint, f.whole = c.Checkpoint, !c.Loading
	c.Overlay.Scan(func(e *overlay.Entry) bool { m.logs(e); return true })
	for _, e := range c.Gone {
		m.logs(e)
	}
	if c.Lists > 0 {
		f.former = held{}
	}
	c.Departed = len(c.Gone)
	f.log.Last++
	f.log.Bytes += 10
	f.log.Mark.Random, f.log.Mark.Number, f.log.Settled = c.Random, f.log.Last, c.Told
	if f.log.Settled != m.settles {
		m.fail("departures up to %d are settled in the file, want %d", f.log.Settled, m.settles)
	}
	c.Written, c.Log, c.Stored, c.Bytes = true, f.log, f.len(), int64(f.len())
	m.s.attempted(c.Attempt())
	if !f.whole {
		return true
	}
	if f.held != m.seen {
		m.fail("the file has %v at %q, and %v was captured", f.held, f.checkpoint.RV, m.seen)
	}
	if got := slices.DeleteFunc(slices.Clone(m.leaving), func(d departure) bool { return slices.Contains(f.departed, d) }); len(got) > 0 {
		m.fail("the file lacks the departures %v", got)
	}
	return true
}

// logs writes the departure of an entry, unless a commit has written it.
func (m *machine) logs(e *overlay.Entry) {
	d := departure{e.Departs, e.Key}
	if e.Departs == 0 || slices.Contains(m.file.departed, d) {
		return
	}
	m.file.departed = append(m.file.departed, d)
	if !slices.Contains(m.departed, d) {
		m.departed = append(m.departed, d)
	}
	m.file.log.Departed = max(m.file.log.Departed, e.Departs)
}

// told tells the state of the outcome of a commit.
func (m *machine) told() bool {
	c := m.captured
	if !m.written {
		return false
	}
	m.captured, m.written = nil, false
	s := m.s
	attempt, written, gone := s.attempt, s.written, len(s.departed.Gone)
	if s.committed(*c, m.err); !isClosed(attempt) {
		m.fail("who waits for an attempt is not told")
	}
	switch {
	case s.written == written: // nothing is taken over
	case !c.Written || m.err != nil || s.written != c.applied:
		m.fail("%d changes count as written, and up to %d were captured", s.written, c.applied)
	case len(s.departed.Gone) != gone-len(c.Gone):
		m.fail("%d of %d departed objects wait, and %d were written", len(s.departed.Gone), gone, len(c.Gone))
	case !s.dirty && s.overlay.Len() > 0 && !s.isLoading():
		m.fail("%d changes wait when all is written", s.overlay.Len())
	default:
		m.follow(c.Overlay)
		s.overlay.View().Scan(func(e *overlay.Entry) bool {
			if slices.Contains(m.file.departed, departure{e.Departs, e.Key}) {
				m.fail("%s departs as %d again", e.Key, e.Departs)
			}
			return true
		})
	}
	return true
}

// follow takes over that changes were written.
func (m *machine) follow(written overlay.View) {
	for i, key := range keys {
		e, ok := written.Get(key)
		if !ok {
			continue
		}
		if version(e) != 0 || m.short[i] == m.brief[i] {
			m.short[i] = 0
		}
		if now, ok := m.s.overlay.Get(key); ok && now.Absent != (version(e) == 0) {
			m.fail("of %s, the version %d was written, and the next one says %t", key, version(e), now.Absent)
		}
	}
}

// checkShort checks which states of objects that are gone are kept for the log.
func (m *machine) checkShort() {
	for i, key := range keys {
		e, ok := m.s.overlay.Get(key)
		if !ok || e.Departs != 0 || version(e) != 0 {
			continue
		}
		got := 0
		if e.Before != nil {
			got = version(e.Before)
		}
		if got != m.short[i] {
			m.fail("of %s the state %d is kept, want %d", key, got, m.short[i])
		}
	}
}

func (m *machine) lose() bool {
	attempt := m.s.attempt
	m.s.lost(store.ErrWiped)
	m.file, m.view, m.departed = disk{}, held{}, nil
	m.isLost, m.settled, m.received = true, m.last, m.last
	if !isClosed(attempt) || len(m.s.lostSignal) == 0 {
		m.fail("who waits is not told of the loss")
	}
	<-m.s.lostSignal
	if m.s.departed.Told != m.s.departed.Last || m.s.departed.Last != m.last {
		m.fail("numbers begin again at %d of %d", m.s.departed.Last, m.last)
	}
	if m.s.relist != nil && m.s.relist.lost == nil {
		m.fail("the list is not told")
	}
	return true
}

func (m *machine) wipeBegins() bool {
	if m.isHidden {
		return false
	}
	m.isHidden = true
	m.s.wiping()
	return true
}

func (m *machine) wipeFailed() bool {
	if !m.isHidden {
		return false
	}
	m.isHidden = false
	for len(m.s.shared.urgent) > 0 {
		<-m.s.shared.urgent
	}
	if m.s.notWiped(); m.s.dirty && len(m.s.shared.urgent) == 0 {
		m.fail("nobody writes what the wipe has kept waiting")
	}
	return true
}

func (m *machine) wipeDone() bool {
	if !m.isHidden {
		return false
	}
	m.isHidden = false
	return m.lose()
}

// openOther opens the scope again with another transform: nobody may read what is stored.
func (m *machine) openOther() bool { return m.file.whole && m.openAgain(false) }

// openAgain opens the scope again, in this process or the next. What waits is gone.
func (m *machine) openAgain(useful bool) bool {
	if m.isHidden { // a wipe keeps it waiting
		return false
	}
	old, f := m.s, &m.file
	s := newState(m.T, old.shared)
	s.packer.Store(old.packer.Load())
	m.s = s
	if useful {
		s.opened(&record.Manifest{
			Complete: true, Objects: record.Tally{Count: uint64(f.len())}, Bytes: int64(f.len()), Log: f.log,
			RV: f.checkpoint.RV, Reason: f.checkpoint.Reason, Time: time.Now(),
		})
		for key, v := range f.held {
			if v != 0 {
				s.inMemory["by"].Set(keys[key], values[v%2]["by"])
			}
		}
	} else {
		if old.outdated(); old.cause == nil || old.isReady.Load() {
			m.fail("a walk goes on in what is listed next")
		}
		if f.whole && f.len() > 0 {
			f.former = f.held
		}
		s.openedUseless(f.log)
		m.emptyFile()
		s.checkpoint = f.checkpoint
	}
	old.replaced()
	if m.captured != nil { // the committer is told nothing of the other store
		if !m.written {
			m.captured.Written, m.err = false, nil
		}
		old.committed(*m.captured, m.err)
		m.captured, m.written = nil, false
	}
	if old.overlay.Len() != 0 || old.dirty || old.written != old.latest || old.changelog.Log.Bytes != 0 {
		m.fail("%d changes of what was closed wait, %d of %d are written, a log of %d bytes counts", old.overlay.Len(), old.written, old.latest, old.changelog.Log.Bytes)
	}
	m.view, m.isLost, m.list = f.held, false, nil
	m.settled, m.received = f.log.Settled, f.log.Settled
	m.departed, m.last = m.inFile(), max(f.log.Departed, f.log.Settled)
	return true
}

func (m *machine) fail(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.play, "; "))
}

// step plays an event and checks what must hold after each. It returns false if the event
// cannot happen now.
func (m *machine) step(e *event) bool {
	m.Helper()
	m.play = append(m.play, e.name)
	if !e.play(m) {
		m.play = m.play[:len(m.play)-1]
		return false
	}
	m.checkParts()
	m.checkRV("the file", m.file.held, m.file.checkpoint, m.file.whole)
	m.checkDeparted()
	s := m.s
	if fails := m.isLost || m.isHidden; fails != (s.cause != nil) || fails && s.isReady.Load() {
		m.fail("reads return %v in phase %s, ready %t", s.cause, s.phase, s.isReady.Load())
	}
	if s.isLoading() != m.isLoading() {
		m.fail("phase %s while a list is loaded: %t", s.phase, m.isLoading())
	}
	switch {
	case m.isLost || s.isLoading() || s.phase == phaseEmpty:
		if s.checkpoint.RV != "" {
			m.fail("%q in phase %s", s.checkpoint.RV, s.phase)
		}
	default:
		m.checkRV("a reader", m.view, s.checkpoint, true)
	}
	if m.isLost && !s.isLoading() {
		m.nothingIsLeft()
	}
	if s.cause == nil && !s.isLoading() {
		m.checkView()
	}
	return true
}

func (m *machine) checkParts() {
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
	m.checkShort()
	if all := s.shared.logs.Bytes.Load(); all != s.changelog.Log.Bytes {
		m.fail("the log has %d bytes, all have %d", s.changelog.Log.Bytes, all)
	}
	if log := s.changelog.Log; log.Lineage != m.file.log.Lineage || log.Last > m.file.log.Last {
		m.fail("the log is at %d of %q, and the file at %d of %q", log.Last, log.Lineage, m.file.log.Last, m.file.log.Lineage)
	}
}

// checkRV checks that a content has all that the server had at its resource version.
func (m *machine) checkRV(whose string, c held, at store.Checkpoint, whole bool) {
	if at.RV == "" || !whole {
		return
	}
	rv, _ := strconv.Atoi(at.RV)
	for key, has := range c {
		var last change
		isDeleted := false // later
		for _, h := range m.history {
			switch {
			case h.key != key:
			case h.n <= rv:
				last = h
			case h.deleted:
				isDeleted = true
			}
		}
		switch missesIt := has < last.n; {
		case last.n == 0 || !missesIt:
		case last.deleted && has == 0, !last.deleted && has == 0 && isDeleted:
		default:
			m.fail("%s is at %d and has %v, which lacks the change %d of %s", whose, rv, c, last.n, keys[key])
		}
	}
}

// checkDeparted checks what a handler is told that comes now, and that nothing has two
// numbers.
func (m *machine) checkDeparted() {
	s := m.s
	got := map[uint64]string{}
	add := func(number uint64, key string) {
		if number <= s.departed.Settled {
			return
		}
		if was, twice := got[number]; twice && was != key {
			m.fail("%s and %s have departed with number %d", was, key, number)
		}
		got[number] = key
	}
	for _, d := range m.file.departed {
		add(d.number, d.key)
	}
	s.overlay.View().Scan(func(e *overlay.Entry) bool { add(e.Departs, e.Key); return true })
	for _, e := range s.departed.Gone {
		add(e.Departs, e.Key)
	}
	for _, d := range m.departed {
		if got[d.number] != d.key {
			m.fail("%v are departed, want %v", got, m.departed)
		}
	}
	if len(got) != len(m.departed) {
		m.fail("%v are departed, want %v", got, m.departed)
	}
}

// checkView checks what readers see.
func (m *machine) checkView() {
	s := m.s
	if got := m.merged(); got != m.view {
		m.fail("readers see %v, want %v", got, m.view)
	}
	if s.length != m.view.len() {
		m.fail("the count is %d, and readers see %v", s.length, m.view)
	}
	even, odd := m.indexed(0), m.indexed(1)
	for key, v := range m.view {
		isEven, isOdd := slices.Contains(even, keys[key]), slices.Contains(odd, keys[key])
		if isEven != (v != 0 && v%2 == 0) || isOdd != (v%2 == 1) {
			m.fail("the index has %q and %q, and readers see %v", even, odd, m.view)
		}
		if o, ok := s.objects.Peek(keys[key]); ok && (v == 0 || o.Object != &versions[v].object) {
			m.fail("another version of %s than %d is decoded", keys[key], v)
		}
	}
}

// indexed returns the keys of the even or of the odd versions.
func (m *machine) indexed(value int) []string { return m.s.inMemory["by"].Find(values[value]["by"]) }

// nothingIsLeft checks that what was lost is forgotten.
func (m *machine) nothingIsLeft() {
	s := m.s
	if s.length != 0 || s.storedBytes != 0 || s.changelog.Log.Last != 0 || s.changelog.StoredRV != "" || s.overlay.Len() != 0 || s.shared.logs.Bytes.Load() != 0 {
		m.fail("%d objects of %d bytes are left, and a log up to %d at %q", s.length, s.storedBytes, s.changelog.Log.Last, s.changelog.StoredRV)
	}
	if found := append(m.indexed(0), m.indexed(1)...); len(found) > 0 || s.objects.Bytes() != 0 || len(s.departed.Gone) > 0 {
		m.fail("the index has %q, %d bytes are decoded, %d departed", found, s.objects.Bytes(), len(s.departed.Gone))
	}
}

// tree plays every sequence of events, each from where its beginning has led.
type tree struct {
	played, pruned int
}

func (t *tree) grow(m *machine, levels int) {
	var next *machine
	for i := range events {
		e := &events[i]
		if e.isRare {
			continue
		}
		if next == nil {
			next = m.clone()
		}
		if !next.step(e) { // which has changed nothing
			t.pruned++
			continue
		}
		if t.played++; levels > 1 {
			t.grow(next, levels-1)
		}
		next = nil
	}
}

// TestState plays every sequence of some events, on a scope without a list, in its first
// list and after it, and random ones of many.
func TestState(t *testing.T) {
	levels := *depth
	if testing.Short() {
		levels = min(levels, shortDepth)
	}
	if levels < wholeDepth {
		t.Logf("NOT ALL IS PLAYED: only sequences of up to %d events instead of %d", levels, wholeDepth)
	}
	for name, before := range map[string][]string{
		"without a list": nil,
		"in a list":      {"list begins"},
		"with a list":    {"list begins", "part", "list is whole", "committed"},
	} {
		m, began := newMachine(t, nil), time.Now()
		for _, name := range before {
			if !m.step(eventOf(name)) {
				m.fail("%s cannot happen", name)
			}
		}
		var all tree
		all.grow(m, levels)
		t.Logf("%s: all %d sequences of up to %d events in %s; %d more go on with an event that cannot happen then",
			name, all.played, levels, time.Since(began).Round(time.Millisecond), all.pruned)
	}
	seed := rand.Uint64()
	t.Logf("%d sequences of sixty events; seed %d", *sequences, seed)
	for i := range *sequences {
		m := newMachine(t, rand.New(rand.NewPCG(seed, uint64(i))))
		for range 60 {
			m.step(&events[m.rng.IntN(len(events))])
		}
	}
}

func eventOf(name string) *event {
	return &events[slices.IndexFunc(events, func(e event) bool { return e.name == name })]
}
