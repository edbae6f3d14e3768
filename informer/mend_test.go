package informer_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/wire"
)

// TestListAfterEmpty checks a collection that was empty at the first list and has objects
// at the second.
func TestListAfterEmpty(t *testing.T) {
	inBubble(t, func(w *world) {
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l)).sync()
		w.server.Down()
		w.put("x", "1")
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		w.server.Up()
		waitFor(2 * time.Minute)
		w.want(l, "add x@2=1")
		r.end()
	})
}

// TestDamageWhileRunning checks that an object whose record is damaged under a running
// informer is repaired by a new list, and that its neighbors lose nothing (promise 5).
func TestDamageWhileRunning(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "content-of-a")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		l := &log{}
		r := w.run(informer.Options{}, func(inf *informer.Informer) { damage(t, w.path, "content-of-a") }, handle(w, l))
		waitFor(time.Minute)
		w.put("b", "2")
		waitFor(5 * time.Minute)
		got := l.take()
		if !contains(got, "b@4=2") || !contains(got, "a@2=content-of-a") {
			t.Errorf("handler was told %v", got)
		}
		var names []string
		for _, obj := range r.inf.GetStore().List() {
			names = append(names, describe(obj))
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"a@2=content-of-a", "b@4=2"}) || !r.inf.HasSynced() {
			t.Errorf("store has %v, synced: %v", names, r.inf.HasSynced())
		}
		r.end()
	})
}

// damage changes one byte of an object's content in the file.
func damage(t *testing.T, path, content string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	found := 0
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], []byte(content))
		if i < 0 {
			break
		}
		at += i
		found++
		if _, err := f.WriteAt([]byte{'X'}, int64(at+len(content)-1)); err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Fatal("the content is not in the file: the test proves nothing")
	}
}

// TestHeaderIsDamaged checks that a deletion whose stored header is damaged asks for a
// relist at once, and that the handler receives it.
func TestHeaderIsDamaged(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		l := &log{}
		r := w.run(informer.Options{DecodedBytes: 1}, handle(w, l)).sync()
		waitFor(5 * time.Second) // the commit
		l.take()
		damage(t, w.path, "\xa1r\xa12") // of msgpack: the resource version is 2
		w.drop("a")                     // 4
		synctest.Wait()
		if lists := r.inf.Status().Lists; lists != 2 {
			t.Errorf("%d lists, want a second one", lists)
		}
		waitFor(time.Minute)
		w.want(l, "delete a@4=1")
		if got := r.inf.GetStore().ListKeys(); !slices.Equal(got, []string{"default/b"}) {
			t.Errorf("store has %v", got)
		}
		r.end()
	})
}

// TestDeletedThoughUntransformable checks that a deleted object is deleted even if its
// transform fails.
func TestDeletedThoughUntransformable(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		bad := false
		l := &log{}
		r := w.run(informer.Options{TransformVersion: "1"}, func(inf *informer.Informer) {
			if err := inf.SetTransform(func(obj any) (any, error) {
				if bad && obj.(*corev1.ConfigMap).Name == "a" {
					return nil, errOnPurpose
				}
				return obj, nil
			}); err != nil {
				t.Error(err)
			}
		}, handle(w, l)).sync()
		l.take()
		bad = true
		w.drop("a")
		waitFor(5 * time.Minute)
		w.want(l, "delete tombstone a@2=1")
		if got := r.inf.Status().Rejected; len(got) > 0 {
			t.Errorf("rejected: %v", got)
		}
		r.end()
	})
}

// TestAddIndexersWhileListing checks that an index that is added during the first list is
// complete.
func TestAddIndexersWhileListing(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.put(name, "1")
		}
		w.server.Slow(time.Second)
		r := w.run(informer.Options{})
		waitFor(1500 * time.Millisecond)
		if err := r.inf.AddIndexers(cache.Indexers{"v": byValue(new(bool), false)}); err != nil {
			t.Fatal(err)
		}
		r.sync()
		keys, err := r.inf.GetIndexer().IndexKeys("v", "1")
		if err != nil || len(keys) != 3 {
			t.Errorf("IndexKeys = %v, %v", keys, err)
		}
		synctest.Wait()
		r.end()
	})
}

// TestListWaitsForMending checks that List, which cannot return an error, waits until the
// damaged object has been listed again.
func TestListWaitsForMending(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "content-of-a")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		r := w.run(informer.Options{}, func(*informer.Informer) { damage(t, w.path, "content-of-a") })
		waitFor(time.Second)
		for range 2 { // the second List does not wait
			if got := len(r.inf.GetStore().List()); got != 2 {
				t.Errorf("List has %d objects, want 2", got)
			}
		}
		r.end()
	})
}

// TestDamageTwice checks that damage that is detected within a minute of the previous
// damage is also repaired, after the minute.
func TestDamageTwice(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "content-of-a")
		w.run(informer.Options{}).sync().end()
		r := w.run(informer.Options{DecodedBytes: 1}, func(*informer.Informer) { damage(t, w.path, "content-of-a") })
		for range 3 {
			waitFor(5 * time.Second) // until the repair is written
			if got := len(r.inf.GetStore().List()); got != 1 {
				t.Errorf("List has %d objects, want 1", got)
			}
			waitFor(5 * time.Second)
			damage(t, w.path, "content-of-a")
		}
		r.end()
	})
}

// TestDamageIsMendedForReaders checks that a reader of a damaged object gets an error,
// and that later readers find the object repaired (promise 5).
func TestDamageIsMendedForReaders(t *testing.T) {
	const key = "default/a"
	for name, read := range map[string]func(inf *informer.Informer) error{
		"Get": func(inf *informer.Informer) error {
			_, _, err := inf.GetStore().GetByKey(key)
			return err
		},
		"ByIndex": func(inf *informer.Informer) error {
			_, err := inf.GetIndexer().ByIndex(cache.NamespaceIndex, "default")
			return err
		},
		"Lister": func(inf *informer.Informer) error {
			pods, err := informer.NewLister[*corev1.ConfigMap](inf)
			if err == nil {
				_, err = pods.List(nil)
			}
			return err
		},
		"endpoint": func(inf *informer.Informer) error {
			if status, lines := get(handlerOf(inf), "/v1/objects?key="+key); status != http.StatusOK {
				return errors.New(lines[0])
			}
			return nil
		},
		"endpoint, records": func(inf *informer.Informer) error {
			w := httptest.NewRecorder()
			handlerOf(inf).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/records?key="+key, nil))
			_, err := wire.Read(w.Body)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "content-of-a")
				opts := informer.Options{DecodedBytes: 1, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
				r := w.run(opts).sync()
				waitFor(5 * time.Second)
				damage(t, w.path, "content-of-a")
				if err := read(r.inf); err == nil {
					t.Error("the damage is not told")
				}
				waitFor(5 * time.Second)
				if err := read(r.inf); err != nil {
					t.Errorf("it is not mended: %v", err)
				}
				r.end()
			})
		})
	}
}

// TestAddIndexersMeetsDamage checks that an indexer that is added while an object is
// damaged has all objects, after a list: a controller would end with an error.
func TestAddIndexersMeetsDamage(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "content-of-a")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		r := w.run(informer.Options{DecodedBytes: 1}, func(*informer.Informer) {}).sync()
		damage(t, w.path, "content-of-a")
		since := len(w.server.Requests())
		byName := func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Name}, nil }
		if err := r.inf.AddIndexers(cache.Indexers{"name": byName}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			if keys, err := r.inf.GetIndexer().IndexKeys("name", name); err != nil || len(keys) != 1 {
				t.Errorf("%s: %q, %v", name, keys, err)
			}
		}
		if lists := w.lists(since); len(lists) != 1 {
			t.Errorf("it made %d lists, want 1", len(lists))
		}
		r.end()
	})
}
