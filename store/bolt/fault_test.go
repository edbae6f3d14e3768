package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/informctl/informctl/store/bolt"
)

var faultsFlag = flag.String("faults", "some", "how TestWriteFaults fails each write: some way, or in all ways")

var errFault = errors.New("a fault that was made")

// writeFaults are the ways in which a write can fail.
var writeFaults = map[string]func(next bolt.WriteAt, b []byte, off int64) (int, error){
	"nothing is written": func(bolt.WriteAt, []byte, int64) (int, error) { return 0, errFault },
	"a part is written": func(next bolt.WriteAt, b []byte, off int64) (int, error) {
		n, err := next(b[:len(b)/2], off)
		return n, errors.Join(errFault, err)
	},
	"all is written, and an error returned": func(next bolt.WriteAt, b []byte, off int64) (int, error) {
		n, err := next(b, off)
		return n, errors.Join(errFault, err)
	},
}

// TestWriteFaults makes the first, second, third and so on write of every story fail,
// until the story ends before the fault. Reads must not be affected, and acknowledged
// changes must be in the file (promises 1 and 2).
func TestWriteFaults(t *testing.T) {
	t.Parallel()
	how := slices.Sorted(maps.Keys(writeFaults))
	made, counts := 0, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		for n, met := 1, true; met; n += fewer {
			for i, fault := range how {
				if *faultsFlag != "all" && i != n%len(how) {
					continue
				}
				var err error
				if met, err = writeFault(t.TempDir(), stories[name], n, writeFaults[fault]); err != nil {
					t.Fatalf("%s, write %d, %s: %v", name, n, fault, err)
				}
				if met {
					made++
					counts[name]++
				}
			}
		}
	}
	t.Logf("%d writes failed: %v", made, counts)
	if made < 200/fewer {
		t.Errorf("%d writes failed only", made)
	}
}

// writeFault tells a story in which the n-th write fails. It returns false if the story
// has fewer writes.
func writeFault(dir string, st story, n int, fault func(bolt.WriteAt, []byte, int64) (int, error)) (bool, error) {
	var met atomic.Bool
	path := filepath.Join(dir, "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
	if err != nil {
		return false, err
	}
	defer func() { _ = db.Close() }()
	tell := &teller{
		db:    db,
		fault: func(err error) bool { return errors.Is(err, errFault) },
	}
	if err := st.begin(tell); err != nil {
		return false, err
	}
	seen := false
	// The file must be as a new process would expect it.
	tell.written = func(state string) error {
		if !met.Load() || seen {
			return nil
		}
		seen = true
		var err error
		// A relist may write in the background.
		bolt.Quiet(db, func() { err = openCopy(path, st.script, state) })
		return err
	}
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) {
			if n--; n != 0 {
				return next(b, off)
			}
			met.Store(true)
			return fault(next, b, off)
		}
	})
	if err := st.tell(tell); err != nil {
		return false, err
	}
	if err := db.Close(); err != nil {
		return false, fmt.Errorf("close: %w", err)
	}
	return met.Load(), openCopy(path, st.script, tell.state())
}

// openCopy opens a copy of a file and checks its state.
func openCopy(path string, script script, state string) error {
	content, err := used(path)
	if err != nil {
		return err
	}
	return openImage(path+".copy", script, content, []string{state})
}

// used reads a file without the unused part at its end.
func used(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	meta := make([]byte, 2*pageSize)
	if _, err := f.ReadAt(meta, 0); err != nil {
		return nil, err
	}
	content := make([]byte, int(highWater(meta))*pageSize)
	_, err = f.ReadAt(content, 0)
	return content, err
}

// childStory tells a story while strace injects faults, which it must survive. It prints
// a line whenever a state is written.
func childStory(args []string) error {
	path, st := args[0], stories[args[1]]
	tell := &teller{fault: fromKernel}
	err := tell.again(func() (err error) {
		tell.db, err = bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
		return err
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if aside := tell.db.SetAside(); aside != "" {
		return fmt.Errorf("set aside as %s", aside)
	}
	if err := st.begin(tell); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	tell.written = func(state string) (err error) {
		fmt.Println("written")
		// A relist may write in the background.
		bolt.Quiet(tell.db, func() { err = openCopy(path, st.script, state) })
		return err
	}
	if err := st.tell(tell); err != nil {
		return err
	}
	if err := tell.db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return openCopy(path, st.script, tell.state())
}

// fromKernel reports whether an error may come from a failed system call. bbolt does not
// wrap all of these errors.
func fromKernel(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.ENOMEM} {
		if errors.Is(err, errno) || strings.Contains(err.Error(), errno.Error()) {
			return true
		}
	}
	return false
}

// callFaults are the system calls that fail, one at a time, and their errors.
var callFaults = []struct{ call, errno string }{
	{"pwrite64", "ENOSPC"}, {"fdatasync", "EIO"}, {"fsync", "EIO"}, {"ftruncate", "ENOSPC"}, {"mmap", "ENOMEM"},
}

// TestCallFaults makes the n-th system call of a kind fail in every story, for n = 1, 2,
// 3 and so on. strace counts for each thread, so it sometimes injects more than one fault
// in a run.
func TestCallFaults(t *testing.T) {
	t.Parallel()
	made := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		for _, c := range callFaults {
			for n, met := 1, 1; met > 0; n += fewer {
				if c.call == "pwrite64" && *faultsFlag != "all" && n%16 != 1 {
					continue // covered by TestWriteFaults
				}
				var err error
				if met, err = callFault(t, name, c.call, fmt.Sprintf("error=%s:when=%d", c.errno, n)); err != nil {
					t.Fatalf("%s: %s %d: %v", name, c.call, n, err)
				}
				made[c.call+" "+c.errno] += met
			}
		}
	}
	t.Logf("calls that failed: %v", made)
	if len(made) != len(callFaults) && fewer == 1 {
		t.Errorf("some calls did not fail: %v", made)
	}
}

// TestCallFaultsInARow makes several syncs fail in a row, so that the attempt that mends
// a failed commit fails, too. A commit whose second sync fails returns an error and is in
// the file.
func TestCallFaultsInARow(t *testing.T) {
	t.Parallel()
	met := 0
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		for _, when := range []string{"1..6", "1..9+2", "2..10+2", "4..12+2"} {
			m, err := callFault(t, name, "fdatasync", "error=EIO:when="+when)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, when, err)
			}
			met += m
		}
	}
	t.Logf("%d calls failed", met)
}

// callFault tells a story with a fault in a child process and returns the number of
// injected faults.
func callFault(t *testing.T, name, call, inject string) (met int, err error) {
	t.Helper()
	for try := 1; ; try++ {
		path, log := storyFile(t, name), filepath.Join(t.TempDir(), "log")
		cmd := straced(t, child(t, "story", path, name), path, log, "-e", "trace="+call, "-e", "inject="+call+":"+inject)
		out, err := cmd.CombinedOutput()
		if err != nil && try < 3 && bytes.Contains(out, []byte("strace: ptrace(")) {
			t.Logf("strace failed, as it does now and then, and not the child: %s", out)
			continue
		}
		if err != nil {
			err = fmt.Errorf("%w: %.3000s", err, out)
		}
		return strings.Count(string(read(t, log)), "INJECTED"), err
	}
}

// storyFile makes a file with the content at the beginning of a story.
func storyFile(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
	must(t, err)
	must(t, errors.Join(stories[name].begin(&teller{db: db}), db.Close()))
	content, err := used(path)
	must(t, err)
	must(t, os.Truncate(path, int64(len(content)))) // the file must grow again
	return path
}

// childBroken writes to a disk that fails and reads in the meantime. It continues the
// script from the state of the file. The second argument is the text that errors of reads
// may contain if the file cannot even be opened again, or "". The third says whether the
// disk recovers before the end.
func childBroken(args []string) error {
	recovers, err := strconv.ParseBool(args[2])
	if err != nil {
		return err
	}
	db, s, err := openScript(args[0], bolt.Options{CommitInterval: time.Millisecond})
	if err != nil {
		return err
	}
	flush := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(context.TODO(), limit)
		defer cancel()
		return s.Flush(ctx)
	}
	n, _ := strconv.Atoi(s.Checkpoint().RV)
	for last := n + 10; n < last; {
		n++
		fmt.Println("apply", n)
		if err := s.Apply(small.batch(n)); err != nil {
			return fmt.Errorf("apply %d: %w", n, err)
		}
		err := flush(40 * time.Millisecond)
		if err == nil {
			fmt.Println("acked", n)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("flush %d: %w", n, err)
		}
		got, err := describe(s, small)
		// If only some of the reads fail, their results do not agree.
		if err != nil && (args[1] == "" || !strings.Contains(err.Error(), args[1]) && !errors.Is(err, errInconsistent)) {
			return fmt.Errorf("read after %d: %w", n, err)
		}
		if err == nil && got != small.want(n) {
			return fmt.Errorf("state after %d is\n%s", n, got)
		}
	}
	patience := 300 * time.Millisecond
	if recovers {
		if err := endStrace(); err != nil {
			return err
		}
		patience = time.Minute
	}
	if err := flush(patience); err == nil {
		fmt.Println("acked", n)
	}
	if err := db.Close(); err != nil {
		fmt.Println("closed:", err)
	}
	return nil
}

// TestBrokenDisk makes system calls fail repeatedly, either permanently or for some time.
// Reads must continue from memory and from the file, and the file must contain
// acknowledged changes.
func TestBrokenDisk(t *testing.T) {
	t.Parallel()
	const lost = "could not be opened again"
	tests := map[string]struct {
		inject   []string
		reads    string // text that errors of reads may contain
		recovers bool
	}{
		"full for ever":             {inject: []string{"pwrite64:error=ENOSPC:when=2+"}},
		"full for some time":        {inject: []string{"pwrite64:error=ENOSPC:when=2+"}, recovers: true},
		"writes fail for ever":      {inject: []string{"pwrite64:error=EIO:when=2+"}},
		"writes fail for some time": {inject: []string{"pwrite64:error=EIO:when=2+"}, recovers: true},
		"syncs fail for ever":       {inject: []string{"fdatasync:error=EIO:when=1+"}},
		"syncs fail for some time":  {inject: []string{"fdatasync:error=EIO:when=1+"}, recovers: true},
		"it cannot grow":            {inject: []string{"ftruncate:error=ENOSPC:when=1+"}},
		"and cannot be mapped":      {inject: []string{"fdatasync:error=EIO:when=1+2", "mmap:error=ENOMEM:when=2+"}, reads: lost},
		"or not for some time":      {inject: []string{"fdatasync:error=EIO:when=1+2", "mmap:error=ENOMEM:when=2+"}, reads: lost, recovers: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, log := filepath.Join(dir, "informers.db"), filepath.Join(dir, "log")
			scriptFile(t, path, small, 3)
			must(t, os.Truncate(path, int64(len(trimmed(read(t, path))))))
			var options []string
			for _, inject := range tt.inject {
				options = append(options, "-e", "inject="+inject)
			}
			if tt.recovers { // strace counts calls by thread: the process ends the faults
				options = append(options, straceEnds...)
			}
			out, err := straced(t, child(t, "broken", path, tt.reads, strconv.FormatBool(tt.recovers)), path, log, options...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %.3000s", err, out)
			}
			p := progress{applied: 3, acked: 3}
			for line := range strings.Lines(string(out)) {
				p.read(line)
			}
			if rv := wantRecovered(t, path, p); tt.recovers && rv != p.applied {
				t.Errorf("the file is at %d, applied were %d:\n%s", rv, p.applied, out)
			}
			met := strings.Count(string(read(t, log)), "INJECTED")
			if met == 0 {
				t.Error("no call failed")
			}
			t.Logf("%d calls failed; %d of %d batches were acknowledged", met, p.acked, p.applied)
		})
	}
}

// childUnread opens a file while a read of it fails.
func childUnread(args []string) error {
	db, s, err := openScript(args[0], bolt.Options{})
	if err != nil {
		if !fromKernel(err) || !strings.Contains(err.Error(), args[0]) {
			return err
		}
		fmt.Println("refused")
		return nil
	}
	got, err := describe(s, small)
	switch aside := db.SetAside(); {
	case err != nil:
		return err
	case aside != "" && got == small.want(0):
		fmt.Println("set aside")
	case aside == "" && got == small.want(3):
		fmt.Println("intact")
	default:
		return fmt.Errorf("set aside as %q, state is\n%s", aside, got)
	}
	return db.Close()
}

// TestReadFaults makes the n-th read fail while a file is opened. Open must treat an
// unreadable sector as damage, or return an error with the file's path.
func TestReadFaults(t *testing.T) {
	t.Parallel()
	start := filepath.Join(t.TempDir(), "start.db")
	scriptFile(t, start, small, 3)
	good, outcomes := trimmed(read(t, start)), map[string]int{}
	for n, met := 1, true; met; n++ {
		dir := t.TempDir()
		path, log := filepath.Join(dir, "informers.db"), filepath.Join(dir, "log")
		must(t, os.WriteFile(path, good, 0o600))
		cmd := straced(t, child(t, "unread", path), path, log, "-e", fmt.Sprintf("inject=pread64:error=EIO:when=%d", n))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("read %d: %v: %.3000s", n, err, out)
		}
		if met = bytes.Contains(read(t, log), []byte("INJECTED")); met {
			outcomes[strings.TrimSpace(string(out))]++
		}
	}
	t.Logf("outcomes: %v", outcomes)
	if len(outcomes) < 2 {
		t.Errorf("this proves little: %v", outcomes)
	}
}
