package bolt_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestCopyTo checks that each copy made during writes contains the state of one commit,
// and that opening a copy does not set it aside.
func TestCopyTo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, s := mustOpenScript(t, filepath.Join(dir, "informers.db"), bolt.Options{CommitInterval: time.Millisecond})
	const batches = 60
	allowed := []string{small.want(0)}
	for n := 1; n <= batches; n++ {
		allowed = append(allowed, small.want(n))
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	done := make(chan struct{})
	writing.Go(func() {
		defer close(done)
		applyScript(t, s, small, 1, batches)
	})
	copies := 0
	for ended := false; !ended; copies++ {
		select {
		case <-done:
			ended = true
			allowed = allowed[batches:] // the copy was made after the flush
		default:
		}
		var b bytes.Buffer
		n, err := db.CopyTo(&b)
		if err != nil || n != int64(b.Len()) {
			t.Fatalf("copied %d bytes as %d: %v", b.Len(), n, err)
		}
		if err := openImage(filepath.Join(dir, "copy.db"), small, b.Bytes(), allowed); err != nil {
			t.Fatalf("copy %d: %v", copies, err)
		}
	}
	t.Logf("%d copies", copies)
}

// full is a writer to a full disk.
type full struct{}

var errFull = errors.New("no space")

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestCopyToFails checks that the error contains the path of the file and that the
// database remains usable.
func TestCopyToFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	if _, err := db.CopyTo(full{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("to a full disk: %v", err)
	}
	applyScript(t, s, small, 1, 2)
	must(t, db.Close())
	if _, err := db.CopyTo(full{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCommits checks the reported statistics of commits, also while writes fail.
func TestCommits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		db, s := mustOpenScript(t, path, bolt.Options{CommitInterval: time.Second})
		commits := func() store.Commits { return s.(store.Committer).Commits() }
		buckets := cmpopts.IgnoreFields(store.Commits{}, "Durations", "Sizes")
		if diff := cmp.Diff(store.Commits{MaxWaiting: 256 << 20}, commits(), buckets); diff != "" {
			t.Errorf("before any change (-want +got):\n%s", diff)
		}
		// The writes fail until the file is opened again.
		bolt.HookWrites(db, func(bolt.WriteAt) bolt.WriteAt {
			return func([]byte, int64) (int, error) { return 0, errFull }
		})
		must(t, s.Apply(small.batch(1)))
		if got := commits(); got.Waiting == 0 || got.Err != nil {
			t.Errorf("inside the interval: %+v", got)
		}
		<-time.After(1500 * time.Millisecond)
		if got := commits(); !errors.Is(got.Err, errFull) || got.Waiting == 0 || got.Count != 0 {
			t.Errorf("while writes fail: %+v", got)
		}
		<-time.After(10 * time.Second)
		got := commits()
		if got.Err != nil || got.Waiting != 0 || got.Count == 0 || got.Last.IsZero() || got.Took < got.LastTook {
			t.Errorf("when they do not: %+v", got)
		}
		must(t, s.Apply(small.batch(2)))
		must(t, s.Flush(t.Context()))
		if more := commits(); more.Count != got.Count+1 || !more.Last.After(got.Last) {
			t.Errorf("after one more: %+v, before %+v", more, got)
		}
		must(t, db.Close())
	})
}
