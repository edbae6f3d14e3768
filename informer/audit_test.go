package informer_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

var auditSeed = flag.Uint64("audit-seed", 0, "the only seed of TestAuditOfABusyCollection; 0 is all")

// anotherHistory gives the server a history that diverged before the informer's resource
// version and has grown past it, so that no probe detects it.
func (w *world) anotherHistory(running func()) (found []string) {
	for _, name := range []string{"a", "b", "c", "d"} {
		w.put(name, "first") // to 5
	}
	running()
	w.put("ghost", "first") // 6
	w.put("b", "this")      // 7
	w.drop("d")
	w.put("d", "again") // 9
	w.drop("c")         // 10
	waitFor(2 * time.Second)
	if err := w.server.Rewind("5"); err != nil {
		w.Fatal(err)
	}
	w.put("new", "first") // 6
	w.put("b", "that")    // 7
	for range 5 {
		w.put("seen", fmt.Sprint("at ", w.server.RV())) // 12
	}
	return []string{"content default/b", "ghost default/ghost", "missing default/c", "missing default/new", "uid default/d"}
}

// TestAudit checks that an audit detects the differences after an etcd was restored and
// has grown, that handlers receive them, and that a list repairs them, so that the next
// audit has no findings. Without audits the differences remain.
func TestAudit(t *testing.T) {
	for name, opts := range map[string]informer.Options{
		"file":   {AuditInterval: time.Hour},
		"memory": {AuditInterval: time.Hour, Backend: mem.New()},
		"never":  {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				told := guarantees.New(nil)
				var r *run
				want := w.anotherHistory(func() { r = w.run(opts, handle(w, told)).sync() })
				told.Rewound()
				hasGhost := func() bool { _, has := told.Held()["default/ghost"]; return has }
				if opts.Backend != nil {
					defer func() { _ = opts.Backend.Close() }()
				}
				waitFor(30 * time.Minute)
				if got := r.inf.Status(); got.Lists != 1 || got.Missing != "" || !hasGhost() || told.Held()["default/seen"].RV != "12" {
					t.Fatalf("the other history is noticed without an audit: %+v, told %v", got, told.Held())
				}
				waitFor(90 * time.Minute)
				got := r.inf.Status()
				if opts.AuditInterval == 0 {
					if got.Audit != nil || !hasGhost() {
						t.Errorf("there was an audit: %+v", got.Audit)
					}
					r.end()
					return
				}
				if got.Audit.Total != len(want) || got.Audit.Count == 0 || got.ListsByReason["an audit found another history"] != 1 {
					t.Errorf("audits %+v, lists %v", got.Audit, got.ListsByReason)
				}
				r.atRest(told)
				waitFor(3 * time.Hour)
				if again := r.inf.Status().Audit; again.Total != len(want) || again.Findings != 0 || again.First != "" || again.Count < 3 || again.Objects != 6 {
					t.Errorf("later: %+v", again)
				}
				r.end()
			})
		})
	}
}

// TestAuditSaysWhat checks the kind and the key of each finding, and their order.
func TestAuditSaysWhat(t *testing.T) {
	inBubble(t, func(w *world) {
		var r *run
		want := w.anotherHistory(func() { r = w.run(informer.Options{AuditInterval: time.Hour}).sync() })
		waitFor(30 * time.Minute)
		w.server.Hold() // the audit's list, and then the relist
		waitFor(time.Hour)
		w.server.Release()
		synctest.Wait()
		got := r.inf.Status().Audit
		if got.Findings != len(want) || got.First != want[0] || got.Count != 1 {
			t.Errorf("audit: %+v, want %q", got, want)
		}
		r.end()
	})
}

// TestAuditOfABusyCollection checks that an audit of an unchanged history has no
// findings, whatever happens to the collection, its watches and the server's memory
// meanwhile.
func TestAuditOfABusyCollection(t *testing.T) {
	audits := 0
	for seed := uint64(1); seed <= 15; seed++ {
		if *auditSeed != 0 && seed != *auditSeed {
			continue
		}
		inBubble(t, func(w *world) { audits += auditBusy(w, seed) })
		if t.Failed() {
			t.Fatalf("run again with -audit-seed %d", seed)
		}
	}
	t.Logf("%d audits", audits)
}

func auditBusy(w *world, seed uint64) (audits int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{MaxPage: 10, NoBookmarks: seed%5 == 0, NoWatchList: seed%2 == 0})
	opts := informer.Options{AuditInterval: 20 * time.Second, DecodedBytes: 1, TransformVersion: "1"}
	if seed%4 == 0 {
		opts.Backend = mem.New()
	}
	transform := func(inf *informer.Informer) {
		blank := seed%7 == 0
		if err := inf.SetTransform(func(obj any) (any, error) {
			cm := obj.(*corev1.ConfigMap)
			if blank {
				cm.ResourceVersion = ""
			}
			if cm.Data["v"] == "bad" {
				return nil, errOnPurpose
			}
			cm.Labels = nil
			return cm, nil
		}); err != nil {
			w.Error(err)
		}
	}
	there := map[string]bool{}
	for i := range 60 {
		there[fmt.Sprintf("o-%02d", i)] = true
		w.put(fmt.Sprintf("o-%02d", i), "first")
	}
	told := guarantees.New(nil)
	r := w.run(opts, transform, handle(w, told)).sync()
	for range 300 {
		waitFor(time.Duration(rng.IntN(3000)) * time.Millisecond)
		for range rng.IntN(8) {
			name := fmt.Sprintf("o-%02d", rng.IntN(80))
			switch {
			case !there[name]:
				w.put(name, "again")
				there[name] = true
			case rng.IntN(2) == 0:
				w.drop(name)
				there[name] = false
			case seed%3 == 0 && rng.IntN(40) == 0:
				w.put(name, "bad") // while such an object exists, audits hardly ever run
			default:
				w.put(name, fmt.Sprint(rng.IntN(1000)))
			}
		}
		switch rng.IntN(40) {
		case 0:
			w.server.CloseWatches()
		case 1:
			w.server.CloseWatches()
			if err := w.server.Compact(w.server.RV()); err != nil {
				w.Fatal(err)
			}
		case 2:
			w.server.Slow(time.Duration(rng.IntN(2000)) * time.Millisecond)
		case 3:
			w.server.Slow(0)
		case 4:
			w.server.Down()
			waitFor(time.Duration(rng.IntN(20)) * time.Second)
			w.server.Up()
		case 5:
			if r.db != nil {
				told.Damaged()
				if _, err := r.db.Wipe(nil); err != nil {
					w.Error(err)
				}
			}
		}
	}
	w.server.Slow(0)
	waitFor(10 * time.Minute)
	got := r.inf.Status().Audit
	if got.Total != 0 || got.Count == 0 && seed%3 != 0 {
		w.Errorf("audits: %+v", got)
	}
	held, err := guarantees.States(r.inf.GetStore().List())
	if err != nil {
		w.Error(err)
	}
	told.AtRest(held)
	for _, violation := range told.Violations() {
		w.Error(violation)
	}
	r.end()
	if opts.Backend != nil {
		_ = opts.Backend.Close()
	}
	return got.Count
}

// TestAuditFails checks that a failed audit reports its error until one succeeds.
func TestAuditFails(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "first")
		r := w.run(informer.Options{AuditInterval: time.Hour}).sync()
		w.server.FailList(errOnPurpose)
		w.passMinutes(80)
		if got := r.inf.Status().Audit; got.Count != 0 || !strings.Contains(got.Error, errOnPurpose.Error()) {
			t.Errorf("after a list that failed: %+v", got)
		}
		w.passMinutes(80)
		if got := r.inf.Status().Audit; got.Count == 0 || got.Error != "" || got.Findings != 0 {
			t.Errorf("after one that did not: %+v", got)
		}
		r.end()
	})
	_, err := informer.New(&cache.ListWatch{}, &corev1.ConfigMap{}, informer.Options{AuditInterval: -1})
	if err == nil || !strings.Contains(err.Error(), "AuditInterval") {
		t.Errorf("a negative interval: error is %v", err)
	}
}

// passMinutes lets time pass on a busy server. Its watches bring bookmarks, so no probe
// precedes them.
func (w *world) passMinutes(n int) {
	for range n {
		w.server.Advance()
		waitFor(time.Minute)
	}
}

// TestAuditAsksConsistently checks that no page of an audit accepts stale data.
func TestAuditAsksConsistently(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 1200 {
			w.put(fmt.Sprintf("o-%d", i), "first")
		}
		r := w.run(informer.Options{AuditInterval: time.Hour, Scope: store.Scope{Cluster: "c"}}).sync()
		since := len(w.server.Requests())
		w.passMinutes(80)
		pages, last := 0, time.Time{}
		for _, q := range w.server.Requests()[since:] {
			if q.Verb != "list" {
				continue
			}
			if q.Options.ResourceVersion != "" || q.Options.ResourceVersionMatch != "" || q.Options.Limit != 500 {
				t.Errorf("page %d asks for %+v", pages, q.Options)
			}
			if pages++; pages > 1 && q.Time.Sub(last) < time.Second {
				t.Errorf("page %d comes %s after the one before", pages, q.Time.Sub(last))
			}
			last = q.Time
		}
		if pages != 3 || r.inf.Status().Audit.Objects != 1200 {
			t.Errorf("%d pages, audit %+v", pages, r.inf.Status().Audit)
		}
		r.end()
	})
}

// TestAuditTransformReads checks that a transform may read the informer when an audit
// calls it while the stored objects are lost: the list waits for the transform.
func TestAuditTransformReads(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		var inf *informer.Informer
		var wipe atomic.Pointer[func()]
		db := w.open()
		r := w.run(informer.Options{Backend: db, TransformVersion: "1", AuditInterval: time.Minute}, func(i *informer.Informer) {
			inf = i
			_ = i.SetTransform(func(obj any) (any, error) {
				if f := wipe.Swap(nil); f != nil {
					(*f)()
					_ = inf.GetStore().List()
				}
				return obj, nil
			})
		}).sync()
		waitFor(2 * time.Second)
		f := func() {
			if _, err := db.Wipe(nil); err != nil {
				t.Error(err)
			}
		}
		wipe.Store(&f)
		waitFor(10 * time.Minute)
		if wipe.Load() != nil {
			t.Fatal("no audit")
		}
		w.put("b", "1")
		waitFor(10 * time.Minute)
		found := make(chan int, 1)
		go func() { found <- len(inf.GetStore().List()) }()
		waitFor(10 * time.Minute)
		select {
		case n := <-found:
			if n != 2 {
				t.Errorf("%d objects, want 2", n)
			}
		default:
			t.Error("List hangs for 10 minutes after the audit's transform has read")
		}
		r.end()
		_ = db.Close()
	})
}

// TestAuditIgnoresContext checks that Run ends although an audit's list ignores its
// context.
func TestAuditIgnoresContext(t *testing.T) {
	for _, audits := range []bool{false, true} {
		t.Run(fmt.Sprint(audits), func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				var hang atomic.Bool
				release := make(chan struct{})
				inner := cache.ToListerWatcherWithContext(w.server)
				w.lw = &cache.ListWatch{
					ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
						if hang.Load() {
							<-release
						}
						return inner.ListWithContext(t.Context(), opts)
					},
					WatchFuncWithContext: inner.WatchWithContext,
				}
				opts := informer.Options{}
				if audits {
					opts.AuditInterval = time.Minute
				}
				r := w.run(opts).sync()
				hang.Store(true)
				if !audits { // the reflector's list hangs instead
					w.server.FailWatch(errOnPurpose)
					w.server.CloseWatches()
				}
				waitFor(5 * time.Minute)
				r.stop()
				waitFor(time.Minute)
				select {
				case <-r.done:
				default:
					t.Error("Run has not returned a minute after the end of its context")
				}
				close(release)
				synctest.Wait()
				r.end()
			})
		})
	}
}
