//go:build torture && linux

package bolt_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// The tests in this file need root: they mount file systems, cut their power and fill
// them. Run them with make torture.

var powerCutsFlag = flag.Int("powercuts", 600, "how often TestTorturePowerCut cuts the power")

// cannot skips a test with a message on standard error that cannot be overlooked.
func cannot(t *testing.T, why string, args ...any) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "\n*** %s DID NOT RUN: %s ***\n\n", t.Name(), fmt.Sprintf(why, args...))
	t.Skip("SKIPPED")
}

// mount mounts a file system until the test ends. unmount unmounts it earlier.
func mount(t *testing.T, dir string, args ...string) (unmount func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		cannot(t, "it needs root")
	}
	if out, err := exec.CommandContext(t.Context(), "mount", append(args, dir)...).CombinedOutput(); err != nil {
		cannot(t, "mount %v: %v: %s", args, err, out)
	}
	mounted := true
	unmount = func() {
		if !mounted {
			return
		}
		mounted = false
		if err := unix.Unmount(dir, 0); err != nil {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			t.Errorf("unmount %s: %v", dir, err)
		}
	}
	t.Cleanup(unmount)
	return unmount
}

// disk is a file system in a file. Its power can be cut.
type disk struct {
	t            *testing.T
	image, dir   string
	commit       int // seconds between commits of the journal
	unmountImage func()
}

func newDisk(t *testing.T, commit int) *disk {
	t.Helper()
	base := t.TempDir()
	d := &disk{t: t, image: filepath.Join(base, "image"), dir: filepath.Join(base, "mnt"), commit: commit}
	must(t, os.Mkdir(d.dir, 0o700))
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, os.Truncate(d.image, 96<<20))
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		cannot(t, "mkfs.ext4: %v: %s", err, out)
	}
	d.powerOn()
	return d
}

func (d *disk) powerOn() {
	d.t.Helper()
	d.unmountImage = mount(d.t, d.dir, "-t", "ext4", "-o", fmt.Sprintf("loop,commit=%d", d.commit), d.image)
}

// cut drops everything that is not on disk: it calls EXT4_IOC_SHUTDOWN without a flush of
// the journal.
func (d *disk) cut() {
	d.t.Helper()
	const shutdown, noLogFlush = 0x8004587d, 2
	f, err := os.Open(d.dir)
	must(d.t, err)
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		cannot(d.t, "this kernel cannot shut an ext4 down: %v", err)
	}
}

// powerCut runs a child that writes, cuts the power after a number of lines of its
// output, and mounts the disk again. Until then parts of the file are written back at
// random, as the kernel may do at any time.
func (d *disk) powerCut(rng *rand.Rand, path string, p *progress, lines int, args ...string) {
	t := d.t
	t.Helper()
	cmd := child(t, "write", append([]string{path, "100000000"}, args...)...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	stop, stopped := make(chan struct{}), make(chan struct{})
	seed := rng.Uint64()
	go func() {
		defer close(stopped)
		writeBack(rand.New(rand.NewPCG(seed, 1)), path, stop)
	}()
	cutAt := lines
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if cutAt > 0 {
			p.read(scanner.Text())
		} else if word, _, _ := strings.Cut(scanner.Text(), " "); word == "apply" {
			p.read(scanner.Text()) // an acknowledgement may come from after the cut
		}
		if cutAt--; cutAt == 0 {
			pause(rng)
			d.cut()
			must(t, cmd.Process.Kill())
		}
	}
	close(stop)
	<-stopped
	if err := cmd.Wait(); cutAt > 0 || err == nil {
		t.Fatalf("the process ended by itself: %v", err)
	}
	d.unmountImage()
	d.powerOn()
}

// writeBack writes random ranges of a file to its disk.
func writeBack(rng *rand.Rand, path string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(2000)) * time.Microsecond):
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // the file does not exist yet, or no longer
		}
		pages := int64(100)
		off := rng.Int64N(pages) * int64(pageSize)
		_ = unix.SyncFileRange(int(f.Fd()), off, (1+rng.Int64N(8))*int64(pageSize),
			unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
		_ = f.Close()
	}
}

// TestTorturePowerCut checks that acknowledged changes survive a power cut and that the
// file is whole (promises 1 and 2).
func TestTorturePowerCut(t *testing.T) {
	rng, _ := seeded(t)
	cuts := 0
	for _, commit := range []int{1, 5, 1000} {
		d := newDisk(t, commit)
		path := filepath.Join(d.dir, "informers.db")
		var p progress
		for range *powerCutsFlag / 3 {
			d.powerCut(rng, path, &p, 1+rng.IntN(80))
			rv, err := recovered(path, p)
			if err != nil {
				t.Fatalf("after %d cuts, commit=%d: %v", cuts, commit, err)
			}
			p.acked, p.applied = rv, rv
			cuts++
		}
		t.Logf("commit=%d: came to batch %d", commit, p.acked)
		d.unmountImage()
	}
	t.Logf("%d power cuts survived", cuts)
}

// TestTortureControl disables syncs. A power cut must cause a loss, otherwise
// TestTorturePowerCut proves nothing.
func TestTortureControl(t *testing.T) {
	rng, _ := seeded(t)
	for n := 1; n <= 12; n++ {
		d := newDisk(t, 5)
		path := filepath.Join(d.dir, "informers.db")
		var p progress
		d.powerCut(rng, path, &p, 300, "no sync")
		_, err := recovered(path, p)
		d.unmountImage()
		if err != nil {
			t.Logf("caught in cycle %d: %.200v", n, err)
			return
		}
	}
	t.Error("12 power cuts without a sync did no harm: the power cuts are none")
}

// TestTortureKill kills a process at every write, sync and change of length in every
// story, and then the processes that recover from that.
func TestTortureKill(t *testing.T) {
	kills, again := 0, 0
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		st := stories[name]
		states := recordStory(t, filepath.Join(t.TempDir(), "informers.db"), st).states
		for _, call := range []string{"pwrite64", "fdatasync", "fsync", "ftruncate"} {
			for n, killed := 1, true; killed; n++ {
				path := storyFile(t, name)
				cmd := straced(t, child(t, "story", path, name), path, os.DevNull, "-e", kill(call, n))
				out, err := cmd.Output()
				if killed, err = exitedOrKilled(err); err != nil {
					t.Fatalf("%s: %s %d: %v", name, call, n, err)
				}
				written := strings.Count(string(out), "written")
				var allowed []string
				for _, s := range states[written:min(written+2, len(states))] {
					allowed = append(allowed, s.state)
				}
				if killed {
					kills++
					again += killRecovery(t, path)
				}
				content, err := used(path)
				must(t, err)
				if err := openImage(path+".copy", st.script, content, allowed); err != nil {
					t.Fatalf("%s: %s %d: after %d states: %v", name, call, n, written, err)
				}
			}
		}
	}
	t.Logf("killed %d times, and %d times while that was recovered from", kills, again)
	if kills < 100 || again < 10 {
		t.Error("this proves little")
	}
}

// TestTortureKillSettingAside kills a process that finds damage at every system call that
// changes something. The next process must be able to begin.
func TestTortureKillSettingAside(t *testing.T) {
	good, kills := healthy(t), 0
	for _, call := range []string{"renameat", "openat", "pwrite64", "fdatasync", "fsync", "ftruncate", "write"} {
		for n, killed := 1, true; killed; n++ {
			path := filepath.Join(t.TempDir(), "informers.db")
			must(t, os.WriteFile(path, good[:len(good)-pageSize-100], 0o600))
			_, err := straced(t, child(t, "open", path), path, os.DevNull, "-e", kill(call, n)).Output()
			killed, err = exitedOrKilled(err)
			must(t, err)
			if killed {
				kills++
			}
			db, s, err := openScript(path, bolt.Options{})
			must(t, err)
			wantState(t, s, small, 0)
			applyScript(t, s, small, 1, 2)
			wantState(t, s, small, 2)
			must(t, db.Close())
		}
	}
	t.Logf("killed %d times", kills)
	if kills < 5 {
		t.Error("this proves little")
	}
}

func kill(call string, n int) string { return fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n) }

// killRecovery kills processes that open a file at their first, second, third and so on
// write, until one survives.
func killRecovery(t *testing.T, path string) (kills int) {
	t.Helper()
	for n, killed := 1, true; killed; n++ {
		_, err := straced(t, child(t, "open", path), path, os.DevNull, "-e", kill("pwrite64", n)).Output()
		killed, err = exitedOrKilled(err)
		must(t, err)
		if killed {
			kills++
		}
	}
	return kills
}

// TestTortureFull repeatedly fills a file system and empties it.
func TestTortureFull(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
	path, filler := filepath.Join(dir, "informers.db"), filepath.Join(dir, "filler")
	db, s := mustOpenScript(t, path, bolt.Options{CommitInterval: time.Millisecond})
	applyScript(t, s, small, 1, 1)
	const rounds = 20
	objects := script{keys: small.keys}
	full := 0
	for round := range rounds {
		fill(t, filler)
		objects.pad += 1000 // the file has to grow
		must(t, s.Apply(objects.batch(1)))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := s.Flush(ctx)
		cancel()
		if errors.Is(err, syscall.ENOSPC) {
			full++
		} else if err != nil { // the free pages may have been enough
			t.Fatalf("round %d: Flush on a full disk: %v", round, err)
		}
		wantState(t, s, objects, 1)
		must(t, os.Remove(filler))
		must(t, s.Flush(t.Context()))
		wantState(t, s, objects, 1)
		must(t, openCopy(path, objects, objects.want(1)))
		must(t, os.Remove(path+".copy"))
	}
	must(t, db.Close())
	t.Logf("full %d times", full)
	if full < rounds/2 {
		t.Error("this proves little")
	}
}

// TestTortureSmallDisk checks that a file whose logs may be larger than its volume is
// always written: with changes of one object, and with batches of large ones, which need
// many pages in a row.
func TestTortureSmallDisk(t *testing.T) {
	for name, changes := range map[string]func(*rand.Rand) (objects, bytes int){
		"single": func(rng *rand.Rand) (objects, bytes int) {
			if rng.IntN(4) == 0 {
				return 1, rng.IntN(48 << 10)
			}
			return 1, 8
		},
		"batches": func(rng *rand.Rand) (objects, bytes int) { return 1 + rng.IntN(30), 500 + rng.IntN(2)*rng.IntN(30_000) },
	} {
		t.Run(name, func(t *testing.T) { tortureSmallDisk(t, changes) })
	}
}

func tortureSmallDisk(t *testing.T, changes func(*rand.Rand) (objects, bytes int)) {
	dir := t.TempDir()
	mount(t, dir, "-t", "tmpfs", "-o", "size=24m", "tmpfs")
	path := filepath.Join(dir, "informers.db")
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	rv, written := 0, 0
	for life := range 200 {
		db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Hour})
		must(t, err)
		var scopes []store.Store
		for i := range 3 {
			scope := store.Scope{Resource: fmt.Sprint("kind", i), Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
			s, err := db.Open(scope, store.Options{Codec: c})
			must(t, err)
			scopes = append(scopes, s)
		}
		for range 30 {
			for n := 0; n < 20; {
				objects, size := changes(rng)
				n += objects
				text := make([]byte, size)
				for i := range text {
					text[i] = "0123456789abcdef"[rng.IntN(16)]
				}
				b := store.Batch{}
				for _, o := range rng.Perm(100)[:objects] {
					written += len(text)
					rv++
					b.Changes = append(b.Changes, store.Change{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
						Name: fmt.Sprint("o", o), Namespace: "d", UID: "u", ResourceVersion: fmt.Sprint(rv),
						Annotations: map[string]string{"text": string(text)},
					}}})
				}
				b.RV = fmt.Sprint(rv)
				must(t, scopes[rng.IntN(len(scopes))].Apply(b))
			}
			if err := bolt.Commit(db); err != nil {
				_ = db.Close()
				t.Fatalf("process %d, after %d bytes, with logs of %d bytes: %v", life, written, bolt.FileLogBytes(db), err)
			}
		}
		must(t, db.Close())
	}
	t.Logf("%d bytes were written", written)
}

// fill writes until the file system is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	block := bytes.Repeat([]byte{1}, pageSize)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill: %v", err)
	}
	must(t, f.Close())
}
