package boltfile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
)

// notes is an owner with one bucket. It notes what it is told.
type notes struct {
	told   []string
	check  error
	onLost func() // nil: nothing
}

var bucket = []byte("notes")

func (n *notes) Check(tx *bbolt.Tx, how boltfile.Thoroughness) (bool, error) {
	if how == boltfile.Everything {
		n.told = append(n.told, "checked")
		if b := tx.Bucket(bucket); b != nil && string(b.Get([]byte("k"))) == "damaged" {
			return true, &store.CorruptionError{Where: "an entry", Err: errors.New("it is damaged")}
		}
	}
	return tx.Bucket(bucket) != nil, n.check
}

func (n *notes) Create(tx *bbolt.Tx) error {
	n.told = append(n.told, "created")
	_, err := tx.CreateBucket(bucket)
	return err
}

func (n *notes) TakeOver(*bbolt.Tx) error {
	n.told = append(n.told, "taken over")
	return nil
}

func (n *notes) Lost(error) {
	if n.told = append(n.told, "lost"); n.onLost != nil {
		n.onLost()
	}
}

func (n *notes) Reopened() error {
	n.told = append(n.told, "reopened")
	return nil
}

// says checks what the owner was told since the last call.
func (n *notes) says(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(n.told, want) {
		t.Errorf("the owner was told %q, want %q", n.told, want)
	}
	n.told = nil
}

func newFile(t *testing.T, path string, o boltfile.Options) (*boltfile.File, *notes) {
	t.Helper()
	o.Logger, o.Marker = logr.Discard(), "marker of notes"
	o.HoldsEntries = func(int, []byte) bool { return false }
	if o.LockTimeout == 0 {
		o.LockTimeout = time.Second
	}
	n := &notes{}
	f, err := boltfile.New(path, o, n)
	if err != nil {
		t.Fatal(err)
	}
	return f, n
}

func open(t *testing.T, path string) (*boltfile.File, *notes) {
	t.Helper()
	f, n := newFile(t, path, boltfile.Options{})
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	return f, n
}

func put(f *boltfile.File, t *testing.T, value string) error {
	return f.Update(t.Context(), "test", func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put([]byte("k"), []byte(value)) })
}

func get(f *boltfile.File) (value string, err error) {
	err = f.View("test", func(tx *bbolt.Tx) error {
		value = string(tx.Bucket(bucket).Get([]byte("k")))
		return nil
	})
	return value, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpen checks a file from its creation on: it is locked while it is open, also
// against readers of a writer, and checked when it is opened again.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "notes.db")
	f, n := open(t, path)
	n.says(t, "checked", "created")
	must(t, put(f, t, "1"))
	other, _ := newFile(t, path, boltfile.Options{LockTimeout: time.Millisecond})
	if err := other.Open(); !errors.Is(err, store.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	f.EndUse()
	must(t, f.Close())
	if _, err := get(f); !errors.Is(err, store.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if err := put(f, t, "2"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("write after Close: %v", err)
	}
	if left, _ := filepath.Glob(path + "?*"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	f, n = open(t, path)
	n.says(t, "checked")
	if value, err := get(f); err != nil || value != "1" {
		t.Errorf("%q, %v", value, err)
	}
	must(t, f.Close())
	r, _ := newFile(t, path, boltfile.Options{ReadOnly: true})
	must(t, r.OpenReadOnly())
	if err := put(r, t, "2"); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("write to a read-only file: %v", err)
	}
	must(t, errors.Join(r.VerifyPages(t.Context()), r.Close()))
}

// TestDamaged checks that a file that is damaged, or that the owner finds damaged, is set
// aside, and that a file of others is not touched.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.db")
	f, _ := open(t, path)
	must(t, errors.Join(put(f, t, "1"), f.Close()))
	must(t, os.Truncate(path, 5000))
	f, n := open(t, path)
	n.says(t, "checked", "created")
	if _, err := os.Stat(f.SetAside()); err != nil || f.Rebuilds() != 1 {
		t.Errorf("set aside as %q: %v", f.SetAside(), err)
	}
	must(t, f.Close())
	must(t, os.WriteFile(path, []byte("a text of somebody"), 0o600))
	f, _ = newFile(t, path, boltfile.Options{})
	if err := f.Open(); !errors.Is(err, store.ErrNotOurs) || f.SetAside() != "" {
		t.Errorf("a text: %v, set aside as %q", err, f.SetAside())
	}
}

// TestDamagedAgain checks that writes that find damage for the second time begin a fresh
// file, although other writes, which need other pages, have succeeded in between.
func TestDamagedAgain(t *testing.T) {
	f, n := open(t, filepath.Join(t.TempDir(), "notes.db"))
	fails := func() {
		t.Helper()
		err := f.Update(t.Context(), "commit", func(*bbolt.Tx) error { return store.ErrCorrupt })
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a write that finds damage: %v", err)
		}
	}
	fails()
	must(t, put(f, t, "1"))
	n.told = nil
	fails()
	n.says(t, "lost", "checked", "created", "reopened")
	fails()
	if f.Rebuilds() != 1 {
		t.Errorf("%d fresh files, want one: the new one has failed once", f.Rebuilds())
	}
	must(t, f.Close())
}

// TestLost checks what becomes of a file that is removed, replaced or written by another
// program while it is used: the next write begins a fresh one, and the owner is told.
func TestLost(t *testing.T) {
	replacedBy := func(value string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			other, _ := open(t, path+".other")
			must(t, errors.Join(put(other, t, value), other.Close(), os.Rename(path+".other", path)))
		}
	}
	for name, test := range map[string]struct {
		do   func(t *testing.T, path string)
		want []string
		left string // what the file says then
	}{
		"removed":               {func(t *testing.T, path string) { must(t, os.Remove(path)) }, []string{"lost", "checked", "created", "reopened"}, ""},
		"replaced":              {replacedBy("theirs"), []string{"lost", "checked", "taken over", "reopened"}, "theirs"},
		"replaced by a damaged": {replacedBy("damaged"), []string{"lost", "checked", "checked", "created", "reopened"}, ""},
		"cut":                   {func(t *testing.T, path string) { must(t, os.Truncate(path, 5000)) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "notes.db")
			f, n := open(t, path)
			must(t, put(f, t, "ours"))
			n.told = nil
			test.do(t, path)
			for tries := 0; put(f, t, "again") != nil; tries++ {
				if tries == 5 {
					t.Fatal("cannot be written any more")
				}
				if value, err := get(f); tries == 0 && test.want != nil && (err != nil || value != test.left) {
					t.Errorf("after the loss: %q, %v; want %q", value, err, test.left)
				}
			}
			if value, err := get(f); err != nil || value != "again" {
				t.Errorf("%q, %v", value, err)
			}
			if test.want != nil {
				n.says(t, test.want...)
			} else if !slices.Contains(n.told, "lost") {
				t.Errorf("the owner was told %q", n.told)
			}
			must(t, f.Close())
		})
	}
}

// TestLostAsUseEnds checks that the owner begins a new file also if the use of the file
// ends while a loss is noticed: what the owner writes there is for the next process.
func TestLostAsUseEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.db")
	f, n := open(t, path)
	n.told, n.onLost = nil, f.EndUse
	must(t, os.Remove(path))
	if put(f, t, "again") == nil {
		t.Error("a file that is gone was written")
	}
	n.says(t, "lost", "checked", "created", "reopened")
	must(t, f.Close())
}

// TestLostAndNotReplaced checks that a damaged file that cannot be renamed is lost once:
// what the owner holds in memory since stays, however often a write is tried.
func TestLostAndNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("n", 240)) // with more, too long
	f, n := open(t, path)
	must(t, put(f, t, "damaged"))
	n.told = nil
	f.Lock()
	if err := f.Reopen(true, &store.CorruptionError{Where: "an entry", Err: errors.New("it is damaged")}); err == nil {
		t.Error("a file without room for its name was renamed")
	}
	f.Unlock()
	n.says(t, "lost")
	for range 3 {
		if put(f, t, "again") == nil {
			t.Error("the damaged file is written")
		}
		n.says(t, "checked")
	}
	must(t, f.Close())
}

// TestFails checks that the outcome of a write that fails is that nothing was written,
// and that the file goes on. It is opened again if something may have been written.
func TestFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.db")
	f, n := newFile(t, path, boltfile.Options{MaxBytes: 256 << 10})
	must(t, f.Open())
	must(t, put(f, t, "1"))
	n.told = nil
	fails := func(value string, own, cause error, told ...string) {
		t.Helper()
		err := f.Update(t.Context(), "test", func(tx *bbolt.Tx) error {
			return errors.Join(tx.Bucket(bucket).Put([]byte("k"), []byte(value)), own)
		})
		if !errors.Is(err, cause) {
			t.Errorf("%v, want %v", err, cause)
		}
		n.says(t, told...)
		if value, err := get(f); err != nil || value != "1" {
			t.Errorf("%q, %v", value, err)
		}
	}
	failed := errors.New("it fails")
	for range 3 {
		fails("2", failed, failed)
		fails(strings.Repeat("x", 1<<20), nil, bbolterrors.ErrMaxSizeReached)
	}
	failWrites(f)
	fails("3", nil, errFull, "reopened")
	f.Lock()
	attach := f.Detach()
	if _, err := get(f); !errors.Is(err, boltfile.ErrNoHandle) || boltfile.IsDamage(err) {
		t.Errorf("without a handle: %v", err)
	}
	attach()
	f.Unlock()
	must(t, put(f, t, "3"))
	must(t, f.Close())
	if f, _ = open(t, path); f.Rebuilds() != 0 {
		t.Error("the file was damaged")
	}
	must(t, f.Close())
}

// TestFailsDuringCopy checks that no write that fails, and no reader behind it, waits for
// a copy whose reader does not go on, and that the copy ends with an error.
func TestFailsDuringCopy(t *testing.T) {
	f, _ := open(t, filepath.Join(t.TempDir(), "notes.db"))
	must(t, put(f, t, "1"))
	copied, goOn := stalledCopy(f)
	failWrites(f)
	wrote := make(chan error, 1)
	go func() { wrote <- put(f, t, "2") }()
	select {
	case err := <-wrote:
		if !errors.Is(err, errFull) {
			t.Errorf("write: %v", err)
		}
		if value, err := get(f); err != nil || value != "1" {
			t.Errorf("%q, %v", value, err)
		}
	case <-time.After(time.Minute):
		t.Error("the write waits for the copy")
	}
	goOn()
	if err := <-copied; !errors.Is(err, boltfile.ErrReopened) {
		t.Errorf("copy: %v", err)
	}
	var b bytes.Buffer
	if size, err := f.CopyTo(&b); err != nil || size != int64(b.Len()) || size == 0 {
		t.Errorf("the next copy has %d bytes, %v", size, err)
	}
	must(t, f.Close())
}

// TestCloseDuringCopy checks that Close does not wait for a copy whose reader does not go
// on, and that the copy ends with an error.
func TestCloseDuringCopy(t *testing.T) {
	f, _ := open(t, filepath.Join(t.TempDir(), "notes.db"))
	must(t, put(f, t, "1"))
	copied, goOn := stalledCopy(f)
	closed := make(chan error, 1)
	go func() {
		f.EndUse()
		closed <- f.Close()
	}()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(time.Minute):
		t.Error("Close waits for the copy")
	}
	goOn()
	if err := <-copied; !errors.Is(err, store.ErrClosed) {
		t.Errorf("copy: %v", err)
	}
}

// TestReadsOn checks that a file that cannot be opened for writing again is read until it
// can be, and that a write that fails meanwhile ends no copy.
func TestReadsOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.db")
	f, n := open(t, path)
	must(t, put(f, t, "1"))
	n.told = nil
	failWrites(f)
	other := path + ".link" // as by "cp -al"
	must(t, os.Link(path, other))
	fails := func(value string) {
		t.Helper()
		if err := put(f, t, value); err == nil || !strings.Contains(err.Error(), "hard links") {
			t.Errorf("write: %v", err)
		}
		if err := f.Retry(); err == nil {
			t.Error("it was opened again")
		}
		n.says(t)
		if value, err := get(f); err != nil || value != "1" {
			t.Fatalf("%q, %v", value, err)
		}
	}
	fails("2")
	copied, goOn := stalledCopy(f)
	fails("3")
	goOn()
	must(t, <-copied)
	must(t, os.Remove(other))
	for _, value := range []string{"4", "5"} {
		_ = put(f, t, value) // the first one opens it again
	}
	if value, err := get(f); err != nil || value != "5" {
		t.Errorf("%q, %v", value, err)
	}
	n.says(t, "reopened")
	failWrites(f)
	must(t, os.Link(path, other))
	_ = put(f, t, "6")
	must(t, f.Close())
	must(t, os.Remove(other))
	f, n = open(t, path)
	if value, err := get(f); err != nil || value != "5" {
		t.Errorf("after a restart: %q, %v", value, err)
	}
	n.says(t, "checked")
	must(t, f.Close())
}

// stalledCopy begins a copy whose reader waits for goOn. copied receives its error.
func stalledCopy(f *boltfile.File) (copied <-chan error, goOn func()) {
	w, outcome := &slow{begun: make(chan struct{}), goOn: make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := f.CopyTo(w)
		outcome <- err
	}()
	<-w.begun
	return outcome, func() { close(w.goOn) }
}

// slow is a writer that waits until it may go on.
type slow struct {
	begun, goOn chan struct{}
	once        sync.Once
}

func (s *slow) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	<-s.goOn
	return len(b), nil
}

var errFull = errors.New("no space")

// failWrites makes writes to the file fail until it is opened again.
func failWrites(f *boltfile.File) {
	f.Lock()
	defer f.Unlock()
	field := reflect.ValueOf(f.Handle()).Elem().FieldByName("ops").FieldByName("writeAt")
	*(*func([]byte, int64) (int, error))(field.Addr().UnsafePointer()) = func([]byte, int64) (int, error) { return 0, errFull }
}

// TestReadsOnOfDamaged checks that damage in a file that is only read on is given up, as
// it is in one that can be written: a fresh file takes its name.
func TestReadsOnOfDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.db")
	f, n := open(t, path)
	must(t, put(f, t, "damaged"))
	failWrites(f)
	other := path + ".link"
	must(t, os.Link(path, other))
	if put(f, t, "2") == nil {
		t.Error("it was written")
	}
	n.told = nil
	f.Lock()
	err := f.Reopen(true, &store.CorruptionError{Where: "an entry", Err: errors.New("it is damaged")})
	f.Unlock()
	must(t, err)
	n.says(t, "lost", "checked", "created", "reopened")
	must(t, put(f, t, "3"))
	if value, err := get(f); err != nil || value != "3" {
		t.Errorf("%q, %v", value, err)
	}
	must(t, f.Close())
}

// TestRead checks that a read without a file gets no transaction if it asks for none.
func TestRead(t *testing.T) {
	f, _ := newFile(t, filepath.Join(t.TempDir(), "notes.db"), boltfile.Options{})
	cause := errors.New("no disk")
	f.Suspend(cause)
	if _, err := get(f); !errors.Is(err, cause) || !errors.Is(f.Usable(), cause) {
		t.Errorf("read: %v", err)
	}
	if err := put(f, t, "1"); !errors.Is(err, cause) {
		t.Errorf("write: %v", err)
	}
	read := false
	err := f.Read("test", func(isOpen bool, _ func() error) error {
		if isOpen {
			t.Error("it is open")
		}
		return nil
	}, func(tx *bbolt.Tx) error {
		read = tx == nil
		return nil
	})
	if err != nil || !read {
		t.Errorf("without a transaction: %v", err)
	}
}

// TestReadThatFails checks that a transaction that has begun for a read that fails ends.
func TestReadThatFails(t *testing.T) {
	f, _ := open(t, filepath.Join(t.TempDir(), "notes.db"))
	failed := errors.New("it fails")
	err := f.Read("test", func(_ bool, begin func() error) error { return errors.Join(begin(), failed) }, nil)
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if n := f.Handle().Stats().OpenTxN; n != 0 {
		t.Fatalf("%d transactions are open", n)
	}
	must(t, f.Close())
}
