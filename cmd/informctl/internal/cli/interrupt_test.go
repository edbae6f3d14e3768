package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// largeFile returns a file that takes a moment to copy.
func largeFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "large.db")
	db, err := bolt.Open(path, bolt.Options{Compression: bolt.Uncompressed})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]runtime.Object, 1500)
	for i := range list {
		list[i] = testobjects.Pod(i, 1)
	}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, list...)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEndsAtAnyPoint checks that the file is whole whenever compact or snapshot is killed
// or interrupted, and that the next compact removes what they left behind.
func TestEndsAtAnyPoint(t *testing.T) {
	large := largeFile(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGHUP} {
		for _, command := range []string{"compact", "snapshot"} {
			for _, bytes := range []int64{0, 4 << 20, 9 << 20} {
				path := filepath.Join(t.TempDir(), "informers.db")
				if err := copyFile(large, path); err != nil {
					t.Fatal(err)
				}
				endAt(t, path, command, sig, bytes)
				if out := string(run(t, "verify", "--db", path)); !strings.HasPrefix(out, "pods: whole: 1500 objects") {
					t.Errorf("%s after %s at %d bytes: %s", command, sig, bytes, out)
				}
				if command == "snapshot" {
					continue
				}
				run(t, "compact", "--db", path)
				if left, _ := filepath.Glob(path + ".compact-*"); len(left) > 0 {
					t.Errorf("%s after %s at %d bytes: compact left %v", command, sig, bytes, left)
				}
			}
		}
	}
}

// TestInterruptedAtOnce checks that an interrupted command reports the interrupt and
// leaves no files behind.
func TestInterruptedAtOnce(t *testing.T) {
	path := podFile(t, smallPod)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(t.TempDir(), "export.jsonl")
	if err := os.WriteFile(exported, run(t, "export", "--db", path), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, waits := io.Pipe() // nothing comes
	defer func() { _ = waits.Close() }()
	for _, args := range [][]string{
		{"snapshot", path + ".out", "--db", path},
		{"compact", "--db", path},
		{"verify", "--db", path},
		{"export", "--db", path},
		{"import", exported, "--db", path + ".out"},
		{"import", "-", "--db", path + ".out"},
		{"diff", path, path},
	} {
		var errOut bytes.Buffer
		code := cli.MainAt(ctx, genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: &errOut}, args, now)
		if code == 0 || !strings.Contains(errOut.String(), "interrupted, nothing was changed\n") {
			t.Errorf("%s: exit code %d, %q", args[0], code, errOut.String())
		}
		if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
			t.Errorf("%s left %v", args[0], left)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed (%v)", err)
	}
}

// TestHistoryEndsAtOnce checks that a signal ends history while nobody reads what it
// prints: it leaves nothing behind.
func TestHistoryEndsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	large := &corev1.ConfigMap{ObjectMeta: objectMeta("a", "large", ""), Data: map[string]string{"text": strings.Repeat("x", 256<<10)}}
	changed := large.DeepCopy()
	changed.ResourceVersion, changed.Data["more"] = "11", "y"
	writeLog(t, db, "configmaps", "ConfigMap", []runtime.Object{large}, store.Batch{RV: "11", Changes: []store.Change{{Object: changed}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "informctl", "history", "-o", "json", "--db", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != sig {
			t.Errorf("%s: %v", sig, err)
		}
	}
}

// endAt sends a signal when the copy has reached that size in bytes.
func endAt(t *testing.T, path, command string, sig syscall.Signal, size int64) {
	t.Helper()
	args := []string{command, "--db", path}
	copies := path + ".compact-*"
	if command == "snapshot" {
		args = append(args, path+".copy")
		copies = path + ".copy.new-*/*"
	}
	cmd := exec.CommandContext(t.Context(), "informctl", args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for sent := false; ; {
		select {
		case err := <-ended:
			if sig != syscall.SIGKILL && err != nil && !strings.Contains(errOut.String(), "informctl: interrupted, nothing was changed\n") {
				t.Errorf("%s, interrupted at %d bytes, said %q", command, size, errOut.String())
			}
			if left, _ := filepath.Glob(path + ".*"); sig != syscall.SIGKILL && err != nil && len(left) > 0 {
				t.Errorf("%s, interrupted at %d bytes, left %v", command, size, left)
			}
			if _, err := os.Stat(path + ".copy"); err == nil {
				run(t, "verify", "--db", path+".copy")
			}
			return
		case <-tick.C:
		}
		names, err := filepath.Glob(copies)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.Size() >= size && !sent {
				sent = true
				t.Logf("%s: %s at %d bytes", command, sig, info.Size())
				_ = cmd.Process.Signal(sig)
			}
		}
	}
}
