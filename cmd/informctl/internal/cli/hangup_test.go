package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRunHungUp checks that run ends as with SIGTERM when its terminal goes away, and
// goes on if it was started to outlive that.
func TestRunHungUp(t *testing.T) {
	config := runServer(t, func(*http.Request) *metav1.Status { return nil })
	for name, command := range map[string]string{"terminal": `exec "$@"`, "nohup": `trap "" HUP; exec "$@"`} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", command, "sh", "informctl", "run", "pods", "--kubeconfig", config, "--db", path)
			said, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(said)
			for lines.Scan() && !strings.Contains(lines.Text(), `msg="Caught up"`) {
				continue
			}
			if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			if name == "nohup" {
				time.AfterFunc(300*time.Millisecond, func() { _ = cmd.Process.Kill() })
			}
			rest, _ := io.ReadAll(said)
			err = cmd.Wait()
			if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); name == "nohup" {
				if !status.Signaled() || status.Signal() != syscall.SIGKILL {
					t.Errorf("it did not outlive the terminal: %v, %s", err, rest)
				}
				return
			}
			if err != nil {
				t.Errorf("%v, %s", err, rest)
			}
			if got := say(t.Context(), "query", "pods", "--db", path); got.Code != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestCopyIsGone checks that no copy of a file that a live process holds is left, however
// the command ends that reads it.
func TestCopyIsGone(t *testing.T) {
	path := largeFile(t)
	_, _ = hold(t, path)
	temporary := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "informctl", "export", "--db", path)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1<<10)); err != nil {
		t.Errorf("%v, %s", err, &errOut)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}
