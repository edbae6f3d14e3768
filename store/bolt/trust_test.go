package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestTrust checks that Open does not use a file that other users could change, or that
// cannot be made. It is no error: the database works without a file and says why.
func TestTrust(t *testing.T) {
	tests := map[string]struct {
		prepare func(path string) error
		want    string // "" means that the file is used
	}{
		"group may write": {func(path string) error { return os.Chmod(path, 0o660) }, ""},
		"all may write":   {func(path string) error { return os.Chmod(path, 0o666) }, "may be written by everybody"},
		"all may read":    {func(path string) error { return os.Chmod(path, 0o644) }, ""},
		"another name":    {func(path string) error { return os.Link(path, path+".link") }, "hard links"},
		"another owner":   {func(path string) error { return os.Chown(path, 65534, 65534) }, "belongs to user 65534"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			scriptFile(t, path, small, 3)
			if err := tt.prepare(path); err != nil {
				t.Skipf("SKIPPED: needs root: %v", err)
			}
			before := read(t, path)
			if tt.want != "" {
				wantWithout(t, path, tt.want)
				if string(before) != string(read(t, path)) {
					t.Error("the file has changed")
				}
				return
			}
			db, err := bolt.Open(path, bolt.Options{})
			must(t, err)
			info, err := os.Stat(path)
			must(t, err)
			if cause := db.Suspended(); cause != nil || info.Mode().Perm()&0o007 != 0 {
				t.Errorf("the open file has mode %04o, suspended: %v", info.Mode().Perm(), cause)
			}
			must(t, db.Close())
		})
	}
}

// TestNoFile checks that Open is no error where no file can be made or read.
func TestNoFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	wantWithout(t, filepath.Join(file, "informers.db"), "not a directory")
	if runtime.GOOS == "linux" {
		wantWithout(t, "/proc/none/informers.db", "no such file or directory")
	}
}

// TestWithoutRights checks the same as a user without root rights, and that WithoutFile
// is for a file that Open refuses.
func TestWithoutRights(t *testing.T) {
	dir, err := os.MkdirTemp("", "bolt-rights")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	cmd := child(t, "rights", dir)
	for _, sub := range []string{"unwritable", "closed", "half"} {
		sub = filepath.Join(dir, sub)
		must(t, os.Mkdir(sub, 0o700))
		scriptFile(t, filepath.Join(sub, "there.db"), small, 3)
		if os.Geteuid() == 0 {
			must(t, os.Chown(sub, 65534, 65534))
			must(t, os.Chown(filepath.Join(sub, "there.db"), 65534, 65534))
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "half", "damaged.db"), healthy(t)[:100], 0o666))
	for sub, mode := range map[string]os.FileMode{"half/there.db": 0o400, "half/damaged.db": 0o666, "half": 0o500, "unwritable": 0o500, "closed": 0} {
		must(t, os.Chmod(filepath.Join(dir, sub), mode))
		t.Cleanup(func() { must(t, os.Chmod(filepath.Join(dir, sub), 0o700)) })
	}
	if os.Geteuid() == 0 {
		exe := filepath.Join(dir, "child")
		must(t, os.WriteFile(exe, read(t, cmd.Path), 0o755))
		cmd.Path = exe
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func childRights(args []string) error {
	for _, name := range []string{"unwritable/new.db", "unwritable/below/new.db", "closed/new.db", "closed/there.db", "half/damaged.db"} {
		db, err := bolt.Open(filepath.Join(args[0], name), bolt.Options{})
		if err != nil {
			return err
		}
		if err := without(db, fs.ErrPermission); err != nil && name != "half/damaged.db" {
			return fmt.Errorf("%s: %w", name, err)
		}
		if db.Suspended() == nil {
			return fmt.Errorf("%s is used", name)
		}
	}
	// It can be written, although no lock file can be made beside it.
	db, err := bolt.Open(filepath.Join(args[0], "unwritable/there.db"), bolt.Options{})
	if err = errors.Join(err, db.Suspended(), db.Close()); err != nil {
		return err
	}
	path := filepath.Join(args[0], "half/there.db")
	_, err = bolt.Open(path, bolt.Options{})
	if !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("a file that may not be written: error is %w", err)
	}
	return without(bolt.WithoutFile(path, err, bolt.Options{}), fs.ErrPermission)
}

// wantWithout fails unless Open makes a database without a file, because of the text.
func wantWithout(t *testing.T, path, text string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	cause := db.Suspended()
	if cause == nil || !strings.Contains(cause.Error(), text) {
		t.Errorf("%s: suspended: %v, want %s", path, cause, text)
	}
	must(t, without(db, cause))
	if _, err := os.Lstat(path + ".lock"); err == nil {
		t.Error("the lock file is left")
	}
}

// without closes a database, and returns an error unless it has worked without a file
// because of cause.
func without(db *bolt.DB, cause error) error {
	if cause == nil || !errors.Is(db.Suspended(), cause) {
		return fmt.Errorf("suspended: %w, want %w", db.Suspended(), cause)
	}
	if _, err := db.Open(scriptScope(), scriptOptions()); !errors.Is(err, cause) {
		return fmt.Errorf("opening a scope: error is %w", err)
	}
	if _, err := db.Scopes(); !errors.Is(err, cause) {
		return fmt.Errorf("Scopes: error is %w", err)
	}
	values, err := db.Ledger(context.Background(), "a") //nolint:forbidigo // also in a child process
	if len(values) > 0 || err != nil {
		return fmt.Errorf("the ledger has %d values, error is %w", len(values), err)
	}
	if err := db.SetLedger(context.Background(), "a", map[string][]byte{"b": nil}); !errors.Is(err, cause) { //nolint:forbidigo // see above
		return fmt.Errorf("SetLedger: error is %w", err)
	}
	if _, err := db.Wipe(nil); !errors.Is(err, cause) {
		return fmt.Errorf("Wipe: error is %w", err)
	}
	return db.Close()
}

// TestLogsByDefault checks that damage is logged with klog if Options has no Logger.
func TestLogsByDefault(t *testing.T) {
	var mu sync.Mutex // background writers of other tests may log, too
	var lines strings.Builder
	t.Cleanup(klog.CaptureState().Restore)
	klog.SetLogger(funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines.WriteString(args + "\n")
	}, funcr.Options{}))
	path := filepath.Join(t.TempDir(), "informers.db")
	must(t, os.WriteFile(path, healthy(t)[:100], 0o600))
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	must(t, db.Close())
	must(t, bolt.WithoutFile(path, errors.New("on purpose"), bolt.Options{}).Close())
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{`"Cache file is damaged, starting with a fresh one"`, `"Cache file cannot be used, going on without"`} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("not logged: %s\n%s", want, lines.String())
		}
	}
}

// TestEpoch checks that another epoch drops the content, and that the same epoch or none
// keeps it.
func TestEpoch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 3)
	for _, tt := range []struct {
		epoch string
		want  int
	}{{"", 3}, {"restored", 0}, {"restored", 3}, {"", 3}, {"again", 0}} {
		db, s := mustOpenScript(t, path, bolt.Options{Epoch: tt.epoch})
		wantState(t, s, small, tt.want)
		if tt.want == 0 {
			applyScript(t, s, small, 1, 3)
		}
		must(t, db.Close())
	}
}

// TestMaxAge checks that a scope with a checkpoint that is too old starts empty.
func TestMaxAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		db, s := mustOpenScript(t, path, bolt.Options{})
		applyScript(t, s, small, 1, 3)
		must(t, db.Close())
		<-time.After(time.Hour)
		db, s = mustOpenScript(t, path, bolt.Options{MaxAge: 2 * time.Hour})
		wantState(t, s, small, 3)
		must(t, db.Close())
		<-time.After(2 * time.Hour)
		db, s = mustOpenScript(t, path, bolt.Options{MaxAge: 2 * time.Hour})
		wantState(t, s, small, 0)
		if why := s.Checkpoint().Reason; !strings.Contains(why, "age") {
			t.Errorf("reason is %q", why)
		}
		loadScript(t, s, "4", 1, 2)
		must(t, db.Close())
	})
	synctest.Test(t, func(t *testing.T) { // the clock was hours ahead
		db, s := mustOpenScript(t, path, bolt.Options{MaxAge: 2 * time.Hour})
		wantState(t, s, small, 0)
		must(t, db.Close())
	})
}

// TestMaxBytes checks that the file does not change at its size limit, and that objects
// that were not written are served from memory.
func TestMaxBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	const bound = 256 << 10
	db, s := mustOpenScript(t, path, bolt.Options{MaxBytes: bound, CommitInterval: time.Millisecond, Compression: bolt.Uncompressed})
	big := script{keys: 200, pad: 4 << 10}
	for n := 1; n <= 5; n++ {
		must(t, s.Apply(big.batch(n)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Flush(ctx); err == nil {
		t.Error("all was written")
	}
	wantState(t, s, big, 5)
	if err := db.Close(); err == nil {
		t.Error("Close does not say that changes are not written")
	}
	if info, err := os.Stat(path); err != nil || info.Size() > bound {
		t.Errorf("the file has %v bytes (%v)", info.Size(), err)
	}
}

// TestForeignFileKeepsItsMode checks that a file that is not a cache is refused for that,
// and keeps its mode.
func TestForeignFileKeepsItsMode(t *testing.T) {
	for _, mode := range []os.FileMode{0o644, 0o666} {
		path := filepath.Join(t.TempDir(), "notes.txt")
		must(t, os.WriteFile(path, []byte("not a cache"), 0o600))
		must(t, os.Chmod(path, mode))
		if _, err := bolt.Open(path, bolt.Options{}); !errors.Is(err, store.ErrNotOurs) {
			t.Errorf("mode %04o: %v", mode, err)
		}
		info, err := os.Stat(path)
		if must(t, err); info.Mode().Perm() != mode {
			t.Errorf("mode %04o is %04o now", mode, info.Mode().Perm())
		}
	}
}

// TestWithoutCurrentDirectory checks that a program whose current directory is gone can
// go on without a file.
func TestWithoutCurrentDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	must(t, os.Mkdir(dir, 0o700))
	t.Chdir(dir)
	must(t, os.Remove(dir))
	_, err := bolt.Open("informers.db", bolt.Options{})
	if err == nil {
		t.Fatal("opened")
	}
	db := bolt.WithoutFile("informers.db", err, bolt.Options{})
	if db.Suspended() == nil {
		t.Error("not suspended")
	}
	must(t, db.Close())
}

// TestDamagedIsClosedToOthers checks that a damaged file that everybody may read is not
// left so when it is set aside.
func TestDamagedIsClosedToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 3)
	b := read(t, path)
	for i := 2 * os.Getpagesize(); i < len(b); i++ {
		b[i] ^= 0xff
	}
	must(t, os.WriteFile(path, b, 0o600))
	must(t, os.Chmod(path, 0o644))
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	info, err := os.Stat(db.SetAside())
	must(t, err)
	if info.Mode().Perm() != 0o640 {
		t.Errorf("set aside with mode %04o, want 0640", info.Mode().Perm())
	}
}
