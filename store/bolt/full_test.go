package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// childFull simulates a full disk with a limit on file sizes in this process: meta pages
// can be written, but little else. The argument selects the scenario.
func childFull(args []string) error {
	signal.Ignore(unix.SIGXFSZ)
	f := &fullDisk{path: args[0]}
	if err := f.begin(); err != nil {
		return err
	}
	defer func() { _ = f.limit(false) }()
	switch args[1] {
	case "recover":
		return f.recovers()
	case "close":
		return f.closes()
	case "first list":
		return f.firstList()
	case "epoch":
		return f.epoch()
	case "indexes":
		return f.indexes()
	case "staging":
		return f.staging()
	case "begin", "begin anew":
		return f.begins(args[1] == "begin anew")
	}
	return errors.New("what?")
}

type fullDisk struct {
	path string
	db   *bolt.DB
	s    store.Store
}

func (f *fullDisk) begin() (err error) {
	if f.db, f.s, err = openScript(f.path, bolt.Options{CommitInterval: time.Millisecond}); err != nil {
		return err
	}
	for n := 1; n <= 2; n++ {
		if err := f.s.Apply(small.batch(n)); err != nil {
			return err
		}
	}
	return f.s.Flush(context.TODO())
}

// limit sets or removes the limit.
func (f *fullDisk) limit(on bool) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if limit.Cur = limit.Max; on {
		limit.Cur = 8 << 10
	}
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
}

// flushFails returns an error unless Flush fails because the disk is full. The first
// attempt to write may take longer than a Flush.
func (f *fullDisk) flushFails() (err error) {
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		ctx, cancel := context.WithTimeout(context.TODO(), 300*time.Millisecond)
		err = f.s.Flush(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if errors.Is(err, syscall.EFBIG) {
			return nil
		}
	}
	return fmt.Errorf("Flush on a full disk: %w", err)
}

func (f *fullDisk) wantState(n int) error {
	got, err := describe(f.s, small)
	if err != nil {
		return fmt.Errorf("after batch %d: %w", n, err)
	}
	if want := small.want(n); got != want {
		return fmt.Errorf("after batch %d state is\n%swant\n%s", n, got, want)
	}
	if err := logAddsUp(f.s); err != nil {
		return fmt.Errorf("after batch %d: %w", n, err)
	}
	return nil
}

// wantFile checks a copy of the file, as another process would find it.
func (f *fullDisk) wantFile(n int) error {
	if err := f.limit(false); err != nil {
		return err
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	path := f.path + ".copy"
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }()
	db, s, err := openScript(path, bolt.Options{})
	if err != nil {
		return err
	}
	other := &fullDisk{path: path, db: db, s: s}
	if aside := db.SetAside(); aside != "" {
		return fmt.Errorf("the file was damaged: %s", aside)
	}
	return errors.Join(other.wantState(n), db.Close())
}

func (f *fullDisk) recovers() error {
	for n := 3; n <= 6; n++ {
		if err := f.limit(true); err != nil {
			return err
		}
		if err := f.s.Apply(small.batch(n)); err != nil {
			return err
		}
		if err := errors.Join(f.flushFails(), f.wantState(n)); err != nil {
			return err
		}
	}
	infos, err := f.db.Scopes()
	if err != nil {
		return err
	}
	if infos[0].Checkpoint.RV != "2" || f.s.Checkpoint().RV != "6" {
		return fmt.Errorf("the file is at %q, the store at %q", infos[0].Checkpoint.RV, f.s.Checkpoint().RV)
	}
	if err := errors.Join(f.limit(false), f.s.Flush(context.TODO()), f.wantState(6), f.wantFile(6)); err != nil {
		return err
	}
	return f.db.Close()
}

func (f *fullDisk) closes() error {
	if err := f.limit(true); err != nil {
		return err
	}
	if err := f.s.Apply(small.batch(3)); err != nil {
		return err
	}
	start := time.Now()
	if err := f.s.Close(); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("close store: %w", err)
	}
	if err := f.wantState(3); err != nil {
		return fmt.Errorf("a closed store: %w", err)
	}
	if err := f.limit(true); err != nil {
		return err
	}
	if err := f.db.Close(); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("close database: %w", err)
	}
	if took := time.Since(start); took > time.Minute {
		return fmt.Errorf("closing took %s", took)
	}
	return f.wantFile(2)
}

// firstList checks that nothing of a first list that was discarded on a full disk is in
// the next one.
func (f *fullDisk) firstList() error {
	scope := scriptScope()
	scope.Namespace = "other"
	s, err := f.db.Open(scope, scriptOptions())
	if err != nil {
		return err
	}
	r, err := s.Relist()
	if err != nil {
		return err
	}
	bolt.SetRelistLimit(r, 1)
	for i := range 20 {
		if err := r.Add(small.object(i, 1)); err != nil {
			return err
		}
	}
	if err := errors.Join(f.limit(true)); err != nil {
		return err
	}
	// What was loaded cannot be dropped before there is room.
	if err := r.Close(); err != nil {
		return err
	}
	again, err := s.Relist()
	if err != nil {
		return err
	}
	if err := f.limit(false); err != nil {
		return err
	}
	if err := again.Add(small.object(30, 1)); err != nil {
		return err
	}
	for b, err := range again.Parts("9") {
		if err == nil {
			err = s.Apply(b)
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(again.Close(), s.Flush(context.TODO())); err != nil {
		return err
	}
	if n := len(store.Indexer(s).List()); n != 1 || s.Len() != 1 {
		return fmt.Errorf("List has %d objects and Len is %d, want 1", n, s.Len())
	}
	return f.db.Close()
}

// begins opens a scope on a full disk. Either nothing of it is stored, or only unusable
// content. The scope must be served from memory and written when there is room.
func (f *fullDisk) begins(anew bool) error {
	opts := scriptOptions()
	opts.TransformVersion = "2"
	if !anew {
		if _, err := f.db.Wipe(nil); err != nil {
			return err
		}
	}
	for room := range 2 {
		err := f.db.Close()
		if err != nil {
			return err
		}
		if f.db, err = bolt.Open(f.path, bolt.Options{CommitInterval: time.Millisecond}); err != nil {
			return err
		}
		if err := f.limit(room == 0); err != nil {
			return err
		}
		if f.s, err = f.db.Open(scriptScope(), opts); err != nil {
			return fmt.Errorf("open on a full disk: %w", err)
		}
		if room == 1 {
			return errors.Join(f.wantState(4), f.db.Close())
		}
		if err := f.wantState(0); err != nil {
			return err
		}
		if err := f.list(3); err != nil {
			return err
		}
		if err := errors.Join(f.flushFails(), f.wantState(3), f.list(4), f.wantState(4), f.limit(false), f.s.Flush(context.TODO()), f.wantState(4)); err != nil {
			return err
		}
	}
	return nil
}

// reopen opens the scope again, on a full disk or not.
func (f *fullDisk) reopen(full bool, opts store.Options) (err error) {
	if f.db, err = bolt.Open(f.path, bolt.Options{CommitInterval: time.Millisecond}); err != nil {
		return err
	}
	if err := f.limit(full); err != nil {
		return err
	}
	if f.s, err = f.db.Open(scriptScope(), opts); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

// indexes opens a scope on a full disk with an index that the file does not have. The
// scope must be served. An index in the file that was not updated in the meantime must
// not be used again.
func (f *fullDisk) indexes() error {
	other := scriptOptions()
	other.Indexes[1].Version = "other"
	if err := errors.Join(f.db.Close(), f.reopen(true, other)); err != nil {
		return err
	}
	if err := errors.Join(f.wantState(2), f.s.Apply(small.batch(3)), f.flushFails(), f.wantState(3)); err != nil {
		return err
	}
	if err := errors.Join(f.limit(false), f.s.Flush(context.TODO()), f.wantState(3), f.db.Close()); err != nil {
		return err
	}
	for _, opts := range []store.Options{scriptOptions(), other} {
		if err := errors.Join(f.reopen(false, opts), f.wantState(3), f.db.Close()); err != nil {
			return err
		}
		if aside := f.db.SetAside(); aside != "" {
			return fmt.Errorf("the file was damaged: %s", aside)
		}
	}
	return nil
}

// staging opens a scope on a full disk after a killed process has staged a list in it.
// The scope must be served, and nothing of that list may be in the next one.
func (f *fullDisk) staging() error {
	r, err := f.s.Relist()
	if err != nil {
		return err
	}
	bolt.SetRelistLimit(r, 1)
	for i := range 5 {
		if err := r.Add(small.object(i, 50)); err != nil {
			return err
		}
	}
	var killed []byte
	bolt.Quiet(f.db, func() { killed, err = os.ReadFile(f.path) })
	if err := errors.Join(err, r.Close(), f.db.Close(), os.WriteFile(f.path, killed, 0o600)); err != nil {
		return err
	}
	if err := errors.Join(f.reopen(true, scriptOptions()), f.wantState(2), f.limit(false)); err != nil {
		return err
	}
	return errors.Join(f.list(3), f.wantState(3), f.db.Close())
}

// epoch checks that Open releases the file if it cannot begin another epoch.
func (f *fullDisk) epoch() error {
	if err := errors.Join(f.db.Close(), f.limit(true)); err != nil {
		return err
	}
	if _, err := bolt.Open(f.path, bolt.Options{Epoch: "next"}); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("another epoch on a full disk: %w", err)
	}
	if err := f.limit(false); err != nil {
		return err
	}
	db, err := bolt.Open(f.path, bolt.Options{})
	if err != nil {
		return err
	}
	return db.Close()
}

// list lists the objects after a batch and writes each of them at once.
func (f *fullDisk) list(n int) error {
	r, err := f.s.Relist()
	if err != nil {
		return fmt.Errorf("begin a list: %w", err)
	}
	bolt.SetRelistLimit(r, 1)
	for _, obj := range small.state(n) {
		if err := r.Add(obj); err != nil {
			return fmt.Errorf("add: %w", err)
		}
	}
	for b, err := range r.Parts(fmt.Sprint(n)) {
		if err == nil {
			err = f.s.Apply(b)
		}
		if err != nil {
			return fmt.Errorf("parts: %w", err)
		}
	}
	_ = r.Close() // cannot drop its staging bucket on a full disk
	return nil
}

func TestFullDisk(t *testing.T) {
	for _, what := range []string{"recover", "close", "first list", "begin", "begin anew", "epoch", "indexes", "staging"} {
		t.Run(what, func(t *testing.T) {
			if out, err := child(t, "full", filepath.Join(t.TempDir(), "informers.db"), what).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// childShrink truncates the file of a running process, so that every read of the lost
// part faults, and then reads, writes and closes.
func childShrink(args []string) error {
	db, s, err := openScript(args[0], bolt.Options{CommitInterval: time.Millisecond})
	if err != nil {
		return err
	}
	if err := s.Apply(small.batch(1)); err != nil {
		return err
	}
	if err := s.Flush(context.TODO()); err != nil {
		return err
	}
	if err := os.Truncate(args[0], 0); err != nil {
		return err
	}
	if _, err := describe(s, small); !errors.Is(err, store.ErrCorrupt) {
		return fmt.Errorf("reading what is gone: %w", err)
	}
	_ = s.Apply(small.batch(2)) // may return an error
	ctx, cancel := context.WithTimeout(context.TODO(), 200*time.Millisecond)
	defer cancel()
	_ = s.Flush(ctx)
	_ = s.Close()
	_ = db.Close()
	return nil
}

func TestFileShrinks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := child(t, "shrink", filepath.Join(t.TempDir(), "informers.db"))
	// SIGQUIT prints where the child hangs.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%.3000s", err, out)
	}
}
