package all_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// command returns an informctl that finds its file by the context.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.program, args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "INFORMCTL_DB=", "KUBECONFIG="+w.kubeconfig,
		"XDG_CACHE_HOME="+filepath.Join(w.dir, "cache"), "INFORMCTL_KEY_FILE="+filepath.Join(w.dir, "keys"))
	return cmd
}

// says returns what a command prints, on both streams.
func (w *world) says(args ...string) string {
	out, _ := w.command(args...).CombinedOutput() // what it says is compared
	return string(out)
}

// process is a running "informctl run --all".
type process struct {
	w     *world
	cmd   *exec.Cmd
	ended chan error

	mu  sync.Mutex // protects log
	log bytes.Buffer
}

func (w *world) run() *process {
	w.Helper()
	p := &process{w: w, cmd: w.command("run", "--all", "--log-format", "json"), ended: make(chan error, 1)}
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	w.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// Write implements io.Writer for the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// line is a line of the log.
type line struct{ Msg, Resource, Because string }

// lines returns the lines with a message.
func (p *process) lines(msg string) (found []line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for text := range strings.Lines(p.log.String()) {
		var l line
		if json.Unmarshal([]byte(text), &l) == nil && strings.HasPrefix(l.Msg, msg) {
			found = append(found, l)
		}
	}
	return found
}

// has reports whether a line has a message about a resource.
func (p *process) has(msg, resource string) bool {
	for _, l := range p.lines(msg) {
		if l.Resource == resource || strings.HasPrefix(l.Resource, resource+" (") {
			return true
		}
	}
	return false
}

// awaits blocks until a condition holds.
func (p *process) awaits(what string, holds func() bool) {
	p.w.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case err := <-p.ended:
			p.w.Fatalf("ended with %v before %s:\n%s", err, what, p.log.String())
		case <-timeout:
			p.mu.Lock()
			defer p.mu.Unlock()
			p.w.Fatalf("not %s:\n%s", what, p.log.String())
		}
	}
}
