package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// findStrace returns the path of strace if it works on this machine.
var findStrace = sync.OnceValues(func() (string, error) {
	path, err := exec.LookPath("strace")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command(path, "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// straced changes a command so that strace logs its system calls on the file at path and
// injects faults into them. It skips the test if strace does not work.
func straced(t *testing.T, cmd *exec.Cmd, path, log string, options ...string) *exec.Cmd {
	t.Helper()
	strace, err := findStrace()
	if err != nil {
		t.Skipf("SKIPPED: strace does not work here, so no system call fails and no process is killed at one: %v", err)
	}
	args := append([]string{strace, "-f", "-qq", "-s", "0", "-o", log, "-P", path}, options...)
	cmd.Path, cmd.Args = strace, append(append(args, cmd.Path), cmd.Args[1:]...)
	return cmd
}

// straceEnds are options of strace with which the traced process can call endStrace:
// strace is its child, not its parent, and takes signals.
var straceEnds = []string{"-D", "-I", "1"}

// endStrace ends the strace that traces this process, and returns when it has: no call is
// logged or fails from then on.
func endStrace() error {
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(string(status), "TracerPid:")
		tracer, err := strconv.Atoi(strings.Fields(after)[0])
		if err != nil || tracer == 0 {
			return err
		}
		if err := syscall.Kill(tracer, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
}

var (
	pwriteCall = regexp.MustCompile(`pwrite64\(\d+, .*, \d+, (\d+)(\)| <unfinished)`)
	syncCall   = regexp.MustCompile(`(fdatasync|fsync)\(\d+(\)| <unfinished)`)
)

// TestSyncs checks the system calls of a process: the data and the meta page of every
// commit are synced one after the other. TestCrashImages relies on that.
func TestSyncs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, log := filepath.Join(dir, "informers.db"), filepath.Join(dir, "log")
	scriptFile(t, path, small, 2)
	cmd := straced(t, child(t, "write", path, "12"), path, log, "-e", "trace=pwrite64,fdatasync,fsync")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	commits, unsynced := 0, ""
	for line := range strings.Lines(string(read(t, log))) {
		if syncCall.MatchString(line) {
			unsynced = ""
		}
		m := pwriteCall.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		what := "data"
		if off, err := strconv.Atoi(m[1]); err != nil || off < 2*pageSize {
			what = "meta page"
			commits++
		}
		if unsynced == "meta page" || unsynced != "" && what == "meta page" {
			t.Errorf("commit %d writes its %s while the %s before is not synced", commits, what, unsynced)
		}
		unsynced = what
	}
	if acked := strings.Count(string(out), "acked"); commits < acked || acked < 5 || unsynced != "" {
		t.Errorf("%d commits, %d acknowledged; not synced: %q", commits, acked, unsynced)
	}
}

// exitedOrKilled reports whether a command under strace was killed by a signal. strace
// reports that in one of two ways.
func exitedOrKilled(err error) (killed bool, other error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, nil
	case errors.As(err, &exit) && (!exit.Exited() || exit.ExitCode() == 137):
		return true, nil
	case errors.As(err, &exit):
		return false, fmt.Errorf("%w: %.3000s", err, exit.Stderr)
	}
	return false, err
}
