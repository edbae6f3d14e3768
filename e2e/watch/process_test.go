package watch_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a running command.
type process struct {
	w     *world
	cmd   *exec.Cmd
	out   io.Reader
	ended chan struct{} // closed when it has ended and its output is read

	mu   sync.Mutex // protects errs
	errs strings.Builder
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.program, append(args, "--db", filepath.Join(w.dir, "informers.db"))...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig)
	return cmd
}

func (w *world) output(args ...string) []byte {
	w.Helper()
	out, err := w.command(args...).Output()
	if err != nil {
		w.Fatalf("informctl %s: %v", args[0], err)
	}
	return out
}

// run starts a command. The caller calls reads next.
func (w *world) run(args ...string) *process {
	w.Helper()
	p := &process{w: w, cmd: w.command(args...), ended: make(chan struct{})}
	p.cmd.Stderr = p
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	p.out = out
	w.Cleanup(p.kill)
	return p
}

// reads calls read until it returns false, which means that the output has ended.
func (p *process) reads(read func() bool) {
	go func() {
		defer close(p.ended)
		for read() {
			continue
		}
		_ = p.cmd.Wait() // it was killed, or its log says why it ended
	}()
}

// Write implements io.Writer for what the command writes to standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.String()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

func (p *process) stop() {
	p.w.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.w.Fatal(err)
	}
	<-p.ended
}

// keep starts a process that keeps the file, and returns when it is caught up.
func (w *world) keep() *process {
	w.Helper()
	p := w.run("run", "pods", "--log-format", "json")
	lines := bufio.NewScanner(p.out)
	p.reads(lines.Scan)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(2 * time.Minute)
	defer timeout.Stop()
	for {
		for line := range strings.Lines(p.log()) {
			var event struct{ Msg string }
			if json.Unmarshal([]byte(line), &event) == nil && event.Msg == "Caught up" {
				return p
			}
		}
		select {
		case <-tick.C:
		case <-p.ended:
			w.Fatalf("informctl run ended: %s", p.log())
		case <-timeout.C:
			w.Fatalf("informctl run is not caught up: %s", p.log())
		}
	}
}
