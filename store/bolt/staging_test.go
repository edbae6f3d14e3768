package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// finish applies a relist to which the whole list was added.
func finish(t *testing.T, s store.Store, r store.Relist, rv string) {
	t.Helper()
	for b, err := range r.Parts(rv) {
		must(t, err)
		must(t, s.Apply(b))
	}
	must(t, r.Close())
}

// relist starts a relist with a small memory limit and adds the script's objects after a
// batch, in an order other than that of keys and some of them twice.
func relist(s store.Store, script script, n int) (store.Relist, error) {
	r, err := s.Relist()
	if err != nil {
		return nil, err
	}
	bolt.SetRelistLimit(r, 2<<10)
	for i := script.keys - 1; i >= 0; i-- {
		m := script.lastWrite(i, n)
		if m == 0 || i%4 == 1 { // deleted while the list was sent, or created again since
			if err := r.Add(script.object(i, n+2000)); err != nil {
				return nil, err
			}
			r.Remove(script.key(i))
		}
		if m == 0 {
			continue
		}
		if i%3 == 0 {
			// This is like an object in an older page of the list.
			if err := r.Add(script.object(i, m+1000)); err != nil {
				return nil, err
			}
		}
		if err := r.Add(script.object(i, m)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// lastWrite returns the batch that wrote the content of key i after batch n, 0 if the key
// does not exist.
func (s script) lastWrite(i, n int) (last int) {
	for m := 1; m <= n; m++ {
		written, deleted := s.numbers(m)
		for _, j := range written {
			if j == i {
				last = m
			}
		}
		if deleted == i {
			last = 0
		}
	}
	return last
}

// staging reports whether the file contains a staging bucket. The file must not be open.
func staging(t *testing.T, path string) (there bool) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	must(t, db.View(func(tx *bbolt.Tx) error {
		there = tx.Bucket([]byte("scope")).Bucket([]byte(scriptScope().ID())).Bucket([]byte("staging")) != nil
		return nil
	}))
	return there
}

func TestRelistSpills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	applyScript(t, s, small, 1, 4)
	const next = 30
	r, err := relist(s, small, next)
	must(t, err)
	wantState(t, s, small, 4)
	// want contains the differences by key: the new resource version, "" for a deletion.
	want := map[string]string{}
	for i := range small.keys {
		if was, is := small.lastWrite(i, 4), small.lastWrite(i, next); was != is {
			if want[small.key(i)] = ""; is != 0 {
				want[small.key(i)] = strconv.Itoa(is)
			}
		}
	}
	got := map[string]string{}
	deletions, last := true, false
	for b, err := range r.Parts(strconv.Itoa(next)) {
		must(t, err)
		if last {
			t.Error("a part after the one with the resource version")
		}
		last = b.RV != ""
		for _, c := range b.Changes {
			if _, twice := got[c.Key]; twice {
				t.Errorf("%s is in two parts", c.Key)
			}
			if got[c.Key] = ""; !c.IsDeletion() {
				deletions = false
				obj, err := s.Decode(c.Entry())
				must(t, err)
				got[c.Key] = obj.(interface{ GetResourceVersion() string }).GetResourceVersion()
			} else if !deletions {
				t.Errorf("%s is deleted after a change", c.Key)
			}
		}
		must(t, s.Apply(b))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what differs (-want +got):\n%s", diff)
	}
	must(t, r.Close())
	wantState(t, s, small, next)
	must(t, db.Close())
	if staging(t, path) {
		t.Error("the staging bucket is left")
	}
	_, s = mustOpenScript(t, path, bolt.Options{})
	wantState(t, s, small, next)
}

// childStage dies during a relist.
func childStage(args []string) error {
	_, s, err := openScript(args[0], bolt.Options{})
	if err != nil {
		return err
	}
	if _, err := relist(s, small, 30); err != nil {
		return err
	}
	return dieHere()
}

func dieHere() error {
	return errors.Join(syscall.Kill(syscall.Getpid(), syscall.SIGKILL), errors.New("still alive"))
}

// wantKilled runs a child that kills itself.
func wantKilled(t *testing.T, name, path string) {
	t.Helper()
	out, err := child(t, name, path).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the process was not killed: %v\n%s", err, out)
	}
}

func TestStagingOfTheKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 4)
	wantKilled(t, "stage", path)
	if !staging(t, path) {
		t.Fatal("nothing was staged")
	}
	db, s := mustOpenScript(t, path, bolt.Options{})
	wantState(t, s, small, 4)
	must(t, db.Close())
	if staging(t, path) {
		t.Error("the staging bucket is left")
	}
}

// childLoad dies during a first list.
func childLoad(args []string) error {
	_, s, err := openScript(args[0], bolt.Options{})
	if err != nil {
		return err
	}
	if _, err := relist(s, small, 1); err != nil {
		return err
	}
	if n := s.Len(); n != 0 || len(store.Indexer(s).List()) != 0 {
		return fmt.Errorf("%d objects are served before the list has ended", n)
	}
	if err := s.Flush(context.TODO()); err != nil {
		return err
	}
	return dieHere()
}

func TestFirstListOfTheKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	wantKilled(t, "load", path)
	ro, err := bolt.OpenReadOnly(path, bolt.Options{})
	must(t, err)
	infos, err := ro.Scopes()
	must(t, err)
	if len(infos) != 1 || infos[0].Complete || infos[0].Objects == 0 || infos[0].Checkpoint.RV != "" {
		t.Errorf("scopes are %+v, want one that is not complete and has objects", infos)
	}
	s, err := ro.Open(scriptScope(), scriptOptions())
	must(t, err)
	x := store.Indexer(s)
	if s.Len() != 0 || len(x.List()) != 0 || !errors.Is(x.Err(), store.ErrIncomplete) {
		t.Errorf("Len is %d, List has %d, Err is %v", s.Len(), len(x.List()), x.Err())
	}
	if _, exists, err := store.Indexer(s).GetByKey(small.key(39)); exists || err != nil {
		t.Errorf("Get of what was loaded: %t, %v", exists, err)
	}
	must(t, ro.Close())
	_, s = mustOpenScript(t, path, bolt.Options{})
	wantState(t, s, small, 0)
	if reason := s.Checkpoint().Reason; reason != "first list did not end" {
		t.Errorf("reason is %q", reason)
	}
	r, err := relist(s, small, 9)
	must(t, err)
	finish(t, s, r, "9")
	wantState(t, s, small, 9)
}

// TestWritesInsideLoops changes the scope inside loops over its iterators.
func TestWritesInsideLoops(t *testing.T) {
	_, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Millisecond})
	large := script{keys: 1200, pad: 10}
	applyScript(t, s, large, 1, 1)
	within(t, "a loop with writes in its body", 5*time.Minute, func() {
		n := 1
		body := func(i int) {
			if i%100 == 0 {
				n++
				if err := errors.Join(s.Apply(large.batch(n)), s.Flush(t.Context())); err != nil {
					t.Error(err)
				}
				_ = store.Indexer(s).List()
			}
		}
		i := 0
		for _, err := range s.All() {
			if i++; err != nil {
				t.Error(err)
			}
			body(i)
		}
		for _, err := range store.HeadersOfAll(s) {
			if i++; err != nil {
				t.Error(err)
			}
			body(i)
		}
		if got, err := describe(s, large); err != nil || got != large.want(n) {
			t.Errorf("state is not that after batch %d (%v)", n, err)
		}
	})
}

// TestEverythingAtOnce runs readers of every kind next to a writer that also relists, and
// checks that none of them blocks forever.
func TestEverythingAtOnce(t *testing.T) {
	_, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Millisecond, CommitBytes: 4 << 10})
	applyScript(t, s, small, 1, 1)
	const last = 120
	reads := []func() error{
		func() error { _, err := s.Objects(store.Query{}); return err },
		func() error { _, _, err := store.Indexer(s).GetByKey(small.key(7)); return err },
		func() error { _, err := store.Indexer(s).ByIndex("label:app", "app1"); return err },
		func() error { _ = store.Indexer(s).ListIndexFuncValues("label:app"); return nil },
		func() error { return drain(s) },
		func() error { _, err := s.Select(store.Query{After: small.key(3), Limit: 5}); return err },
		func() error { _ = s.Len(); _ = s.Checkpoint(); return nil },
		func() error { _, err := store.Indexer(s).IndexKeys("namespace", "ns1"); return err },
	}
	within(t, "readers, writer and relist", 5*time.Minute, func() {
		var g errgroup.Group
		done := make(chan struct{})
		for _, fn := range reads {
			g.Go(func() error {
				for {
					select {
					case <-done:
						return nil
					default:
					}
					if err := fn(); err != nil {
						return err
					}
				}
			})
		}
		err := writeAndRelist(s, last)
		close(done)
		if err := errors.Join(err, g.Wait(), s.Flush(t.Context())); err != nil {
			t.Error(err)
		}
	})
	wantState(t, s, small, last)
}

func drain(s store.Store) error {
	for _, err := range s.All() {
		if err != nil {
			return err
		}
	}
	for _, err := range store.HeadersOfAll(s) {
		if err != nil {
			return err
		}
	}
	return nil
}

func writeAndRelist(s store.Store, last int) error {
	for n := 2; n <= last; n++ {
		if n%20 != 0 {
			if err := s.Apply(small.batch(n)); err != nil {
				return err
			}
			continue
		}
		r, err := relist(s, small, n)
		if err != nil {
			return err
		}
		for b, err := range r.Parts(strconv.Itoa(n)) {
			if err == nil {
				err = s.Apply(b)
			}
			if err != nil {
				return err
			}
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}
