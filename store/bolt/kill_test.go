package bolt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/store/bolt"
)

// childWrite goes on with the script from the resource version that the file
// has, up to a last batch. It prints "apply N" before a batch is applied and
// "acked N" after one is written.
func childWrite(args []string) error {
	last, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	db, s, err := openScript(args[0], bolt.Options{CommitInterval: time.Millisecond})
	if err != nil {
		return err
	}
	if aside := db.SetAside(); aside != "" {
		return fmt.Errorf("set aside as %s", aside)
	}
	n, _ := strconv.Atoi(s.Checkpoint().RV)
	for n++; n <= last; n++ {
		fmt.Println("apply", n)
		if err := s.Apply(small.batch(n)); err != nil {
			return err
		}
		if n%3 == 0 {
			continue // left to the committer
		}
		if err := s.Flush(context.TODO()); err != nil {
			return err
		}
		fmt.Println("acked", n)
	}
	return db.Close()
}

// progress is what a killed childWrite has said.
type progress struct{ applied, acked int }

func (p *progress) read(line string) {
	word, number, _ := strings.Cut(strings.TrimSpace(line), " ")
	n, _ := strconv.Atoi(number)
	switch word {
	case "apply":
		p.applied = n
	case "acked":
		p.acked = n
	}
}

// wantRecovered opens the file that a killed process left: it is at a resource
// version between what was acknowledged and what was applied, and its objects and
// indexes are those of exactly that one (promises 1 and 2).
func wantRecovered(t *testing.T, path string, p progress) (rv int) {
	t.Helper()
	db, s, err := openScript(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	if aside := db.SetAside(); aside != "" {
		t.Fatalf("set aside because of %s", read(t, aside+".reason"))
	}
	rv, _ = strconv.Atoi(s.Checkpoint().RV)
	if rv < p.acked || rv > p.applied {
		t.Fatalf("resource version is %d, acknowledged were %d, applied %d", rv, p.acked, p.applied)
	}
	got, err := describe(s, small)
	must(t, err)
	if diff := cmp.Diff(wantCached(rv), got); diff != "" {
		t.Fatalf("state is not that at %d (-want +got):\n%s", rv, diff)
	}
	return rv
}

func TestKill(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	path := filepath.Join(t.TempDir(), "informers.db")
	var p progress
	ahead := 0
	for range 60 {
		lines := 1 + rng.IntN(20)
		cmd := child(t, "write", path, "1000000")
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.read(scanner.Text())
			if lines--; lines == 0 {
				pause(rng)
				must(t, cmd.Process.Kill())
			}
		}
		if err := cmd.Wait(); lines > 0 || err == nil {
			t.Fatalf("the process ended by itself: %v", err)
		}
		rv := wantRecovered(t, path, p)
		if rv > p.acked {
			ahead++
		}
		p.acked, p.applied = rv, rv
	}
	t.Logf("came to batch %d; %d times beyond what was acknowledged", p.acked, ahead)
}

// pause lets a part of a commit pass.
func pause(rng *rand.Rand) { <-time.After(time.Duration(rng.IntN(3000)) * time.Microsecond) }

// TestKillAtEveryWrite kills a process before its n-th write or sync, for every n.
func TestKillAtEveryWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED: no strace, so no process is killed at every single write")
	}
	start := filepath.Join(dir, "start.db")
	scriptFile(t, start, small, 3)
	must(t, os.Truncate(start, int64(len(trimmed(read(t, start))))))
	for _, call := range []string{"pwrite64", "fdatasync", "ftruncate"} {
		for n, killed := 1, true; killed; n++ {
			path := filepath.Join(dir, "informers.db")
			must(t, os.WriteFile(path, read(t, start), 0o600))
			cmd := child(t, "write", path, "5")
			cmd.Args = append([]string{
				strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call,
				"-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n), cmd.Path,
			}, cmd.Args[1:]...)
			cmd.Path = strace
			out, err := cmd.Output()
			var exit *exec.ExitError
			if killed = errors.As(err, &exit); !killed {
				must(t, err)
			} else if exit.Exited() && exit.ExitCode() != 137 {
				t.Skipf("SKIPPED: strace does not work here: %v: %s", err, exit.Stderr)
			}
			p := progress{applied: 3, acked: 3}
			for line := range strings.Lines(string(out)) {
				p.read(line)
			}
			wantRecovered(t, path, p)
			if n > 60 {
				t.Fatal("no end of writes")
			}
			if !killed {
				t.Logf("%d times killed at %s", n-1, call)
			}
		}
	}
}
