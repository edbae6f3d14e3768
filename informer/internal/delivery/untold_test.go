package delivery_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

// noted is what a handler has received.
type noted struct {
	mu    sync.Mutex
	calls []string
	// begin is where it begins, as a resume.Handler; nil waits for Begin of its feed.
	begin func(resume.Feed)
	feed  resume.Feed
}

func (c *noted) note(call string, obj any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call+" "+obj.(*object).Name)
}

func (c *noted) OnAdd(obj any, _ bool) { c.note("add", obj) }
func (c *noted) OnUpdate(old, obj any) {
	if old == obj {
		c.note("same", obj) // resynced, or the state before is not known
	} else {
		c.note("update", obj)
	}
}

func (c *noted) OnDelete(obj any) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	c.note("delete", obj)
}

// want checks what was received since the last call.
func (c *noted) want(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.calls); diff != "" {
		t.Errorf("%s: received (-want +got):\n%s", what, diff)
	}
	c.calls = nil
}

// goesOn is the same as a resume.Handler.
type goesOn struct{ *noted }

func (g goesOn) Opened(f resume.Feed) {
	if g.feed = f; g.begin != nil {
		g.begin(f)
	}
}
func (goesOn) Lost(resume.Feed, error) {}
func (goesOn) Removed(resume.Feed)     {}

// logged is a shelf with a log.
type logged struct{ *shelf }

func (logged) Flush(context.Context) error { return nil }
func (logged) History() (store.LogState, error) {
	return store.LogState{Last: store.Place{Lineage: "l", Mark: 1, RV: "1001"}}, nil
}

func everything(f resume.Feed) { f.Begin(store.Place{}, true) }

// TestUntold checks a list that was loaded and cannot be told yet: nothing brings one of
// its objects before its add, and no place is behind it.
func TestUntold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		plain, durable := &noted{}, &noted{begin: everything}
		w.hub.Add(plain, delivery.Options{Resync: time.Minute})
		w.hub.Add(goesOn{durable}, delivery.Options{})
		w.hub.Begin()
		if _, err := w.hub.Open(logged{&w.shelf}, true); err != nil {
			t.Fatal(err)
		}
		w.hub.MarkSynced()
		go w.hub.RunResyncs(ctx, nil, nil)
		w.whole = true
		plain.want(t, "at first", "add o-0000")
		durable.want(t, "at first", "add o-0000")
		if _, _, ok := durable.feed.Mark(); !ok {
			t.Error("there is no place at first")
		}
		w.shelf.set(keyOf(7), w.object(keyOf(7)))
		w.shelf.fail(errBroken)
		w.list(true, 1<<30)
		w.shelf.fail(nil)
		<-time.After(90 * time.Second)
		plain.want(t, "of a resync that was due")
		if at, _, ok := durable.feed.Mark(); ok {
			t.Errorf("there is a place behind what was not told: %+v", at)
		}
		if last, more, err := durable.feed.Sweep("", 10); last != "" || !more || err != nil {
			t.Errorf("a sweep has ended at %q, %t, %v; want none", last, more, err)
		}
		durable.want(t, "of a sweep")
		w.set(keyOf(0), false)
		plain.want(t, "when it can be told", "same o-0000", "add o-0007", "update o-0000", "same o-0000", "same o-0007")
		durable.want(t, "when it can be told", "add o-0000", "add o-0007", "update o-0000")
		if _, _, ok := durable.feed.Mark(); !ok {
			t.Error("there is no place when all was told")
		}
		w.end()
		cancel()
	})
}

// TestNoResyncAtElection checks that a handler that waits to begin collects no resync:
// the first one comes a period after it has begun.
func TestNoResyncAtElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		standby := &noted{}
		w.hub.Add(goesOn{standby}, delivery.Options{Resync: time.Minute})
		w.hub.Begin()
		if _, err := w.hub.Open(logged{&w.shelf}, true); err != nil {
			t.Fatal(err)
		}
		w.hub.MarkSynced()
		go w.hub.RunResyncs(ctx, nil, nil)
		<-time.After(10*time.Minute - time.Second)
		_ = w.hub.Do(func(turn delivery.Turn) error {
			turn.Resync() // as NotifyUnchanged does after a list
			return nil
		})
		standby.want(t, "before the election")
		everything(standby.feed)
		standby.want(t, "at the election", "add o-0000", "add o-0001")
		<-time.After(59 * time.Second)
		standby.want(t, "before a period is over")
		<-time.After(time.Minute)
		standby.want(t, "when it is", "same o-0000", "same o-0001")
		w.end()
		cancel()
	})
}

// TestUntoldBacklog checks the same of a backlog that cannot be read: the present states,
// which take its place, wait until the list is told.
func TestUntoldBacklog(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		w.dir = dir
		w.hub.Limits = delivery.Limits{First: 2 << 10, Chunk: 2 << 10, Files: 1 << 30}
		w.add(true, nil)
		w.handlers[0].Repeats = true // states before are lost with the backlog
		w.start(t.Context(), true)
		w.hub.MarkSynced()
		for range 4 { // until objects wait encoded, which files need
			for i := range 600 {
				w.set(keyOf(i), false)
			}
		}
		for i := range 300 {
			w.set(keyOf(i), true)
		}
		synctest.Wait()
		truncateFiles(t, dir)
		w.handlers[0].Damaged()
		for i := range 100 { // it has some of the objects again
			key := keyOf(i)
			w.shelf.set(key, w.object(key))
		}
		w.shelf.fail(errBroken)
		w.list(true, 1<<30)
		w.shelf.fail(nil)
		w.handlers[0].open()
		w.hub.Urge()()
		synctest.Wait()
		w.rest()
		w.end()
		if len(w.wrong) > 0 {
			t.Error(strings.Join(w.wrong, "\n"))
		}
	})
}

// truncateFiles makes the files of backlogs unreadable. They have no names.
func truncateFiles(t *testing.T, dir string) {
	t.Helper()
	const open = "/proc/self/fd"
	files, err := os.ReadDir(open)
	if err != nil {
		t.Skip("NOT TESTED: finding unnamed files needs Linux's /proc: ", err)
	}
	broken := 0
	for _, file := range files {
		path := filepath.Join(open, file.Name())
		if name, err := os.Readlink(path); err == nil && strings.HasPrefix(name, dir) && os.Truncate(path, 10) == nil {
			broken++
		}
	}
	if broken == 0 {
		t.Error("no file has a backlog")
	}
}
