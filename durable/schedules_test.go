package durable_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/internal/fakeapi"
)

var (
	schedules = flag.Int("schedules", 50/fewer, "how many schedules TestSchedules plays")
	firstSeed = flag.Uint64("schedules.seed", 1, "the seed of the first schedule; 0 is a random one")
)

// TestSchedules plays random schedules of changes, relists, stops and kills, with
// handlers and work that take their time and work that fails, asks to be called later,
// and ends without Forget. In every second one there is a standby with a file of its own.
// A journal that outlives the processes notes for each change which owners of the object,
// before and after it, were worked on while the informer held the object as the change
// left it, or later. In the end that must be all of them.
func TestSchedules(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range uint64(*schedules) {
		t.Run(strconv.FormatUint(seed+i, 10), func(t *testing.T) {
			inBubble(t, func(w *world) {
				rng := rand.New(rand.NewPCG(seed+i, 0))
				s := &schedule{world: w, api: w.server, rand: rng, objects: map[string]*object{}}
				if (seed+i)%2 == 1 {
					s.shared = newCluster(t)
				}
				s.play()
				if t.Failed() {
					t.Logf("-run TestSchedules -schedules 1 -schedules.seed %d:\n%s", seed+i, strings.Join(s.notes, "\n"))
				}
			})
		})
	}
}

// object is what the schedule knows of an object.
type object struct {
	owner   string // "" means that it is deleted
	changed time.Time
	settled bool // the change is in a commit of its own
}

// change is one write of an object.
type change struct {
	rv      uint64
	at      time.Time
	name    string
	deleted bool
	owner   string   // after it, in TestKill
	owners  []string // before and after, those that were not worked on yet
}

type schedule struct {
	*world  // of the present process
	api     *fakeapi.Server
	rand    *rand.Rand
	objects map[string]*object
	changes []*change
	present *life
	// shared is nil in schedules of one file. In the others there is a standby with
	// another one, and the history is not lost: deletions would not be known.
	shared  *cluster
	standby *life
	elected chan struct{} // of the standby
	up      time.Time     // since when all processes are there; zero if one is not
	// compacted are the times at which the history was lost.
	compacted []time.Time
	quiet     bool // work succeeds

	notesMu sync.Mutex // protects notes
	notes   []string

	mu sync.Mutex // protects changes
}

func (s *schedule) note(format string, args ...any) {
	s.notesMu.Lock()
	defer s.notesMu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf("%s at %s: ", time.Now().Format("04:05.000"), s.api.RV())+fmt.Sprintf(format, args...))
}

func (s *schedule) oneIn(n int) bool { return s.rand.IntN(n) == 0 }

// settled is after how long with all processes a change is in a commit of its own: the
// log has one change for several of an object in one commit.
const settled = 5 * time.Second

// settle marks the objects whose last change has settled.
func (s *schedule) settle() {
	for _, o := range s.objects {
		o.settled = o.settled || !s.up.IsZero() && time.Since(s.up) >= settled && time.Since(o.changed) >= settled
	}
}

func (s *schedule) play() {
	for range 5 + s.rand.IntN(10) {
		s.write()
	}
	if s.shared != nil {
		other := s.replica()
		s.world, other = other, s.world
		s.wait()
		s.world = other
	}
	s.begin()
	if s.shared != nil {
		s.pass(20 * time.Second) // a file without a log would know of no deletion
	}
	for range 40 {
		switch s.rand.IntN(20) {
		case 0, 7:
			s.note("kill")
			s.settle()
			l := s.present
			next := l.image()
			l.dead()
			if s.shared != nil {
				s.shared.fail(errors.New("the process has died"))
			}
			l.end()
			if s.shared != nil {
				s.shared.fail(nil)
			}
			s.path = next
			s.away()
			s.next()
		case 1:
			s.note("stop")
			s.settle()
			s.present.end()
			s.away()
			s.next()
		case 2:
			if s.shared != nil {
				s.write()
				continue
			}
			s.note("compact")
			s.server.Down()
			s.write()
			s.server.Advance()
			s.compacted = append(s.compacted, time.Now())
			if err := s.server.Compact(s.server.RV()); err != nil {
				s.Fatal(err)
			}
			s.server.Up()
		case 3:
			s.note("watches are closed")
			s.server.CloseWatches()
		case 4, 5, 6:
			s.pass(time.Duration(s.rand.IntN(4000)) * time.Millisecond)
		default:
			s.write()
			if s.oneIn(2) {
				s.pass(time.Duration(s.rand.IntN(700)) * time.Millisecond)
			}
		}
	}
	s.pass(time.Minute)
	s.present.end()
	s.quiet = true
	s.begin()
	s.pass(3 * time.Hour)
	s.present.end()
	if s.standby != nil {
		s.standby.end()
	}
	for i, c := range s.changes {
		if len(c.owners) > 0 && !s.isSkipped(i) {
			s.Errorf("%s was changed at %d, and its owners %s were not worked on after that", c.name, c.rv, c.owners)
		}
	}
}

// next begins the next process, which may be the standby.
func (s *schedule) next() {
	if s.shared == nil || s.oneIn(2) {
		s.begin()
		return
	}
	s.note("the standby is elected")
	close(s.elected)
	s.present = s.standby
	s.pass(time.Duration(s.rand.IntN(3000)) * time.Millisecond)
	s.wait() // with the file of the process before
	s.world = s.present.w
	s.up = time.Now()
}

// wait begins a standby.
func (s *schedule) wait() {
	s.elected = make(chan struct{})
	s.options()
	s.opts.Elected = s.elected
	s.standby = s.run()
}

// isSkipped reports whether the informer may never have held what a change made: the
// history was lost, and a list had the next change of the object.
func (s *schedule) isSkipped(i int) bool {
	c := s.changes[i]
	next := slices.IndexFunc(s.changes[i+1:], func(other *change) bool { return other.name == c.name })
	return next >= 0 && slices.ContainsFunc(s.compacted, func(at time.Time) bool {
		return !at.Before(c.at) && at.Before(s.changes[i+1+next].at)
	})
}

// away is the time without a process.
func (s *schedule) away() {
	s.up = time.Time{}
	s.pass(time.Duration(s.rand.IntN(3000)) * time.Millisecond)
	for range s.rand.IntN(4) {
		s.write()
	}
	s.pass(time.Duration(s.rand.IntN(3000)) * time.Millisecond)
}

// write changes an object that has settled.
func (s *schedule) write() {
	name := fmt.Sprintf("o%d", s.rand.IntN(12))
	o := s.objects[name]
	if o == nil {
		o = &object{}
		s.objects[name] = o
	}
	if s.settle(); !o.settled && !o.changed.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &change{name: name, at: time.Now()}
	if o.owner != "" {
		c.owners = append(c.owners, o.owner)
	}
	if o.owner != "" && s.oneIn(4) {
		s.drop(name)
		o.owner, c.deleted = "", true
	} else {
		if o.owner == "" || s.oneIn(3) {
			o.owner = fmt.Sprintf("k%d", s.rand.IntN(6))
		}
		s.put(name, o.owner)
		c.owners = append(c.owners, o.owner)
	}
	c.owners = slices.Compact(c.owners)
	o.changed, o.settled = time.Now(), false
	c.rv, _ = strconv.ParseUint(s.server.RV(), 10, 64)
	s.note("%s of %s", name, c.owners)
	s.changes = append(s.changes, c)
}

// begin starts a process. Its handler and its work take their time.
func (s *schedule) begin() {
	s.options()
	s.present = s.run()
	s.up = time.Now()
	s.note("begun: %+v", s.present.consumer.Status())
	s.pass(time.Duration(s.rand.IntN(3000)) * time.Millisecond)
}

func (s *schedule) options() {
	s.opts = durable.Options{Version: "1", Unchanged: durable.Skip, CommitFirst: s.oneIn(4)}
	if s.shared != nil {
		s.opts.Shared = durable.InCluster(s.shared, "default", "state")
	}
}

func (s *schedule) run() *life {
	l := s.open()
	seed := s.rand.Uint64()
	handling, working := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	l.work = func(name string) outcome {
		seen := s.seen(l, name)
		s.note("  work on %s sees %d", name, len(seen))
		if l.isDead() {
			return outcome{}
		}
		if s.quiet {
			s.worked(name, seen)
			return outcome{}
		}
		<-time.After(time.Duration(working.IntN(900)) * time.Millisecond)
		if l.isDead() {
			return outcome{}
		}
		switch working.IntN(8) {
		case 0:
			return outcome{err: true}
		case 1:
			s.worked(name, seen)
			return outcome{after: time.Duration(1+working.IntN(600)) * time.Second}
		case 2:
			return outcome{lost: true} // it runs after the next start
		}
		s.worked(name, seen)
		return outcome{}
	}
	slow := []int{10, 300, 1500}[s.rand.IntN(3)]
	l.addHandler(slowly{enqueue{l}, func() { <-time.After(time.Duration(handling.IntN(slow)) * time.Millisecond) }})
	l.trace = s.note
	l.run()
	return l.begin()
}

// seen returns the changes of an owner's objects that the informer holds.
func (s *schedule) seen(l *life, owner string) (out []*change) {
	held := map[string]uint64{}
	for _, obj := range l.inf.GetStore().List() {
		cm := obj.(*corev1.ConfigMap)
		held[cm.Name], _ = strconv.ParseUint(cm.ResourceVersion, 10, 64)
	}
	synced := l.inf.HasSynced()
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := map[string]uint64{} // when it was deleted last
	for _, c := range s.changes {
		if c.deleted {
			gone[c.name] = c.rv
		}
	}
	for _, c := range s.changes {
		at, is := held[c.name]
		if slices.Contains(c.owners, owner) && (at >= c.rv || !is && synced && gone[c.name] >= c.rv) {
			out = append(out, c)
		}
	}
	return out
}

// worked notes that the work on an owner has succeeded.
func (s *schedule) worked(owner string, seen []*change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range seen {
		c.owners = slices.DeleteFunc(c.owners, func(name string) bool { return name == owner })
	}
}

// slowly is a handler that takes its time before and after it enqueues.
type slowly struct {
	enqueue
	wait func()
}

func (h slowly) OnAdd(obj any, initial bool) {
	h.wait()
	h.enqueue.OnAdd(obj, initial)
	h.wait()
}

func (h slowly) OnUpdate(old, obj any) {
	h.wait()
	h.enqueue.OnUpdate(old, obj)
	h.wait()
}

func (h slowly) OnDelete(obj any) {
	h.wait()
	h.enqueue.OnDelete(obj)
	h.wait()
}
