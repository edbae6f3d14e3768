package bolt_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/store/bolt"
)

var killsFlag = flag.Int("kills", 50/fewer, "processes that TestKill kills")

// childWrite continues the script from the checkpoint of the file to a last batch. It
// prints "apply N" before it applies a batch and "acked N" after it is written. With a
// third argument it disables syncs.
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
	if len(args) > 2 {
		bolt.SetNoSync(db)
	}
	n, _ := strconv.Atoi(s.Checkpoint().RV)
	for n++; n <= last; n++ {
		fmt.Println("apply", n)
		if err := s.Apply(small.batch(n)); err != nil {
			return err
		}
		if n%3 == 0 {
			continue // written later by the committer
		}
		if err := s.Flush(context.TODO()); err != nil {
			return err
		}
		fmt.Println("acked", n)
	}
	return db.Close()
}

// progress is the last output of a killed childWrite.
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

// wantRecovered opens the file of a killed process and checks it.
func wantRecovered(t *testing.T, path string, p progress) (rv int) {
	t.Helper()
	rv, err := recovered(path, p)
	must(t, err)
	return rv
}

// recovered opens the file of a killed process. Its checkpoint must lie between the last
// acknowledged and the last applied batch, and its objects and indexes must be exactly
// those of that batch (promises 1 and 2).
func recovered(path string, p progress) (rv int, err error) {
	db, s, err := openScript(path, bolt.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if aside := db.SetAside(); aside != "" {
		reason, _ := os.ReadFile(aside + ".reason")
		return 0, fmt.Errorf("set aside because of %s", reason)
	}
	rv, _ = strconv.Atoi(s.Checkpoint().RV)
	if rv < p.acked || rv > p.applied {
		return rv, fmt.Errorf("resource version is %d, acknowledged were %d, applied %d", rv, p.acked, p.applied)
	}
	got, err := describe(s, small)
	if err != nil {
		return rv, err
	}
	if diff := cmp.Diff(wantCached(rv), got); diff != "" {
		return rv, fmt.Errorf("state is not that at %d (-want +got):\n%s", rv, diff)
	}
	if err := logAddsUp(s); err != nil {
		return rv, err
	}
	return rv, nil
}

// killsOfFile is how many processes TestKill kills with the same file. Each time it reads
// the whole log, which grows.
const killsOfFile = 50

func TestKill(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	dir := t.TempDir()
	var path string
	var p progress
	ahead, batches := 0, 0
	for i := range *killsFlag {
		if i%killsOfFile == 0 {
			batches += p.acked
			path, p = filepath.Join(dir, fmt.Sprintf("%d.db", i)), progress{}
		}
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
	t.Logf("killed %d times; wrote %d batches; %d times beyond what was acknowledged", *killsFlag, batches+p.acked, ahead)
}

// pause waits for a random fraction of a commit.
func pause(rng *rand.Rand) { <-time.After(time.Duration(rng.IntN(3000)) * time.Microsecond) }

// TestKillAtEveryWrite kills a process before its n-th write or sync, for every n.
func TestKillAtEveryWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := filepath.Join(dir, "start.db")
	scriptFile(t, start, small, 3)
	must(t, os.Truncate(start, int64(len(trimmed(read(t, start))))))
	for _, call := range []string{"pwrite64", "fdatasync", "ftruncate"} {
		for n, killed := 1, true; killed; n++ {
			path := filepath.Join(dir, "informers.db")
			must(t, os.WriteFile(path, read(t, start), 0o600))
			cmd := straced(t, child(t, "write", path, "5"), path, os.DevNull,
				"-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n))
			out, err := cmd.Output()
			killed, err = exitedOrKilled(err)
			must(t, err)
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
