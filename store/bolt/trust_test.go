package bolt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestTrust checks that Open refuses a file that other users could change, and says why.
func TestTrust(t *testing.T) {
	tests := map[string]struct {
		prepare func(path string) error
		want    string // "" means that the file is opened
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
			db, err := bolt.Open(path, bolt.Options{})
			if err == nil {
				must(t, db.Close())
			}
			info, statErr := os.Stat(path)
			must(t, statErr)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "" && info.Mode().Perm()&0o007 != 0:
				t.Errorf("the open file has mode %04o: others can use it", info.Mode().Perm())
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path)):
				t.Errorf("error is %v, want %s", err, tt.want)
			case tt.want != "" && string(before) != string(read(t, path)):
				t.Error("the file has changed")
			}
		})
	}
}

// TestRebuiltTooOften checks that a file that is damaged repeatedly is not rebuilt until
// some time has passed. Open still succeeds.
func TestRebuiltTooOften(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 1)
	synctest.Test(t, func(t *testing.T) {
		bolt.SetMaxRebuilds(3)
		defer bolt.SetMaxRebuilds(1 << 20)
		for range 3 {
			<-time.After(time.Minute)
			must(t, os.Truncate(path, 100))
			db, s := mustOpenScript(t, path, bolt.Options{})
			applyScript(t, s, small, 1, 2)
			must(t, db.Close())
		}
		must(t, os.Truncate(path, 100))
		db, err := bolt.Open(path, bolt.Options{})
		must(t, err)
		if _, err := db.Open(scriptScope(), store.Options{}); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "3 times") {
			t.Errorf("error is %v", err)
		}
		if _, err := db.Scopes(); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Scopes: error is %v", err)
		}
		must(t, db.Close())
		<-time.After(10 * time.Minute)
		db, s := mustOpenScript(t, path, bolt.Options{})
		applyScript(t, s, small, 1, 2)
		wantState(t, s, small, 2)
		must(t, db.Close())
	})
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
