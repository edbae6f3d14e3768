package informer_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// slowRun returns an informer, after n changes, with one handler that waits for a gate
// and one that does not.
func slowRun(w *world, limit int64, n int) (r *run, gate chan struct{}, slow, fast *pointers) {
	w.Helper()
	return slowRunOf(w, informer.Options{}, limit, n)
}

func slowRunOf(w *world, opts informer.Options, limit int64, n int) (r *run, gate chan struct{}, slow, fast *pointers) {
	w.Helper()
	gate = make(chan struct{})
	slow, fast = newPointers(gate), newPointers(nil)
	small := func(inf *informer.Informer) { informer.SetBacklogLimits(inf, 64<<10, 64<<10, limit) }
	r = w.run(opts, small, handle(w, slow), handle(w, fast)).sync()
	for i := range n {
		w.put(fmt.Sprintf("o-%d", i%1000), fmt.Sprint(i))
		if i%100 == 0 {
			synctest.Wait()
		}
	}
	synctest.Wait()
	return r, gate, slow, fast
}

// TestSpill checks that the entries of a slow handler are spilled to unnamed files
// (promise 6) and come back in order, also for an informer in memory.
func TestSpill(t *testing.T) {
	for name, backend := range map[string]store.Backend{
		"file": nil, "memory": mem.New(),
		"no directory": bolt.WithoutFile("/none/informers.db", errOnPurpose, bolt.Options{}),
	} {
		t.Run(name, func(t *testing.T) { testSpill(t, backend) })
	}
}

func testSpill(t *testing.T, backend store.Backend) {
	inBubble(t, func(w *world) {
		r, gate, slow, fast := slowRunOf(w, informer.Options{Backend: backend}, 1<<30, 5000)
		for i := range 10 {
			w.drop(fmt.Sprintf("o-%d", i))
		}
		synctest.Wait()
		if n := informer.InFiles(r.inf); n < 256<<10 {
			t.Errorf("%d bytes wait in files", n)
		}
		if names, err := filepath.Glob(filepath.Join(filepath.Dir(w.path), "informctl-waiting-*")); len(names) > 0 || err != nil {
			t.Errorf("files have the names %q (%v)", names, err)
		}
		close(gate)
		synctest.Wait()
		if diff := cmp.Diff(descriptions(fast), descriptions(slow)); diff != "" {
			t.Errorf("the slow handler was told otherwise (-fast +slow):\n%s", diff)
		}
		if n := informer.InFiles(r.inf); n != 0 {
			t.Errorf("%d bytes are left in files", n)
		}
		r.end()
	})
}

func descriptions(p *pointers) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]string, len(p.told))
	for i, obj := range p.told {
		out[i] = describe(obj)
	}
	return out
}

// TestSpillLimit checks that at the limit the informer waits for its handlers, until they
// continue or are removed, or the informer is stopped.
func TestSpillLimit(t *testing.T) {
	for name, release := range map[string]func(r *run, gate chan struct{}, slow cache.ResourceEventHandlerRegistration){
		"handler goes on": func(_ *run, gate chan struct{}, _ cache.ResourceEventHandlerRegistration) { close(gate) },
		"handler is removed": func(r *run, _ chan struct{}, slow cache.ResourceEventHandlerRegistration) {
			_ = r.inf.RemoveEventHandler(slow)
		},
		"informer stops": func(r *run, _ chan struct{}, _ cache.ResourceEventHandlerRegistration) { r.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				gate := make(chan struct{})
				var slow cache.ResourceEventHandlerRegistration
				r := w.run(informer.Options{}, func(inf *informer.Informer) {
					informer.SetBacklogLimits(inf, 16<<10, 16<<10, 64<<10)
					var err error
					if slow, err = inf.AddEventHandler(newPointers(gate)); err != nil {
						w.Fatal(err)
					}
				}).sync()
				last := ""
				for i := range 5000 {
					last = w.put(fmt.Sprintf("o-%d", i%1000), fmt.Sprint(i))
					if i%100 == 0 {
						synctest.Wait()
					}
				}
				synctest.Wait()
				// A chunk that stays in memory counts, too.
				if n := informer.InFiles(r.inf); n < 32<<10 || n > 256<<10 {
					t.Errorf("%d bytes wait in files", n)
				}
				if rv := r.inf.GetStore().LastStoreSyncResourceVersion(); rv == last {
					t.Errorf("nothing waits: the store is at %s", rv)
				}
				release(r, gate, slow)
				synctest.Wait()
				if rv := r.inf.GetStore().LastStoreSyncResourceVersion(); name != "informer stops" && rv != last {
					t.Errorf("the store is at %s, want %s", rv, last)
				}
				if name != "handler goes on" {
					close(gate)
				}
				r.end()
			})
		})
	}
}

// TestBlockedSeconds checks that a wait for handlers counts while it lasts, and no
// longer.
func TestBlockedSeconds(t *testing.T) {
	inBubble(t, func(w *world) {
		r, gate, _, _ := slowRun(w, 64<<10, 5000)
		check := func(when string, want float64) {
			w.Helper()
			if got := r.inf.Status().BlockedSeconds; got != want {
				w.Errorf("%s: %v seconds, want %v", when, got, want)
			}
		}
		check("it has just begun to wait", 0)
		waitFor(10 * time.Second)
		check("it waits", 10)
		waitFor(5 * time.Second)
		check("it waits still", 15)
		close(gate)
		synctest.Wait()
		waitFor(time.Minute)
		check("the handler went on", 15)
		r.end()
	})
}

// TestMemoryBytes checks that the estimated memory of a scope grows with its handler
// queues and shrinks again.
func TestMemoryBytes(t *testing.T) {
	inBubble(t, func(w *world) {
		r, gate, _, _ := slowRun(w, 1<<30, 3000)
		look := func(when string) informer.Status {
			w.Helper()
			s := r.inf.Status()
			sum := s.Commits.PendingBytes + s.Reads.DecodedBytes + 70*int64(s.Objects)
			for _, h := range s.Handlers {
				sum += h.BytesInMemory
			}
			if s.MemoryBytes != sum || s.Reads.DecodedBytes < 256*int64(s.Objects) {
				w.Errorf("%s: %d bytes of memory, want %d: %+v, %+v, %+v", when, s.MemoryBytes, sum, s.Commits, s.Reads, s.Handlers)
			}
			return s
		}
		slow := look("a handler is slow").Handlers
		// The first and the last entries stay in memory, 64 KiB of each and one more, and
		// the keys of the rest.
		if slow[0].BytesInMemory < 64<<10+70*2000 || slow[0].BytesInMemory > 136<<10+70*3000 || slow[1].BytesInMemory != 0 {
			w.Errorf("handlers: %+v", slow)
		}
		close(gate)
		waitFor(time.Minute)
		if s := look("it went on"); s.Handlers[0].BytesInMemory != 0 || s.Commits.PendingBytes != 0 {
			w.Errorf("%+v", s)
		}
		r.end()
		unpersisted, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if n := unpersisted.Status().MemoryBytes; n != 0 {
			t.Errorf("in memory only: %d bytes, which nobody has measured", n)
		}
	})
}

// TestSpillDamaged checks that a file that cannot be read costs intermediate states, but
// not the last state: the handler receives one add for each object, and then the present
// state as updates and deletions (promises 4 and 5).
func TestSpillDamaged(t *testing.T) {
	inBubble(t, func(w *world) {
		gate := make(chan struct{})
		state := map[string]string{} // as the handler knows it
		var wrong []string
		note := func(what string, obj any) {
			<-gate
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			cm := obj.(*corev1.ConfigMap)
			_, known := state[cm.Name]
			if known == (what == "add") {
				wrong = append(wrong, what+" "+cm.Name)
			}
			if state[cm.Name] = cm.Data["v"]; what == "delete" {
				delete(state, cm.Name)
			}
		}
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { note("add", obj) },
			UpdateFunc: func(_, obj any) { note("update", obj) },
			DeleteFunc: func(obj any) { note("delete", obj) },
		}
		for i := range 100 {
			w.put(fmt.Sprintf("old-%d", i), "first")
		}
		r := w.run(informer.Options{}, func(inf *informer.Informer) {
			informer.SetBacklogLimits(inf, 16<<10, 16<<10, 1<<30)
		}, handle(w, handler))
		synctest.Wait()
		for i := range 3000 {
			w.put(fmt.Sprintf("o-%d", i%500), fmt.Sprint(i))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		for i := range 50 {
			w.drop(fmt.Sprintf("old-%d", i))
			w.drop(fmt.Sprintf("o-%d", i))
		}
		synctest.Wait()
		breakFiles(w, filepath.Dir(w.path))
		close(gate)
		synctest.Wait()
		want := map[string]string{}
		for _, obj := range r.inf.GetStore().List() {
			cm := obj.(*corev1.ConfigMap)
			want[cm.Name] = cm.Data["v"]
		}
		if !maps.Equal(want, state) {
			t.Errorf("the handler knows otherwise (-store +handler):\n%s", cmp.Diff(want, state))
		}
		if len(wrong) > 0 {
			t.Errorf("out of order: %s", strings.Join(wrong, ", "))
		}
		if n := informer.InFiles(r.inf); n != 0 {
			t.Errorf("%d bytes are left in files", n)
		}
		r.end()
	})
}

// breakFiles makes the spilled entries unreadable. Their files have no names, so it finds
// them among the process's open files.
func breakFiles(tb testing.TB, dir string) {
	tb.Helper()
	const open = "/proc/self/fd"
	files, err := os.ReadDir(open)
	if err != nil {
		tb.Skip("NOT TESTED: finding unnamed files needs Linux's /proc: ", err)
	}
	broken := 0
	for _, file := range files {
		path := filepath.Join(open, file.Name())
		if name, err := os.Readlink(path); err != nil || !strings.HasPrefix(name, filepath.Join(dir, "informctl-waiting-")) {
			continue
		}
		if err := os.Truncate(path, 100); err != nil {
			tb.Fatal(err)
		}
		broken++
	}
	if broken == 0 {
		tb.Fatal("no file has spilled entries")
	}
}

// noDisk is a database in a directory where no file can be created.
type noDisk struct{ *bolt.DB }

func (noDisk) Path() string { return "/nonexistent/informers.db" }

// TestSpillLimitWithoutDisk checks that entries that cannot be written to a file count
// towards the limit all the same.
func TestSpillLimitWithoutDisk(t *testing.T) {
	inBubble(t, func(w *world) {
		gate := make(chan struct{})
		db := w.open()
		r := w.run(informer.Options{Backend: noDisk{db}}, func(inf *informer.Informer) {
			informer.SetBacklogLimits(inf, 16<<10, 16<<10, 64<<10)
		}, handle(w, newPointers(gate))).sync()
		last := ""
		for i := range 5000 {
			last = w.put(fmt.Sprintf("o-%d", i%1000), fmt.Sprint(i))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if rv := r.inf.GetStore().LastStoreSyncResourceVersion(); rv == last {
			t.Error("nothing waits")
		}
		close(gate)
		synctest.Wait()
		if n := informer.InFiles(r.inf); n != 0 {
			t.Errorf("%d bytes are counted still", n)
		}
		r.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSpillWithoutDisk checks that all entries stay in memory if no file can be created.
func TestSpillWithoutDisk(t *testing.T) {
	inBubble(t, func(w *world) {
		gate := make(chan struct{})
		slow, fast := newPointers(gate), newPointers(nil)
		r := w.run(informer.Options{}, func(inf *informer.Informer) {
			informer.SetBacklogLimits(inf, 16<<10, 16<<10, 1<<30)
		}, handle(w, slow), handle(w, fast)).sync()
		if err := os.Rename(filepath.Dir(w.path), filepath.Dir(w.path)+"-gone"); err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			w.put(fmt.Sprintf("o-%d", i%500), fmt.Sprint(i))
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if diff := cmp.Diff(descriptions(fast), descriptions(slow)); diff != "" {
			t.Errorf("the slow handler was told otherwise (-fast +slow):\n%s", diff)
		}
		r.end()
	})
}

// TestSpillDamagedOfConsumer checks that a durable handler receives everything and syncs
// although the file of its queue cannot be read while it works on the log.
func TestSpillDamagedOfConsumer(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		t.Run(fmt.Sprint(breaks), func(t *testing.T) {
			inBubble(t, func(w *world) {
				start := func(version string, h cache.ResourceEventHandler) (*run, *durable.Consumer, cache.ResourceEventHandlerRegistration) {
					db := w.open()
					c, err := durable.Open(db, "test", durable.Options{Version: version, Unchanged: durable.Skip})
					if err != nil {
						t.Fatal(err)
					}
					var reg cache.ResourceEventHandlerRegistration
					r := w.run(informer.Options{Backend: db}, func(inf *informer.Informer) {
						informer.SetBacklogLimits(inf, 16<<10, 16<<10, 1<<30)
						if reg, err = inf.AddEventHandler(c.Handler(h)); err != nil {
							t.Fatal(err)
						}
					})
					r.db = db
					return r.sync(), c, reg
				}
				for i := range 10 {
					w.put(fmt.Sprint("old-", i), "1")
				}
				r, c, reg := start("1", &log{})
				waitFor(time.Minute)
				_ = r.inf.RemoveEventHandler(reg) // the place stays
				w.put("x", "1")
				waitFor(time.Minute)
				endConsumer(r, c)

				gate := make(chan struct{})
				told := &log{hook: func(string) { <-gate }}
				r, c, reg = start("2", told)
				for i := range 3000 {
					w.put(fmt.Sprintf("o-%d", i%500), fmt.Sprint(i))
					if i%100 == 0 {
						synctest.Wait()
					}
				}
				synctest.Wait()
				if breaks {
					breakFiles(w, filepath.Dir(w.path))
				}
				close(gate)
				waitFor(time.Hour)
				if !reg.HasSynced() {
					t.Error("the handler is not synced after an hour")
				}
				if lines := told.take(); !contains(lines, "initial old-3") {
					t.Errorf("old-3 was not received: %d lines", len(lines))
				}
				endConsumer(r, c)
			})
		})
	}
}

// endConsumer ends a run, the consumer of its handler and its database.
func endConsumer(r *run, c *durable.Consumer) {
	r.stop()
	<-r.done
	_ = c.Close()
	_ = r.db.Close()
}

// TestSpillDamagedPlace checks that the place of a durable handler stays where it is if
// the states before are lost with the file of its queue: the next process brings them.
func TestSpillDamagedPlace(t *testing.T) {
	for _, mode := range []string{"whole", "broken, repeated keys", "broken, each key once"} {
		t.Run(mode, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var gate chan struct{}
				told := &log{}
				withOld := map[string]bool{}
				note := func(lines []string) {
					for _, l := range lines {
						if strings.Contains(l, "=owner-before o-") {
							withOld[strings.Fields(l)[1]] = true
						}
					}
				}
				start := func() (*run, *durable.Consumer) {
					db := w.open()
					c, err := durable.Open(db, "test", durable.Options{Version: "1", Unchanged: durable.Skip})
					if err != nil {
						t.Fatal(err)
					}
					r := w.run(informer.Options{Backend: db}, func(inf *informer.Informer) {
						informer.SetBacklogLimits(inf, 16<<10, 16<<10, 1<<30)
						if _, err = inf.AddEventHandler(c.Handler(told)); err != nil {
							t.Fatal(err)
						}
					})
					r.db = db
					return r.sync(), c
				}
				for i := range 3000 {
					w.put(fmt.Sprint("o-", i), "owner-before")
				}
				r, c := start()
				waitFor(time.Minute)
				told.take()
				gate = make(chan struct{})
				told.mu.Lock()
				told.hook = func(string) { <-gate }
				told.mu.Unlock()
				keys := 3000
				if mode == "broken, repeated keys" {
					keys = 500
				}
				for i := range 3000 {
					w.put(fmt.Sprint("o-", i%keys), fmt.Sprint("owner-after-", i))
					if i%100 == 0 {
						synctest.Wait()
					}
				}
				synctest.Wait()
				if mode != "whole" {
					breakFiles(w, filepath.Dir(w.path))
				}
				close(gate)
				waitFor(time.Minute)
				lines := told.take()
				note(lines)
				before := len(lines)
				for i := range 100 { // later changes, which are handled
					w.put(fmt.Sprint("later-", i), "1")
				}
				waitFor(time.Hour)
				later := len(told.take())
				endConsumer(r, c)
				r, c = start()
				waitFor(time.Minute)
				again := told.take()
				t.Logf("%s: received %d, then %d later; the next process received %d again", mode, before, later, len(again))
				note(again)
				if len(withOld) != keys {
					t.Errorf("of %d updates, the handler has received the state before of %d, in both processes", keys, len(withOld))
				}
				endConsumer(r, c)
			})
		})
	}
}
