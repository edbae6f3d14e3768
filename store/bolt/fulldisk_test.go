package bolt_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// selfVar is set in the process that a test with fullFiles runs in.
const selfVar = "INFORMCTL_BOLT_FULL_DISK"

// fullFiles returns a function that makes every file full, or not any more, as
// RLIMIT_FSIZE does: meta pages can be written, but little else. The limit is that of the
// process, so fullFiles runs the test in one of its own. In the others it returns nil.
func fullFiles(t *testing.T) (limit func(on bool)) {
	t.Helper()
	if os.Getenv(selfVar) == "" {
		self, err := os.Executable()
		must(t, err)
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.timeout=100s")
		cmd.Env = append(os.Environ(), selfVar+"=1", "GORACE=atexit_sleep_ms=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return nil
	}
	signal.Ignore(unix.SIGXFSZ)
	limit = func(on bool) {
		var l unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &l))
		if l.Cur = l.Max; on {
			l.Cur = 8 << 10
		}
		must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &l))
	}
	t.Cleanup(func() { limit(false) })
	return limit
}

// inFile waits until the file has a number of objects.
func inFile(t *testing.T, db *bolt.DB, n int) {
	t.Helper()
	for {
		infos, err := db.Scopes()
		must(t, err)
		if len(infos) == 1 && infos[0].Objects == n {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// TestFullDiskKeyTwice checks that an object which a first list has twice, in a part that
// was written and in one that the disk has refused, counts once.
func TestFullDiskKeyTwice(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	list, err := s.Relist()
	must(t, err)
	bolt.SetRelistLimit(list, 1)
	must(t, list.Add(small.object(0, 1))) // is written
	must(t, list.Add(small.object(1, 1))) // is written
	inFile(t, db, 2)
	bolt.SetRelistLimit(list, 1<<20)
	must(t, list.Add(small.object(0, 2))) // it has changed while the list was streamed
	limit(true)
	for part, err := range list.Parts("2") {
		must(t, err)
		must(t, s.Apply(part))
	}
	if keys, err := s.Keys(store.Query{}); err != nil || len(keys) != 2 {
		t.Errorf("keys %q, %v", keys, err)
	}
	if got, err := s.Select(store.Query{}); err != nil || len(got) != 2 {
		t.Errorf("%d entries, %v", len(got), err)
	}
	if got := store.Indexer(s).List(); len(got) != 2 {
		t.Errorf("List has %d objects", len(got))
	}
	if s.Len() != 2 {
		t.Errorf("length %d, want 2", s.Len())
	}
	limit(false)
}

// TestFullDiskInterrupted checks that a first list which was interrupted after a part was
// written keeps no further list from beginning while the disk is full.
func TestFullDiskInterrupted(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	list, err := s.Relist()
	must(t, err)
	bolt.SetRelistLimit(list, 1)
	must(t, list.Add(small.object(0, 1)))
	must(t, list.Add(small.object(1, 1)))
	inFile(t, db, 2)
	limit(true)
	t.Logf("close: %v", list.Close())
	for range 3 {
		if _, err := s.Relist(); err != nil {
			t.Errorf("another list on a full disk: %v", err)
		}
	}
	limit(false)
}

// TestOpenWhileReadOn checks that a scope is opened in a file that is only read on after
// a write has failed, and that a broken list keeps no further one from beginning. Both
// are written when the file can be.
func TestOpenWhileReadOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	loadScript(t, s, "1", 0)
	must(t, s.Flush(t.Context()))
	bolt.HookWrites(db, func(bolt.WriteAt) bolt.WriteAt {
		return func([]byte, int64) (int, error) { return 0, errors.New("the disk fails") }
	})
	other := path + ".link" // which is not written to
	must(t, os.Link(path, other))
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(1), Object: small.object(1, 2)}}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Flush(ctx); err == nil {
		t.Fatal("it was written")
	}
	scope := scriptScope()
	scope.Namespace = "other"
	second, err := db.Open(scope, scriptOptions())
	must(t, err)
	list, err := second.Relist()
	must(t, err)
	bolt.SetRelistLimit(list, 1)
	for i := range 3 {
		must(t, list.Add(small.object(i, 1)))
	}
	must(t, list.Close())
	loadScript(t, second, "3", 1)
	must(t, os.Remove(other))
	// The scope that is opened next finds that the file can be written again.
	must(t, s.Close())
	opts := scriptOptions()
	opts.Indexes = append(opts.Indexes, index.Label("tier"))
	s, err = db.Open(scriptScope(), opts)
	must(t, err)
	infos, err := db.Scopes()
	must(t, err)
	if !slices.ContainsFunc(infos, func(i store.Info) bool {
		return slices.ContainsFunc(i.Indexes, func(x store.IndexInfo) bool { return x.Name == "label:tier" })
	}) {
		t.Errorf("no scope has the new index in the file: %+v", infos)
	}
	for _, s := range []store.Store{s, second} {
		must(t, s.Flush(t.Context()))
	}
	must(t, db.Close())
	_, s = mustOpenScript(t, path, bolt.Options{})
	if s.Len() != 2 {
		t.Errorf("%d objects are stored, want 2", s.Len())
	}
}

// TestFullDiskFormer checks that what was deleted while no process ran is told although
// the disk is full while the first list is made.
func TestFullDiskFormer(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScriptWith(t, path, bolt.Options{}, scriptOptions())
	loadScript(t, s, "1", 0, 1, 2, 3)
	must(t, s.Flush(t.Context()))
	must(t, db.Close())

	opts := scriptOptions()
	opts.TransformVersion = "2"
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	defer func() { _ = db.Close() }()
	limit(true)
	s, err = db.Open(scriptScope(), opts)
	must(t, err)
	if !s.(store.Departer).Compares() {
		t.Error("there is nothing to compare the list with")
	}
	loadScript(t, s, "3", 1, 2)
	limit(false)
	must(t, s.Flush(t.Context())) // there is room again
	wantDeparted(t, s, 0, 3)
	if n, dropped := s.(store.Departer).Departures(); dropped != 0 || n != 2 {
		t.Errorf("%d are kept and %d dropped, and compares is %v", n, dropped, s.(store.Departer).Compares())
	}
}

// TestFullDiskLeftovers checks that a scope which is opened again while what its closed
// store has left is being written has that, too.
func TestFullDiskLeftovers(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: 100 * time.Millisecond})
	loadScript(t, s, "1", 0, 1)
	must(t, s.Flush(t.Context()))
	limit(true)
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Object: small.object(2, 2)}}}))
	if err := s.Close(); err == nil {
		t.Fatal("the disk is not full")
	}
	begun, goOn, once := make(chan struct{}), make(chan struct{}), false
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		limit(false)
		return func(b []byte, off int64) (int, error) {
			if !once {
				once = true
				close(begun)
				<-goOn
			}
			return next(b, off)
		}
	})
	<-begun // the committer tries again
	opened := make(chan store.Store, 1)
	go func() {
		again, err := db.Open(scriptScope(), scriptOptions())
		if err != nil {
			t.Error(err)
		}
		opened <- again
	}()
	<-time.After(100 * time.Millisecond) // it may open meanwhile
	close(goOn)
	again := <-opened
	inFile(t, db, 3)
	<-time.After(time.Second)
	infos, err := db.Scopes()
	must(t, err)
	t.Logf("the file has %d objects at %q, the store %d at %q", infos[0].Objects, infos[0].Checkpoint.RV, again.Len(), again.Checkpoint().RV)
	if keys, err := again.Keys(store.Query{}); err != nil {
		t.Errorf("keys %q, %v", keys, err)
	}
	if objects := store.Indexer(again).List(); objects == nil {
		t.Error("List returns nothing")
	}
}

// TestFullDiskWake checks that a commit which is requested after one that has failed does
// not wait for the interval.
func TestFullDiskWake(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: 10 * time.Minute})
	loadScript(t, s, "1", 0, 1)
	must(t, s.Flush(t.Context()))
	limit(true)
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Object: small.object(2, 2)}}}))
	began := time.Now()
	err := s.Close() // one attempt
	if took := time.Since(began); took > time.Minute {
		t.Errorf("Close took %v: %v", took, err)
	}
	limit(false)
	_ = db
}

// TestFullDiskUnknownFirstCommit checks that nothing departs twice if the first commit of
// a scope that has begun on a full disk is in the file, but has returned an error.
func TestFullDiskUnknownFirstCommit(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: 100 * time.Millisecond})
	must(t, err)
	defer func() { _ = db.Close() }()
	limit(true)
	s, err := db.Open(scriptScope(), scriptOptions())
	must(t, err)
	loadScript(t, s, "1", 0, 1, 2)
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(0), RV: "2", Departs: true}}}))
	wantDeparted(t, s, 0)
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		limit(false)
		return func(b []byte, off int64) (int, error) {
			n, err := next(b, off)
			if off < int64(2*pageSize) {
				err = errors.New("unknown outcome")
			}
			return n, err
		}
	})
	must(t, s.Flush(t.Context()))
	wantDeparted(t, s, 0)
	must(t, logAddsUp(s))
	must(t, db.Close())
	db, s = mustOpenScript(t, path, bolt.Options{})
	wantDeparted(t, s, 0)
	_ = db
}

// TestFullDiskWipe checks that a wipe does not forget the data keys of a scope that has
// begun on a full disk and is not in the file yet.
func TestFullDiskWipe(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: 50 * time.Millisecond, EncryptAll: true, Keys: fixedKeys{{1}}})
	must(t, err)
	defer func() { _ = db.Close() }()
	limit(true)
	s, err := db.Open(scriptScope(), scriptOptions())
	must(t, err)
	loadScript(t, s, "1", 0, 1, 2)
	bolt.Quiet(db, func() { // the disk is slow
		limit(false)
		sealed := bolt.Seals(db)[1]
		// The committer seals and waits for writeMu, if it does not wait for it already.
		for end := time.Now().Add(2 * time.Second); bolt.Seals(db)[1] == sealed && time.Now().Before(end); {
			<-time.After(time.Millisecond)
		}
		<-time.After(100 * time.Millisecond)
	})
	_, err = db.Wipe(nil)
	must(t, err)
	must(t, s.Flush(t.Context()))
	must(t, db.Close())
	db, err = bolt.Open(path, bolt.Options{EncryptAll: true, Keys: fixedKeys{{1}}})
	must(t, err)
	s, err = db.Open(scriptScope(), scriptOptions())
	must(t, err)
	got, err := s.Select(store.Query{})
	if err != nil {
		t.Errorf("%d, %v", len(got), err)
	}
}

// TestFullDiskFlush checks that a Flush does not try without a pause.
func TestFullDiskFlush(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	var tries atomic.Int64
	logger := funcr.New(func(_, args string) {
		if strings.Contains(args, "trying again") {
			tries.Add(1)
		}
	}, funcr.Options{})
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Second, Logger: logger})
	loadScript(t, s, "1", 0, 1)
	must(t, s.Flush(t.Context()))
	limit(true)
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Object: small.object(2, 2)}}}))
	before := tries.Load()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_ = s.Flush(ctx)
	n := tries.Load() - before
	limit(false)
	if n > 8 {
		t.Errorf("%d attempts to write in 4 s, with an interval of 1 s", n)
	}
	t.Log(n)
	_ = db
}

// TestFullDiskRemoved checks that a deletion within a first list is not lost if the file
// cannot be read when the list is applied.
func TestFullDiskRemoved(t *testing.T) {
	limit := fullFiles(t) // a process of its own, for RLIMIT_NOFILE
	if limit == nil {
		return
	}
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: 50 * time.Millisecond})
	list, err := s.Relist()
	must(t, err)
	bolt.SetRelistLimit(list, 1)
	must(t, list.Add(small.object(0, 1)))
	must(t, list.Add(small.object(1, 1)))
	inFile(t, db, 2)
	bolt.SetRelistLimit(list, 1<<20)
	list.Remove(small.key(0)) // deleted while the list was streamed
	bolt.HookWrites(db, func(bolt.WriteAt) bolt.WriteAt {
		return func([]byte, int64) (int, error) { return 0, errors.New("broken") }
	})
	noFiles(t, true) // it cannot be opened again either
	for part, err := range list.Parts("2") {
		must(t, err)
		must(t, s.Apply(part))
	}
	noFiles(t, false)
	t.Log(list.Close())
	must(t, s.Flush(t.Context()))
	keys, err := s.Keys(store.Query{})
	t.Logf("%q, %v, length %d", keys, err, s.Len())
	if err != nil || len(keys) != 1 || s.Len() != 1 {
		t.Errorf("keys %q, %v, length %d; want one; checkpoint %+v", keys, err, s.Len(), s.Checkpoint())
	}
}

// TestFullDiskDeparted checks that a deletion which no handler has received is told to
// the next process, whatever it does to what is stored, and whether or not the disk is
// full meanwhile.
func TestFullDiskDeparted(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	transformed := func(o *store.Options) { o.TransformVersion = "2" }
	for name, test := range map[string]struct {
		change func(*store.Options)
		broken bool // the first list ends before it is whole
	}{
		"same":               {change: func(*store.Options) {}},
		"transform":          {change: transformed},
		"transform, broken":  {change: transformed, broken: true},
		"type":               {change: func(o *store.Options) { o.Codec = changedType{o.Codec} }},
		"fresh":              {change: func(o *store.Options) { o.Fresh = true }},
		"history of nothing": {change: func(o *store.Options) { transformed(o); o.History.Bytes = -1 }},
	} {
		for _, full := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScriptWith(t, path, bolt.Options{}, scriptOptions())
			loadScript(t, s, "1", 0, 1, 2)
			must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(0), RV: "2", Departs: true}}}))
			must(t, db.Close())

			opts := scriptOptions()
			test.change(&opts)
			db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Hour})
			must(t, err)
			limit(full)
			s, err = db.Open(scriptScope(), opts)
			must(t, err)
			wantDeparted(t, s, 0)
			if test.broken {
				list, err := s.Relist()
				must(t, err)
				bolt.SetRelistLimit(list, 1)
				must(t, list.Add(small.object(1, 1)))
				must(t, list.Close())
				wantDeparted(t, s, 0)
			}
			loadScript(t, s, "3", 1, 2)
			wantDeparted(t, s, 0)
			must(t, s.Apply(store.Batch{RV: "4", Changes: []store.Change{{Key: small.key(2), RV: "4", Departs: true}}}))
			wantDeparted(t, s, 0, 2)
			limit(false)
			must(t, s.Flush(t.Context()))
			wantDeparted(t, s, 0, 2)
			if kept, dropped := s.(store.Departer).Departures(); kept != 2 || dropped != 0 {
				t.Errorf("%s, full %v: %d are kept and %d dropped", name, full, kept, dropped)
			}
			must(t, db.Close())
		}
	}
}

// TestFullDiskDepartedUnreadable checks that numbers of departed objects that cannot be
// read any more are not used again: a commit of unknown outcome would be taken for one
// that has logged them.
func TestFullDiskDepartedUnreadable(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	for _, full := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, s := mustOpenScriptWith(t, path, bolt.Options{}, scriptOptions())
		loadScript(t, s, "1", 0, 1, 2)
		for i := range 2 {
			must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(i), RV: "2", Departs: true}}}))
		}
		must(t, db.Close())

		db, err := bolt.Open(path, allWith(fixedKeys{{1}}))
		must(t, err)
		limit(full)
		s, err = db.Open(scriptScope(), scriptOptions())
		must(t, err)
		loadScript(t, s, "3", 1, 2)
		must(t, s.Apply(store.Batch{RV: "4", Changes: []store.Change{{Key: small.key(1), RV: "4", Departs: true}}}))
		limit(false)
		must(t, s.Flush(t.Context()))
		wantDeparted(t, s, 1)
		found, err := s.(store.Departer).Departed(0, 10)
		must(t, err)
		if found[0].Number != 3 {
			t.Errorf("full %v: the number is %d, want 3", full, found[0].Number)
		}
		if kept, _ := s.(store.Departer).Departures(); kept != 1 {
			t.Errorf("full %v: %d are kept, want 1", full, kept)
		}
		must(t, db.Close())
	}
}

// TestFullDiskAtStart checks that Open is no error where the disk has no room for a new
// file, or the process may open no more files, and that the next one uses the file.
func TestFullDiskAtStart(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	limit(true)
	wantWithout(t, path, "file too large")
	limit(false)
	scriptFile(t, path, small, 3)

	began := time.Now()
	noFiles(t, true)
	db, err := bolt.Open(path, bolt.Options{LockTimeout: 50 * time.Millisecond})
	noFiles(t, false)
	must(t, err)
	must(t, without(db, unix.EMFILE))
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("Open gave up after %v", took)
	}
	noFiles(t, true)
	time.AfterFunc(20*time.Millisecond, func() { noFiles(t, false) })
	db, s := mustOpenScript(t, path, bolt.Options{LockTimeout: time.Minute})
	wantState(t, s, small, 3)
	must(t, db.Close())
}

// noFiles makes the process unable to open files, or able again.
func noFiles(t *testing.T, on bool) {
	t.Helper()
	var l unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	if l.Cur = l.Max; on {
		l.Cur = 3
	}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &l))
}

// TestForeignEpochOnFullDisk checks that nothing is served of a file of another epoch
// that takes the file's name while the disk is full.
func TestForeignEpochOnFullDisk(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign.db")
	db, s := mustOpenScript(t, foreign, bolt.Options{Epoch: "before"})
	loadScript(t, s, "9000", 0, 1, 2)
	must(t, s.Flush(t.Context()))
	must(t, db.Close())

	path := filepath.Join(dir, "informers.db")
	db, err := bolt.Open(path, bolt.Options{Epoch: "after", CommitInterval: time.Hour})
	must(t, err)
	defer func() { _ = db.Close() }()
	other := scriptScope()
	other.Namespace = "other"
	first, err := db.Open(other, scriptOptions())
	must(t, err)
	loadScript(t, first, "5", 4, 5)
	must(t, first.Flush(t.Context()))

	must(t, os.Rename(foreign, path))
	limit(true)
	must(t, first.Apply(store.Batch{RV: "6"}))
	if err := bolt.Commit(db); err == nil {
		t.Fatal("the disk is not full")
	}
	opened, err := db.Open(scriptScope(), scriptOptions())
	must(t, err)
	if opened.Checkpoint().RV != "" || opened.Len() != 0 {
		t.Errorf("%d objects at %q of another epoch are served", opened.Len(), opened.Checkpoint().RV)
	}
	limit(false)
	loadScript(t, first, "7", 4, 5)
	must(t, first.Flush(t.Context()))
	loadScript(t, opened, "8", 1)
	must(t, opened.Flush(t.Context()))
	if epoch, err := bolt.Epoch(db); err != nil || epoch != "after" {
		t.Errorf("epoch %q, %v", epoch, err)
	}
	keys, err := opened.Keys(store.Query{})
	if must(t, err); len(keys) != 1 || first.Len() != 2 {
		t.Errorf("keys %q, and %d of the other scope", keys, first.Len())
	}
	departed, err := opened.(store.Departer).Departed(0, 10)
	if must(t, err); len(departed) != 0 {
		t.Errorf("%d objects of another epoch have departed", len(departed))
	}
}

// TestNewFileOnFullDisk checks that a file that could not be begun is gone afterwards.
// Its beginning is no damage for the next process.
func TestNewFileOnFullDisk(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	for range 5 {
		limit(true)
		db, err := bolt.Open(path, bolt.Options{})
		must(t, err)
		if db.Suspended() == nil {
			t.Fatal("the disk is not full")
		}
		must(t, db.Close())
		limit(false)
	}
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	if db.Suspended() != nil || db.SetAside() != "" {
		t.Errorf("on a disk with room: suspended %v, set aside %q", db.Suspended(), db.SetAside())
	}
	must(t, db.Close())
}

// TestLostOnFullDisk checks that a file that is lost while the disk is full is lost once.
// What is listed after that is served from memory until there is room.
func TestLostOnFullDisk(t *testing.T) {
	limit := fullFiles(t)
	if limit == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{CommitInterval: time.Hour})
	loadScript(t, s, "1", 0, 1)
	must(t, s.Flush(t.Context()))
	must(t, os.Remove(path))
	limit(true)
	must(t, s.Apply(store.Batch{RV: "2"}))
	isLost := func() bool {
		select {
		case <-s.(store.Loser).Lost():
			return true
		default:
			return false
		}
	}
	if err := bolt.Commit(db); err == nil || !isLost() {
		t.Fatalf("not lost: %v", err)
	}
	loadScript(t, s, "3", 0, 1, 2)
	for range 4 {
		if err := bolt.Commit(db); err == nil {
			t.Error("the disk is not full")
		}
		keys, err := s.Keys(store.Query{})
		if must(t, err); len(keys) != 3 || isLost() {
			t.Fatalf("keys %q; it may be lost again", keys)
		}
	}
	limit(false)
	must(t, s.Flush(t.Context()))
	must(t, db.Close())
	_, s = mustOpenScript(t, path, bolt.Options{})
	if s.Len() != 3 || s.Checkpoint().RV != "3" {
		t.Errorf("%d objects at %q are in the file", s.Len(), s.Checkpoint().RV)
	}
}
