package informer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// TestWritesThroughIndexer writes through the indexer of a running informer what the
// server does not have. The next process lists, unless the server has sent the object
// since.
func TestWritesThroughIndexer(t *testing.T) {
	object := func(name, data, rv string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u", ResourceVersion: rv, Labels: map[string]string{"app": data}},
			Data:       map[string]string{"v": data},
		}
	}
	for name, test := range map[string]struct {
		write func(w *world, x cache.Indexer) error
		lists int
	}{
		"refused": {func(_ *world, x cache.Indexer) error {
			if x.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}) == nil {
				return errors.New("a pod was accepted")
			}
			return nil
		}, 0},
		"what an update returned, after the server": {func(w *world, x cache.Indexer) error {
			rv := w.put("a", "2")
			waitFor(time.Second)
			obj, _, err := x.GetByKey("default/a")
			if err != nil {
				return err
			}
			untransformed := obj.(*corev1.ConfigMap).DeepCopy()
			untransformed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
			if untransformed.ResourceVersion != rv {
				return errors.New("the watch has not brought it")
			}
			return x.Update(untransformed)
		}, 0},
		"deleted here":               {func(_ *world, x cache.Indexer) error { return x.Delete(object("a", "", "")) }, 1},
		"an older state":             {func(_ *world, x cache.Indexer) error { return x.Update(object("a", "0", "1")) }, 1},
		"without a resource version": {func(_ *world, x cache.Indexer) error { return x.Add(object("new", "1", "")) }, 1},
		"never there":                {func(_ *world, x cache.Indexer) error { return x.Delete(object("new", "", "")) }, 0},
		"all replaced":               {func(_ *world, x cache.Indexer) error { return x.Replace([]any{object("a", "0", "1")}, "9") }, 1},
		"another content": {func(_ *world, x cache.Indexer) error {
			obj := x.List()[0].(*corev1.ConfigMap).DeepCopy()
			obj.Data["v"] = "assumed"
			return x.Update(obj)
		}, 1},
		"what the server sent": {func(_ *world, x cache.Indexer) error { return x.Update(x.List()[0]) }, 0},
		"before the server": {func(w *world, x cache.Indexer) error {
			if err := x.Delete(object("a", "", "")); err != nil {
				return err
			}
			w.drop("a")
			return nil
		}, 0},
		"after the server": {func(w *world, x cache.Indexer) error {
			w.drop("a")
			waitFor(time.Second)
			return x.Delete(object("a", "", ""))
		}, 0},
		"what an update returned": {func(w *world, x cache.Indexer) error {
			w.server.Slow(time.Second)
			err := x.Update(object("a", "2", w.put("a", "2")))
			waitFor(2 * time.Second)
			w.server.Slow(0)
			return err
		}, 0},
		"what a create returned, of what is not selected": {func(w *world, x cache.Indexer) error {
			w.server.Slow(time.Second)
			err := x.Add(object("not-selected", "1", w.server.Advance()))
			w.put("b", "2") // the watch passes it
			waitFor(2 * time.Second)
			w.server.Slow(0)
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				w.put("b", "1")
				strip := func(inf *informer.Informer) { _ = inf.SetTransform(informer.StripManagedFields) }
				r := w.run(informer.Options{}, strip).sync()
				commit()
				if err := test.write(w, r.inf.GetIndexer()); err != nil {
					t.Fatal(err)
				}
				w.put("c", "1") // the stored resource version would follow
				commit()
				r.end()
				before := len(w.server.Requests())
				r = w.run(informer.Options{}, strip).sync()
				if lists := w.lists(before); len(lists) != test.lists {
					t.Errorf("the next process made %d lists, want %d", len(lists), test.lists)
				}
				w.sameAsServer(r.inf.GetStore().List())
				r.end()
			})
		})
	}
}

// TestReplaceBesideRejected replaces what there is by itself, at the resource version
// that the watch has reached, or beyond it, while an object cannot be stored: the next
// process is still sent that object.
func TestReplaceBesideRejected(t *testing.T) {
	for name, rv := range map[string]func(*informer.Informer) string{
		"at what is reached": func(inf *informer.Informer) string {
			return inf.GetIndexer().LastStoreSyncResourceVersion()
		},
		"beyond it": func(*informer.Informer) string { return "1000" },
	} {
		for _, by := range []string{"Replace", "Bookmark"} {
			t.Run(name+", by "+by, func(t *testing.T) {
				inBubble(t, func(w *world) {
					fails := true
					refuse := func(inf *informer.Informer) {
						_ = inf.SetTransform(func(obj any) (any, error) {
							if c, ok := obj.(*corev1.ConfigMap); ok && fails && c.Name == "bad" {
								return nil, errOnPurpose
							}
							return obj, nil
						})
					}
					w.put("a", "1")
					r := w.run(informer.Options{TransformVersion: "1"}, refuse).sync()
					w.put("bad", "1")
					w.put("b", "1")
					commit()
					x := r.inf.GetIndexer()
					if by == "Replace" {
						if err := x.Replace(x.List(), rv(r.inf)); err != nil {
							t.Fatal(err)
						}
					} else {
						x.Bookmark(rv(r.inf))
					}
					commit()
					r.end()
					fails = false
					r = w.run(informer.Options{TransformVersion: "1"}, refuse).sync()
					waitFor(time.Minute)
					w.sameAsServer(r.inf.GetStore().List())
					r.end()
				})
			})
		}
	}
}

// TestWrittenAheadOfEnd ends a process whose watch has not reached what the program has
// written. The next process lists: the watch from there may never bring the object.
func TestWrittenAheadOfEnd(t *testing.T) {
	for name, test := range map[string]struct {
		selected bool
		slow     bool // the watch brings nothing more before the end
		lists    int
	}{
		"before anything else comes":    {slow: true, lists: 1},
		"after a bookmark of before it": {lists: 1},
		"after its echo":                {selected: true},
		"before its echo":               {selected: true, slow: true, lists: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				r := w.run(informer.Options{}).sync()
				commit()
				w.server.Slow(time.Millisecond) // no echo comes before the write
				if test.slow {
					w.server.Slow(time.Minute)
				}
				obj := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b", UID: "u"}, Data: map[string]string{"v": "1"},
				}
				before := w.server.Advance()
				if test.selected {
					obj.ResourceVersion = w.put("b", "1")
				} else {
					obj.ResourceVersion = w.server.Advance()
				}
				if err := r.inf.GetIndexer().Add(obj); err != nil {
					t.Fatal(err)
				}
				if !test.slow {
					w.server.Send(watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: before}}})
				}
				commit()
				r.end()
				w.server.Slow(0)
				w.put("c", "1")
				requests := len(w.server.Requests())
				r = w.run(informer.Options{}).sync()
				if lists := w.lists(requests); len(lists) != test.lists {
					t.Errorf("the next process made %d lists, want %d", len(lists), test.lists)
				}
				waitFor(time.Second)
				w.sameAsServer(r.inf.GetStore().List())
				r.end()
			})
		})
	}
}

// TestWrittenWhileCatchingUp writes what an update of an object has returned while the
// watch still brings the changes since the last process. They are no replays.
func TestWrittenWhileCatchingUp(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.run(informer.Options{}).sync().end()
		w.put("a", "2") // 3
		w.put("a", "3") // 4
		w.server.Hold()
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l))
		waitFor(time.Second)
		if err := r.inf.GetIndexer().Update(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: r.inf.GetStore().List()[0].(*corev1.ConfigMap).UID, ResourceVersion: "4"},
			Data:       map[string]string{"v": "3"},
		}); err != nil {
			t.Fatal(err)
		}
		w.server.Release()
		r.sync()
		told := l.take()
		if last := told[len(told)-1]; !strings.HasSuffix(last, "a@4=3") {
			t.Errorf("handlers were told %q", told)
		}
		w.sameAsServer(r.inf.GetStore().List())
		r.end()
	})
}

// TestWrittenBeforeListed writes through the indexer while the server fails the first
// list. What is stored then is no list, in no process.
func TestWrittenBeforeListed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.server.Down()
		r := w.run(informer.Options{})
		waitFor(10 * time.Second)
		for range 2 {
			err := r.inf.GetIndexer().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mine"}})
			if err != nil {
				t.Fatal(err)
			}
			commit()
			r.end()
			l := &log{}
			r = w.run(informer.Options{SyncWhen: informer.Loaded}, handle(w, l))
			waitFor(10 * time.Second)
			if r.inf.HasSynced() {
				t.Fatal("synced, and the server was never listed")
			}
		}
		w.server.Up()
		r.sync()
		w.sameAsServer(r.inf.GetStore().List())
		r.end()
	})
}

// TestWrittenThenListed writes through the indexer what the watch would have brought, but
// a list brings it: it finds it as it is stored, and handlers are told.
func TestWrittenThenListed(t *testing.T) {
	for name, test := range map[string]struct {
		name string
		drop bool
		want string
	}{
		"a change":   {name: "a", want: "update a@3=2 a@3=2"},
		"an object":  {name: "n", want: "add n@3=2"},
		"a deletion": {name: "a", drop: true, want: "delete tombstone a@="},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1") // 2
				l := &log{}
				r := w.run(informer.Options{}, handle(w, l)).sync()
				l.take()
				w.server.Slow(time.Second)
				var err error
				if test.drop {
					w.drop(test.name)
					err = r.inf.GetIndexer().Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: test.name}})
				} else {
					w.put(test.name, "2")
					list, listErr := w.server.ListWithContext(t.Context(), metav1.ListOptions{})
					if listErr != nil {
						t.Fatal(listErr)
					}
					items := list.(*corev1.ConfigMapList).Items
					i := slices.IndexFunc(items, func(m corev1.ConfigMap) bool { return m.Name == test.name })
					err = r.inf.GetIndexer().Update(&items[i])
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := w.server.Compact(w.server.RV()); err != nil {
					t.Fatal(err)
				}
				w.server.CloseWatches()
				w.server.Slow(0)
				waitFor(time.Minute)
				if told := l.take(); len(told) != 1 || told[0] != test.want {
					t.Errorf("handlers were told %q, want %q", told, test.want)
				}
				w.sameAsServer(r.inf.GetStore().List())
				r.end()
			})
		})
	}
}

// TestWrittenBesideList writes through the indexer while a list is received. As in
// client-go, nothing of it is left after the list, in the store or for handlers.
func TestWrittenBesideList(t *testing.T) {
	write := func(s *subjectOf) {
		s.Helper()
		x := s.inf.GetIndexer()
		ghost, old := valued("ghost", "mine"), versioned("a", "1")
		if err := errors.Join(x.Add(ghost), x.Update(old), x.Delete(valued("b", ""))); err != nil {
			s.Fatal(err)
		}
	}
	for name, rule := range map[string]func(s *subjectOf){
		"the first list": func(s *subjectOf) {
			s.server.Hold()
			s.start()
			waitFor(time.Second)
			write(s)
			s.server.Release()
		},
		"another list, which has passed": func(s *subjectOf) {
			s.start().sync()
			if err := s.server.Compact(s.server.Advance()); err != nil {
				s.Fatal(err)
			}
			s.server.Hold()
			s.server.CloseWatches()
			waitFor(10 * time.Second)
			write(s)
			s.server.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, 0, nil, func(s *subjectOf) {
				s.put("a", "1")
				s.put("b", "1")
				l := &log{}
				s.handle(l)
				rule(s)
				s.sync()
				waitFor(time.Minute)
				s.sameAsServer(s.inf.GetStore().List())
				before := len(s.server.Requests())
				waitFor(time.Hour)
				if lists := s.lists(before); len(lists) > 0 {
					s.Errorf("%d lists follow for ever", len(lists))
				}
			})
		})
	}
}

// TestWritesAllTheTime writes through the indexer all the time, and beside each list: a
// list is followed by one other.
func TestWritesAllTheTime(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.server.Hold()
		r := w.run(informer.Options{})
		waitFor(time.Second)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					_ = r.inf.GetIndexer().Update(valued("mine", time.Now().String()))
				}
			}
		}()
		before := len(w.server.Requests())
		w.server.Release()
		waitFor(10 * time.Minute)
		close(stop)
		if lists := w.lists(before); len(lists) > 1 {
			t.Errorf("%d lists follow, want 1", len(lists))
		}
		r.end()
	})
}
