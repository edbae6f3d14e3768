package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// temporary makes the directory of temporary files one that must be empty in the end.
func temporary(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "informctl-demo-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

func TestDemo(t *testing.T) {
	temporary(t)
	var out bytes.Buffer
	err := run(t.Context(), &out, options{Pods: 300})
	t.Logf("output:\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^  for a whole collection +2 +0$`,
		`(?m)^objects in the file +500 +510$`,
		`(?m)^created meanwhile +- +30$`,
		`(?m)^changed meanwhile +- +50$`,
		`(?m)^deleted meanwhile +- +20$`,
		`(?m)^\.\.\. 510 objects in `,
		`(?m)^The file equals the server: 310 pods and 200 widgets, `,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the output has nothing like %s", want)
		}
	}
}

// interruptor ends a context when text is written to it.
type interruptor struct {
	text   string
	cancel context.CancelFunc
}

func (i interruptor) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.text) {
		i.cancel()
	}
	return len(p), nil
}

// TestInterrupt: what was started is stopped and the directory removed.
func TestInterrupt(t *testing.T) {
	temporary(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := run(ctx, interruptor{"SIGKILL", cancel}, options{Pods: leastPods})
	if !errors.Is(err, errInterrupted) {
		t.Errorf("got %v, want %v", err, errInterrupted)
	}
}

// closed is an output whose reader went away.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestErrors(t *testing.T) {
	temporary(t)
	if err := run(t.Context(), closed{}, options{Pods: leastPods}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v, want %v", err, os.ErrClosed)
	}
	if err := run(t.Context(), closed{}, options{Pods: leastPods - 1}); err == nil || !strings.Contains(err.Error(), "too few") {
		t.Errorf("got %v, want too few pods", err)
	}
}
