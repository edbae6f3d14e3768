package informer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

func TestColdThenWarm(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		w.put("c", "1") // 4
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l)).sync()
		w.want(l, "initial a@2=1", "initial b@3=1", "initial c@4=1")
		w.put("b", "2") // 5
		w.drop("c")     // 6
		w.want(l, "update b@3=1 b@5=2", "delete c@6=1")
		r.end()

		w.put("a", "2") // 7
		w.drop("b")     // 8
		w.put("d", "1") // 9
		before := len(w.server.Requests())
		r = w.run(informer.Options{}, handle(w, l)).sync()
		if lists := w.lists(before); len(lists) > 0 {
			t.Errorf("a warm start listed: %v", lists)
		}
		// Promise 4: the handler receives stored objects as adds, then the missed
		// changes, and the deletion with the last state of the object.
		got := l.take()
		slices.Sort(got)
		want := []string{
			"delete b@8=2", "initial a@2=1", "initial b@5=2", "initial d@9=1", "update a@2=1 a@7=2",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("handler was told (-want +got):\n%s", diff)
		}
		if got, want := r.inf.LastSyncResourceVersion(), "9"; got < want {
			t.Errorf("LastSyncResourceVersion() = %s, want %s or later", got, want)
		}
		r.end()
	})
}

// TestNotSyncedBeforeCaughtUp checks that HasSynced of a warm start waits for the server.
func TestNotSyncedBeforeCaughtUp(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.run(informer.Options{}).sync().end()
		w.server.Down()
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l))
		waitFor(time.Minute)
		w.want(l, "initial a@2=1")
		if r.inf.HasSynced() {
			t.Error("synced without a server")
		}
		w.put("a", "2")
		w.server.Up()
		r.sync()
		w.want(l, "update a@2=1 a@3=2")
		r.end()

		w.server.Down()
		r = w.run(informer.Options{SyncWhen: informer.Loaded})
		waitFor(time.Millisecond)
		if !r.inf.HasSynced() {
			t.Error("Loaded did not sync from the file")
		}
		r.end()
	})
}

// TestCompared checks that after a list because of lost history, handlers receive the
// differences and nothing else (promise 3).
func TestCompared(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		w.put("c", "1") // 4
		l := &log{}
		w.run(informer.Options{}, handle(w, l)).sync().end()
		l.take()
		w.put("b", "2") // 5
		w.drop("c")     // 6
		w.put("d", "1") // 7
		if err := w.server.Compact("7"); err != nil {
			t.Fatal(err)
		}
		r := w.run(informer.Options{}, handle(w, l)).sync()
		got := l.take()
		want := []string{
			"initial a@2=1", "initial b@3=1", "initial c@4=1",
			"delete tombstone c@4=1", "update b@3=1 b@5=2", "initial d@7=1",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("handler was told (-want +got):\n%s", diff)
		}
		r.end()
		if objects, cp := w.stored(w.path); cp.RV != "7" || len(objects) != 3 {
			t.Errorf("stored: %v at %+v", objects, cp)
		}
	})
}

// TestRewound checks that a server whose history went back, before a start and under a
// running informer, is listed again, and that the objects that it no longer has are
// deleted.
func TestRewound(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running=%v", running), func(t *testing.T) {
			inBubble(t, func(w *world) {
				base := w.put("a", "1")
				l := &log{}
				r := w.run(informer.Options{}, handle(w, l)).sync()
				w.put("ghost", "1")
				w.put("a", "ghost")
				waitFor(2 * time.Second)
				if !running {
					r.end()
				}
				if err := w.server.Rewind(base); err != nil {
					t.Fatal(err)
				}
				w.put("real", "1")
				l.take()
				if !running {
					r = w.run(informer.Options{}, handle(w, l))
				}
				waitFor(time.Minute)
				got := l.take()
				if !contains(got, "delete tombstone ghost") || !contains(got, "real@3=1") || !contains(got, "a@2=1") {
					t.Errorf("handler was told %v", got)
				}
				r.end()
				if objects, _ := w.stored(w.path); !slices.Equal(objects, []string{"a@2=1", "real@3=1"}) {
					t.Errorf("stored: %v", objects)
				}
			})
		})
	}
}

// pointed is a backend that calls point at every step between queue and commit.
type pointed struct {
	store.Backend
	point func(store.Store)
}

func (b *pointed) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	return &pointedStore{s, b.point}, err
}

type pointedStore struct {
	store.Store
	point func(store.Store)
}

func (s *pointedStore) around() func() {
	s.point(s.Store)
	return func() { s.point(s.Store) }
}

func (s *pointedStore) Prepare(b *store.Batch) error {
	defer s.around()()
	return s.Store.Prepare(b)
}

func (s *pointedStore) Before(keys []string) (store.Before, error) {
	defer s.around()()
	return s.Store.Before(keys)
}

func (s *pointedStore) Select(q store.Query) ([]store.Entry, error) {
	defer s.around()()
	return s.Store.Select(q)
}

func (s *pointedStore) HeadersOf(keys []string) ([]store.Header, error) {
	defer s.around()()
	return s.Store.HeadersOf(keys)
}

func (s *pointedStore) Apply(b store.Batch) error {
	defer s.around()()
	return s.Store.Apply(b)
}

func (s *pointedStore) Invalidate(ctx context.Context, reason string) error {
	defer s.around()()
	return s.Store.Invalidate(ctx, reason)
}

// TestRVNeverLeads checks promise 2: wherever the process stops between queue and commit,
// before or after the applied changes are committed, the objects in the file are those of
// the RV in the file.
func TestRVNeverLeads(t *testing.T) {
	for name, commit := range map[string]bool{"before the commit": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) { inBubble(t, func(w *world) { stopEverywhere(w, commit) }) })
	}
}

func stopEverywhere(w *world, commit bool) {
	history := map[string][]string{} // RV -> objects
	state := map[string]string{}
	change := func(name, data string) {
		var rv string
		if data == "" {
			rv = w.drop(name)
			delete(state, name)
		} else {
			rv = w.put(name, data)
			state[name] = fmt.Sprintf("%s@%s=%s", name, rv, data)
		}
		history[rv] = slices.Sorted(maps.Values(state))
	}
	db, err := bolt.Open(w.path, bolt.Options{CommitInterval: time.Millisecond})
	if err != nil {
		w.Fatal(err)
	}
	type image struct {
		objects []string
		rv      string
	}
	var images []image
	point := func(s store.Store) {
		if commit {
			if err := s.Flush(w.Context()); err != nil {
				w.Error(err)
			}
		}
		path := filepath.Join(filepath.Dir(w.path), "image.db")
		copyFile(w.T, w.path, path)
		objects, cp := w.stored(path)
		images = append(images, image{objects, cp.RV})
	}
	change("a", "1")
	change("b", "1")
	r := w.run(informer.Options{Backend: &pointed{db, point}})
	for i := range 6 {
		waitFor(10 * time.Second)
		change("a", fmt.Sprint("x", i))
		change("b", fmt.Sprint("x", i))
		change("c", "1")
		change("a", fmt.Sprint("y", i))
		change("c", "")
	}
	change("d", "1")
	if err := w.server.Compact(w.server.RV()); err != nil { // causes a relist
		w.Fatal(err)
	}
	w.server.CloseWatches()
	waitFor(time.Minute)
	r.end()
	if err := db.Close(); err != nil {
		w.Error(err)
	}
	checked := 0
	for i, image := range images {
		if image.rv == "" {
			continue // the next start lists
		}
		checked++
		if diff := cmp.Diff(history[image.rv], image.objects); diff != "" {
			w.Errorf("point %d: objects at RV %s (-server +file):\n%s", i, image.rv, diff)
		}
	}
	if checked < 20 {
		w.Errorf("%d of %d points had a resource version to check", checked, len(images))
	}
}

// copyFile copies a file and leaves holes for zeros, which most of a bbolt file consists
// of.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	target, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	block, zeros := make([]byte, 1<<16), make([]byte, 1<<16)
	size := int64(0)
	for err == nil {
		var n int
		n, err = io.ReadFull(source, block)
		if !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := target.WriteAt(block[:n], size); err != nil {
				t.Fatal(err)
			}
		}
		size += int64(n)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if err := errors.Join(target.Truncate(size), target.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRunAfterContextsEnd runs an informer whose context has ended on a store that has a
// whole list: as in client-go, no handler is called and it is not synced.
func TestRunAfterContextsEnd(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.run(informer.Options{}).sync().end()
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		l := &log{}
		db := w.open()
		inf, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{Backend: db, SyncWhen: informer.Loaded})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddEventHandler(l); err != nil {
			t.Fatal(err)
		}
		inf.RunWithContext(ctx)
		if told := l.take(); len(told) > 0 || inf.HasSynced() || !inf.IsStopped() {
			t.Errorf("told %q, synced %v, stopped %v", told, inf.HasSynced(), inf.IsStopped())
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
