package informer_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// These tests check the intended differences that no script of TestTraces can show. Each
// test also checks client-go's behavior, so that it fails if client-go changes and the
// difference disappears. "Ours" is our informer, "client-go's" its informer.

// pick returns the expected value for this informer.
func pick[T any](s *subjectOf, clientGo, ours T) T {
	if s.ours {
		return ours
	}
	return clientGo
}

func (s *subjectOf) transform(f func(*corev1.ConfigMap) (any, error)) {
	s.Helper()
	err := s.inf.SetTransform(func(obj any) (any, error) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			return f(cm)
		}
		return obj, nil // client-go calls it with its own result
	})
	if err != nil {
		s.Fatal(err)
	}
}

// told checks the notifications of a handler, in any order.
func (s *subjectOf) told(l *log, want ...string) {
	s.Helper()
	synctest.Wait()
	got := sameButUnchanged(l.take())
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("handler was told (-want +got):\n%s", diff)
	}
}

// losesHistory makes the server lose the history of what happens in f.
func (s *subjectOf) losesHistory(f func()) {
	waitFor(2 * time.Second) // client-go treats a watch that ends at once as failed
	s.server.Down()
	f()
	if err := s.server.Compact(s.server.RV()); err != nil {
		s.Fatal(err)
	}
	s.server.Up()
	waitFor(settling)
}

// unstreamed is a server whose client reports that it does not stream lists.
type unstreamed struct{ *fakeapi.Server }

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

func (s *subjectOf) unstreamed() {
	construct := pick(s, clientGo, onMem)
	s.inf, _ = construct(s.T, unstreamed{s.server}, 0, nil)
}

// TestDifferenceTransformOnce: client-go's transforms the objects of a streamed list
// twice.
func TestDifferenceTransformOnce(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		calls := 0
		s.transform(func(cm *corev1.ConfigMap) (any, error) {
			calls++
			cm.Data["v"] += "!"
			return cm, nil
		})
		l := &log{}
		s.handle(l)
		s.put("a", "1")
		s.start().sync()
		s.told(l, pick(s, "initial a@2=1!!", "initial a@2=1!"))
		if want := pick(s, 2, 1); calls != want {
			s.Errorf("%d calls for one object, want %d", calls, want)
		}
		s.put("a", "2")
		s.told(l, pick(s, "update a@2=1!! a@3=2!", "update a@2=1! a@3=2!"))
	})
}

// TestDifferenceTransformError: an object whose transform fails keeps its last good
// state. In client-go's, a streamed list deletes the object, a list in pages never ends,
// and the deletion of the object is lost.
func TestDifferenceTransformError(t *testing.T) {
	quietErrors(t)
	fails := func(cm *corev1.ConfigMap) (any, error) {
		if cm.Data["v"] == "bad" {
			return nil, errOnPurpose
		}
		return cm, nil
	}
	begin := func(s *subjectOf) *log {
		s.transform(fails)
		l := &log{}
		s.handle(l)
		s.put("a", "1") // 2
		s.put("b", "1") // 3
		s.start().sync()
		s.put("a", "bad") // 4
		waitFor(settling)
		s.told(l, "initial a@2=1", "initial b@3=1")
		return l
	}
	change := func(s *subjectOf) func() { return func() { s.put("b", "2") } }
	t.Run("stream", func(t *testing.T) {
		onEach(t, 0, nil, func(s *subjectOf) {
			l := begin(s)
			s.losesHistory(change(s))
			s.told(l, pick(s, []string{"delete tombstone a@2=1", "update b@3=1 b@5=2"}, []string{"update b@3=1 b@5=2"})...)
		})
	})
	t.Run("pages", func(t *testing.T) {
		onEach(t, 0, nil, func(s *subjectOf) {
			s.unstreamed()
			l := begin(s)
			s.losesHistory(change(s))
			s.told(l, pick(s, nil, []string{"update b@3=1 b@5=2"})...)
		})
	})
	t.Run("deletion", func(t *testing.T) {
		onEach(t, 0, nil, func(s *subjectOf) {
			l := begin(s)
			s.drop("a")
			waitFor(settling)
			s.told(l, pick(s, nil, []string{"delete tombstone a@2=1"})...)
		})
	})
}

// TestDifferenceTransformResult: client-go's stores any result of a transform; ours
// accepts only objects of the example's type.
func TestDifferenceTransformResult(t *testing.T) {
	quietErrors(t)
	onEach(t, 0, nil, func(s *subjectOf) {
		s.transform(func(cm *corev1.ConfigMap) (any, error) {
			if cm.Name == "meta" {
				return &metav1.PartialObjectMetadata{ObjectMeta: cm.ObjectMeta}, nil
			}
			return cm, nil
		})
		s.put("a", "1")
		s.start().sync()
		s.put("meta", "1")
		waitFor(settling)
		keys := s.inf.GetStore().ListKeys()
		slices.Sort(keys)
		if want := pick(s, []string{"default/a", "default/meta"}, []string{"default/a"}); !slices.Equal(keys, want) {
			s.Errorf("keys %q, want %q", keys, want)
		}
	})
}

// TestDifferenceBlankRV: a transform may clear the resource version. client-go's store
// then has none and treats every update as a resync, which a handler without a period
// does not receive.
func TestDifferenceBlankRV(t *testing.T) {
	onEach(t, time.Hour, nil, func(s *subjectOf) {
		s.transform(func(cm *corev1.ConfigMap) (any, error) {
			cm.ResourceVersion = ""
			return cm, nil
		})
		l := &log{}
		never := time.Duration(0)
		if _, err := s.inf.AddEventHandlerWithResyncPeriod(l, never); err != nil {
			s.Fatal(err)
		}
		s.put("a", "1")
		s.start().sync()
		waitFor(2 * time.Hour)
		l.take()
		rv := s.put("a", "2")
		s.want(l, pick(s, nil, []string{"update a@=1 a@=2"})...)
		if got := s.inf.GetStore().LastStoreSyncResourceVersion(); got != pick(s, "", rv) {
			s.Errorf("the store's resource version is %q", got)
		}
	})
}

// TestDifferenceBadIndexFunction: if an index function fails, client-go's store panics
// with the object half written; ours refuses the object.
func TestDifferenceBadIndexFunction(t *testing.T) {
	fail := true
	onEach(t, 0, cache.Indexers{"v": byValue(&fail, false)}, func(s *subjectOf) {
		indexer := s.inf.GetIndexer()
		panicked, err := false, error(nil)
		func() {
			defer func() { panicked = recover() != nil }()
			err = indexer.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"v": "bad"}})
		}()
		if panicked != !s.ours || s.ours && !errors.Is(err, errOnPurpose) {
			s.Errorf("panicked: %v, error: %v", panicked, err)
		}
		if _, there, err := indexer.GetByKey("a"); there != !s.ours || err != nil {
			s.Errorf("stored: %v, %v", there, err)
		}
	})
}

// TestDifferenceNilIndexers: client-go's panics if it was created without indexers and
// some are added.
func TestDifferenceNilIndexers(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		defer func() {
			if panicked := recover() != nil; panicked != !s.ours {
				s.Errorf("panicked: %v", panicked)
			}
		}()
		if err := s.inf.AddIndexers(cache.Indexers{"v": byValue(new(bool), false)}); err != nil {
			s.Error(err)
		}
	})
}

// TestDifferenceWritesAfterEnd: after the informer has ended, client-go's store takes
// writes; ours refuses them, because another informer may have the scope by then.
func TestDifferenceWritesAfterEnd(t *testing.T) {
	onEach(t, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(s *subjectOf) {
		s.put("a", "1")
		s.start().sync()
		s.end()
		indexer := s.inf.GetIndexer()
		a := valued("a", "2")
		for what, write := range map[string]func() error{
			"Add":     func() error { return indexer.Add(valued("b", "1")) },
			"Update":  func() error { return indexer.Update(a) },
			"Delete":  func() error { return indexer.Delete(valued("b", "1")) },
			"Replace": func() error { return indexer.Replace([]any{a}, "9") },
		} {
			if err := write(); (err == nil) == s.ours || s.ours && !errors.Is(err, store.ErrClosed) {
				s.Errorf("%s: %v", what, err)
			}
		}
		indexer.Bookmark("10")
		obj, there, err := indexer.GetByKey("default/a")
		if !there || err != nil {
			s.Fatal(there, err)
		}
		if got := obj.(*corev1.ConfigMap).Data["v"]; got != pick(s, "2", "1") {
			s.Errorf("stored: %s", got)
		}
		if found, err := indexer.ByIndex(cache.NamespaceIndex, "default"); len(found) == 0 || err != nil {
			s.Errorf("ByIndex: %d objects, %v", len(found), err)
		}
		if got := indexer.LastStoreSyncResourceVersion(); (got == "10") == s.ours {
			s.Errorf("resource version %s", got)
		}
	})
}

// TestDifferenceCallersIndexers: client-go's keeps the map that it received, adds to it,
// and returns it.
func TestDifferenceCallersIndexers(t *testing.T) {
	given := cache.Indexers{"v": byValue(new(bool), false)}
	for name, construct := range map[string]makeInformer{"client-go": clientGo, "ours": onMem} {
		t.Run(name, func(t *testing.T) {
			indexers := cache.Indexers{"v": given["v"]}
			inf, _ := construct(t, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{}), 0, indexers)
			if err := inf.AddIndexers(cache.Indexers{"more": given["v"]}); err != nil {
				t.Error(err)
			}
			inf.GetIndexer().GetIndexers()["mine"] = given["v"]
			_, mine := inf.GetIndexer().GetIndexers()["mine"]
			if ours := name == "ours"; mine != !ours || len(indexers) != map[bool]int{true: 1, false: 3}[ours] {
				t.Errorf("the caller's map has %d names; a name that was put into GetIndexers is an index: %v", len(indexers), mine)
			}
		})
	}
}

// TestDifferenceDeletedWhileDown: handlers of client-go's do not receive objects that
// were deleted while the process was down.
func TestDifferenceDeletedWhileDown(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		w.drop("a")
		l := &log{}
		s := &subjectOf{world: w, done: make(chan struct{})}
		s.inf, _ = clientGo(t, w.server, 0, nil)
		s.handle(l)
		s.start().sync()
		s.told(l, "initial b@3=1")
		s.end()
		r := w.run(informer.Options{}, handle(w, l)).sync()
		s.told(l, "initial a@2=1", "delete a@4=1", "initial b@3=1")
		r.end()
	})
}

// TestDifferenceWarmStart: in a process that starts while the server is away, client-go's
// has no objects. Ours has the stored ones, and syncs only after the server has sent the
// missed changes.
func TestDifferenceWarmStart(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.run(informer.Options{}).sync().end()
		w.put("b", "1")
		w.server.Down()
		l := &log{}
		s := &subjectOf{world: w, done: make(chan struct{})}
		s.inf, _ = clientGo(t, w.server, 0, nil)
		s.start()
		r := w.run(informer.Options{}, handle(w, l))
		waitFor(time.Minute)
		s.told(l, "initial a@2=1")
		if got := []bool{s.inf.HasSynced(), r.inf.HasSynced()}; got[0] || got[1] {
			t.Errorf("synced without a server: client-go's %v, ours %v", got[0], got[1])
		}
		if got := []int{len(s.inf.GetStore().ListKeys()), len(r.inf.GetStore().ListKeys())}; got[0] != 0 || got[1] != 1 {
			t.Errorf("objects without a server: client-go's %d, ours %d", got[0], got[1])
		}
		w.server.Up()
		r.sync()
		s.told(l, "initial b@3=1")
		s.sync()
		s.end()
		r.end()
	})
}

// failing is a backend whose stores refuse one change.
type failing struct {
	store.Backend
	refuse *bool
}

func (b *failing) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	return &failingStore{s, b.refuse}, err
}

type failingStore struct {
	store.Store
	refuse *bool
}

func (s *failingStore) Apply(b store.Batch) error {
	if *s.refuse {
		*s.refuse = false
		return errOnPurpose
	}
	return s.Store.Apply(b)
}

// refusing is a store for client-go's reflector that refuses one change.
type refusing struct {
	cache.Store
	refuse *bool
}

func (s *refusing) Add(obj any) error {
	if *s.refuse {
		*s.refuse = false
		return errOnPurpose
	}
	return s.Store.Add(obj)
}

// TestDifferenceStoreError: client-go's reflector loses a change that it cannot write,
// and its resource version advances. Ours lists again.
func TestDifferenceStoreError(t *testing.T) {
	quietErrors(t)
	inBubble(t, func(w *world) {
		refuse := false
		held := &refusing{cache.NewStore(cache.MetaNamespaceKeyFunc), &refuse}
		reflector := cache.NewReflectorWithOptions(w.server, &corev1.ConfigMap{}, held, cache.ReflectorOptions{})
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			reflector.Run(stop)
		}()
		synctest.Wait()
		refuse = true
		rv := w.put("a", "1")
		waitFor(settling)
		if keys, got := held.ListKeys(), reflector.LastSyncResourceVersion(); len(keys) > 0 || got != rv {
			t.Errorf("client-go's: %q at %s, want none at %s", keys, got, rv)
		}
		close(stop)
		<-done

		l := &log{}
		r := w.run(informer.Options{Backend: &failing{mem.New(), &refuse}}, handle(w, l)).sync()
		w.want(l, "initial a@2=1")
		refuse = true
		w.put("a", "2")
		waitFor(settling)
		w.want(l, "update a@2=1 a@3=2")
		r.end()
	})
}

// TestDifferencePanickingHandler: with ReallyCrash off, a handler of client-go's that
// panicked in an initial add never syncs.
func TestDifferencePanickingHandler(t *testing.T) {
	saved := utilruntime.PanicHandlers
	utilruntime.ReallyCrash, utilruntime.PanicHandlers = false, nil
	defer func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = true, saved }()
	onEach(t, 0, nil, func(s *subjectOf) {
		h := s.handle(&log{hook: func(string) { panic("on purpose") }})
		s.put("a", "1")
		s.start().sync()
		waitFor(settling)
		if h.HasSynced() != s.ours {
			s.Errorf("the handler has synced: %v", h.HasSynced())
		}
	})
}

// TestDifferenceWrittenBeforeRun: if an object was written to the store before Run and
// the server does not have it, client-go's sends its deletion without an add. Ours starts
// with the stored objects.
func TestDifferenceWrittenBeforeRun(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		s.handle(l)
		s.put("a", "1")
		for _, name := range []string{"a", "mine"} {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": "mine"}}
			if err := s.inf.GetStore().Add(obj); err != nil {
				s.Error(err)
			}
		}
		s.start().sync()
		s.told(l, pick(s, []string{"delete tombstone mine@=mine", "update a@=mine a@2=1"}, []string{"initial a@2=1"})...)
	})
}

// TestDifferenceRewound: if the server's history goes back, client-go's continues to
// watch from the future, and keeps objects that no longer exist.
func TestDifferenceRewound(t *testing.T) {
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		s.handle(l)
		base := s.put("a", "1")
		s.start().sync()
		s.put("ghost", "1")
		waitFor(2 * time.Second)
		l.take()
		if err := s.server.Rewind(base); err != nil {
			s.Fatal(err)
		}
		waitFor(settling)
		s.told(l, pick(s, nil, []string{"delete tombstone ghost@3=1"})...)
	})
}
