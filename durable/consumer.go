package durable

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

const (
	defaultEvery = 10 * time.Hour
	// commitEvery is how often the place and the queue are written.
	commitEvery = time.Second
	// closePatience is how long Close waits for the last write, and CommitFirst for one.
	closePatience = 30 * time.Second
	// failedPatience is how long CommitFirst waits after it has waited in vain. A commit
	// of a slow disk takes longer: after each retryInterval it waits for retryPatience.
	failedPatience = 100 * time.Millisecond
	retryInterval  = 10 * time.Second
	retryPatience  = time.Second
)

// Open's errors.
var (
	// ErrInUse indicates a name that another Consumer of the process has.
	ErrInUse = errors.New("the consumer is in use")
	// ErrUnsupported indicates a backend that has no store.Ledger.
	ErrUnsupported = errors.New("the backend does not remember consumers")
)

// Consumer remembers what is left to do. Its methods may be called by any goroutine.
type Consumer struct {
	name   string
	opts   Options
	ledger store.Ledger
	id     inUse
	end    context.CancelFunc
	begin  chan struct{}  // closed by Activate
	once   sync.Once      // closes begin
	ends   sync.WaitGroup // goroutines, which end ends
	closed sync.Once
	result error    // of Close
	shared *sharing // nil without Options.Shared
	// logger names the consumer. It is that of the context with which the last informer
	// that has opened a handler runs, and klog.Background before.
	logger atomic.Pointer[klog.Logger]

	// writing makes two writes of the ledger exclude each other, so that an older state
	// does not replace a newer one. A caller waits for as long as its context lasts.
	writing *semaphore.Weighted

	// mu protects the fields below, the scopes and the states of the queue. The lock of
	// an informer's hub may be taken behind it, never before it.
	mu      sync.Mutex
	phase   phase
	began   time.Time // when phase became active
	term    term      // of the file
	invalid string    // why no place is valid
	damaged bool      // values of the ledger could not be read
	reset   bool      // what is shared is to be forgotten, too
	// unwritten is when CommitFirst last waited in vain, for more than failedPatience;
	// zero if it does not.
	unwritten time.Time
	unencoded lasting           // keys of the queue that have no encoding
	frozen    bool              // places do not move: see freezeLocked
	losses    uint64            // of the ledger, when it was last written whole
	whole     bool              // the next commit writes it whole
	scopes    map[string]*scope // by ID, also those without a handler
	keys      map[string][]byte // encoded states of keys that no queue has taken over
	changed   map[string][]byte // what is not written yet
	unplaced  []resume.Feed     // of informers in memory, which begin when it is active
	queue     keeper            // nil before NewQueue
}

// keeper is the queue of a Consumer. The methods are called with Consumer.mu held.
type keeper interface {
	// activateLocked puts what was restored into the queue.
	activateLocked()
	// raiseLocked gives what still waits with a low priority a normal one.
	raiseLocked()
	// noteAllLocked makes collectLocked add the states of all keys.
	noteAllLocked()
	// collectLocked adds the states that have changed to changes.
	collectLocked(changes map[string][]byte)
	// replaceLocked replaces what was restored by Consumer.keys.
	replaceLocked()
	// restoreLocked takes Consumer.keys over.
	restoreLocked()
	// hasRestoredLocked reports whether a key was taken over.
	hasRestoredLocked(encoded string) bool
	// shareLocked returns what is left to do.
	shareLocked() []sharedKey
	countLocked(*Status)
}

// phase is where a Consumer is in its life.
//
//	from             to       when
//	standby          active   elected, and Options.Shared is read
//	standby, active  deposed  another process has taken Options.Shared over
//	any              over     Close
type phase uint8

const (
	standby phase = iota // handlers receive nothing and count as synced
	active
	deposed // nothing is written any more: another process has what is left
	over    // Close has written what there is
)

// inUse identifies a consumer in the process.
type inUse struct {
	backend store.Backend
	name    string
}

// consumers contains the *Consumer of each name that is in use.
var consumers sync.Map

// The keys of a consumer's ledger.
const (
	stateKey    = "state"
	prefixPlace = "place/"
	prefixKey   = "key/"
	// registry is the ledger that lists the consumers of a backend.
	registry = "consumers"
)

// state is the value of stateKey.
type state struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Term     term   `json:"term,omitzero"`
	// Reset means that Reset has left nothing else, and that what is shared is forgotten
	// by the process that takes it over next.
	Reset bool `json:"reset,omitempty"`
	// Damaged means that values could not be read, and what is shared has not been taken
	// over since.
	Damaged bool `json:"damaged,omitempty"`
}

func ledgerName(name string) string { return "consumer/" + name }

// Open opens the consumer with a name, which has one Consumer at a time. Errors:
// ErrInUse, ErrUnsupported, those of the backend, and those of wrong Options. Damage is
// not an error: handlers then receive everything.
func Open(backend store.Backend, name string, opts Options) (*Consumer, error) {
	ledger, ok := backend.(store.Ledger)
	switch {
	case !ok || !reflect.TypeOf(backend).Comparable():
		return nil, fmt.Errorf("consumer %q: %w: want one such as *bolt.DB or *mem.DB, not a %T", name, ErrUnsupported, backend)
	case name == "" || strings.Contains(name, "/"):
		return nil, fmt.Errorf("a consumer cannot have the name %q; want one such as widgets, without a slash", name)
	case opts.Unchanged < Trickle || opts.Unchanged > All:
		return nil, fmt.Errorf("consumer %q: the policy %d is not known; want Trickle, Skip or All", name, opts.Unchanged)
	case opts.Unchanged == Skip && opts.Version == "":
		return nil, fmt.Errorf("consumer %q: Skip needs a Version, because objects are skipped until it changes", name)
	case opts.Every < 0:
		return nil, fmt.Errorf("consumer %q: Every is %v, want a time above 0", name, opts.Every)
	}
	if opts.Every == 0 {
		opts.Every = defaultEvery
	}
	c := &Consumer{
		name: name, opts: opts, ledger: ledger, id: inUse{backend, name}, begin: make(chan struct{}),
		writing: semaphore.NewWeighted(1),
		scopes:  map[string]*scope{}, keys: map[string][]byte{}, changed: map[string][]byte{},
	}
	c.logTo(klog.Background())
	if opts.Shared != nil {
		c.shared = &sharing{Shared: opts.Shared, holder: rand.Text()}
	} else if opts.Elected == nil {
		c.phase, c.began = active, time.Now()
	}
	if _, taken := consumers.LoadOrStore(c.id, c); taken {
		return nil, fmt.Errorf("consumer %q: %w", name, ErrInUse)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.end = cancel
	if err := c.load(ctx); err != nil {
		cancel()
		consumers.Delete(c.id)
		return nil, fmt.Errorf("consumer %q: %w", name, err)
	}
	c.ends.Go(func() { c.run(ctx) })
	c.ends.Go(func() { c.await(ctx) })
	return c, nil
}

// load reads what the process before has left. Statuses knows the consumer already.
func (c *Consumer) load(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses = c.ledger.LedgerLosses()
	values, err := c.ledger.Ledger(ctx, ledgerName(c.name))
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	if err != nil {
		c.invalid, c.damaged, c.whole = "the ledger is damaged", true, true
	}
	var known state
	if b, ok := values[stateKey]; ok && json.Unmarshal(b, &known) != nil {
		c.invalid = "the ledger cannot be read"
	}
	if len(values) > 0 && known.Version != c.opts.Version {
		c.invalid = c.otherVersion(known.Version)
	}
	if known.Reset {
		c.invalid, c.reset = "it was reset", c.shared != nil
	}
	c.damaged = c.damaged || known.Damaged
	for key, value := range values {
		if id, ok := strings.CutPrefix(key, prefixPlace); ok {
			s := &scope{id: id, recorded: true}
			if json.Unmarshal(value, &s.known) != nil {
				c.invalid = "a place cannot be read"
			}
			if s.allowed = s.known.Handlers; s.known.Partial {
				s.why, s.allowed = partialWhy, 0
				s.known.Handlers = 0
			}
			s.sweep = s.known.Sweep
			c.scopes[id] = s
		} else if key, ok := strings.CutPrefix(key, prefixKey); ok {
			c.keys[key] = value
		}
	}
	if c.invalid != "" {
		for _, s := range c.scopes {
			c.invalidateLocked(s, c.invalid)
		}
	}
	for _, s := range c.scopes {
		c.sweepAnewLocked(s, known.Revision)
	}
	c.term = known.Term
	if c.phase == standby {
		for id, s := range c.scopes {
			s.owed = resume.Owe(id)
		}
	}
	c.noteStateLocked()
	return nil
}

func (c *Consumer) otherVersion(before string) string {
	return fmt.Sprintf("the version was %q and is %q", before, c.opts.Version)
}

// noteStateLocked writes the state with the next commit.
func (c *Consumer) noteStateLocked() {
	if b, err := json.Marshal(state{c.opts.Version, revision(), c.term, c.reset, c.damaged && c.shared != nil}); err == nil {
		c.changed[stateKey] = b
	}
}

// revision returns the revision that the program was built from, "" if it is not known.
var revision = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
})

// run writes the place and the queue until Close.
func (c *Consumer) run(ctx context.Context) {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	var failing lasting
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.sweep(time.Now())
		c.endOwed(time.Now())
		err := c.commit(ctx)
		switch {
		case err == nil:
			if failing.end() {
				c.log().Info("The place of a consumer is written again")
			}
		case ctx.Err() == nil && failing.isDue(time.Now()):
			c.log().Error(err, "The place of a consumer could not be written")
		}
	}
}

// log returns the logger of the consumer.
func (c *Consumer) log() klog.Logger { return *c.logger.Load() }

func (c *Consumer) logTo(to klog.Logger) {
	to = klog.LoggerWithValues(to, "consumer", c.name)
	c.logger.Store(&to)
}

// firstRepeat and lastRepeat bound the time between two messages about an error that
// lasts.
const firstRepeat, lastRepeat = time.Minute, time.Hour

// await waits for the election. With Options.Shared it then takes over what the process
// before has left there, and keeps it up to date until Close.
func (c *Consumer) await(ctx context.Context) {
	if c.opts.Elected != nil {
		select {
		case <-ctx.Done():
			return
		case <-c.opts.Elected:
		case <-c.begin:
		}
	}
	if c.shared != nil {
		c.share(ctx)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.activateLocked()
}

// activateLocked begins what waits for the election.
func (c *Consumer) activateLocked() {
	if c.phase != standby {
		return
	}
	c.phase, c.began = active, time.Now()
	for _, s := range c.scopes {
		for _, m := range s.members {
			c.beginLocked(s, m)
		}
	}
	for _, feed := range c.unplaced {
		feed.Begin(store.Place{}, true)
	}
	c.unplaced = nil
	if c.queue != nil {
		c.queue.activateLocked()
	}
}

// owedPatience is how long after the election what has departed is kept for a scope whose
// handlers have not been added. Programs add them when they lead, and wait two minutes
// for their caches by default.
const owedPatience = 10 * time.Minute

// endOwed ends resume.Owe of the scopes for which no handler has come: this program has
// none.
func (c *Consumer) endOwed(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isLongActiveLocked(now) {
		return
	}
	for _, s := range c.scopes {
		s.endOwedLocked()
	}
}

// isLongActiveLocked reports whether no handlers of other scopes are to be expected.
func (c *Consumer) isLongActiveLocked(now time.Time) bool {
	return c.phase == active && now.Sub(c.began) >= owedPatience
}

// noteAllLocked notes everything that a ledger has to have, for one that was lost with
// the file or has values that cannot be read.
func (c *Consumer) noteAllLocked() {
	c.noteStateLocked()
	for _, s := range c.scopes {
		if s.recorded || s.known != (place{}) {
			c.noteLocked(s)
		}
	}
	for key, value := range c.keys {
		c.changed[prefixKey+key] = value
	}
	if c.queue != nil {
		c.queue.noteAllLocked()
	}
}

// commit writes what has changed, in one transaction. After Close it writes nothing: the
// ledger may be that of another Consumer.
func (c *Consumer) commit(ctx context.Context) error {
	if err := c.writing.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("another write of the ledger has not ended: %w", err)
	}
	defer c.writing.Release(1)
	c.mu.Lock()
	switch c.phase {
	case over:
		c.mu.Unlock()
		return nil
	case deposed:
		if c.queue != nil {
			c.queue.collectLocked(c.changed) // forgets what is done
		}
		clear(c.changed) // nothing is written any more
		c.mu.Unlock()
		return nil
	}
	c.advanceLocked()
	if losses := c.ledger.LedgerLosses(); losses != c.losses {
		c.losses, c.whole = losses, true
	}
	whole := c.whole
	if c.whole = false; whole {
		c.noteAllLocked()
	}
	if c.queue != nil {
		c.queue.collectLocked(c.changed)
	}
	changes := c.changed
	if len(changes) == 0 {
		c.confirmLocked()
		c.mu.Unlock()
		return nil
	}
	c.changed = map[string][]byte{}
	c.mu.Unlock()
	set := c.ledger.SetLedger
	if whole {
		set = c.ledger.ReplaceLedger
	}
	var err error
	if _, first := changes[stateKey]; first {
		err = c.ledger.SetLedger(ctx, registry, map[string][]byte{c.name: []byte("{}")})
	}
	if err == nil {
		err = set(ctx, ledgerName(c.name), changes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.confirmLocked()
		return nil
	}
	c.whole = c.whole || whole
	newer := c.changed
	c.changed = changes
	maps.Copy(c.changed, newer)
	return err
}

// Close writes the place and the queue, and ends the Consumer. Call it when the informers
// and the workers have ended, and before the backend is closed: until then it records
// what handlers and workers do. It is idempotent.
func (c *Consumer) Close() error {
	c.closed.Do(func() {
		c.end()
		c.ends.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		err := c.commit(ctx) // what was marked before
		if err == nil {
			err = c.commit(ctx) // what there is now
		}
		if c.shared != nil {
			c.publish(ctx)
		}
		// A write of a worker that has not ended ends before.
		waited := c.writing.Acquire(ctx, 1) == nil
		c.mu.Lock()
		c.phase = over
		for _, s := range c.scopes {
			s.endOwedLocked()
		}
		c.mu.Unlock()
		if waited {
			c.writing.Release(1)
		}
		consumers.Delete(c.id)
		if err != nil {
			c.result = fmt.Errorf("consumer %q: %w", c.name, err)
		}
	})
	return c.result
}

// Activate makes the Consumer active although Options.Elected is not closed, for a
// controller that works without being the leader.
func (c *Consumer) Activate() { c.once.Do(func() { close(c.begin) }) }
