package sample_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the directory of the module that contains the sample.
const root = "../.."

// process is a running sample controller.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	logPath string
	started time.Time
	ended   chan struct{} // closed when the process has ended
}

// start starts the program. If it still runs at the end of the test, it is killed.
func start(t *testing.T, program, logPath string, args ...string) *process {
	t.Helper()
	log, err := os.Create(logPath)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		t: t, cmd: exec.CommandContext(t.Context(), program, args...),
		logPath: logPath, started: time.Now(), ended: make(chan struct{}),
	}
	p.cmd.Stderr = log
	err = p.cmd.Start()
	_ = log.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // tests read the exit code where it matters
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			log := p.log()
			t.Logf("%s:\n%s", filepath.Base(logPath), log[max(0, len(log)-5000):])
		}
	})
	return p
}

func (p *process) log() string {
	p.t.Helper()
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// awaitLog blocks until the process has logged the text.
func (p *process) awaitLog(text string) {
	p.t.Helper()
	eventually(p.t, func() string {
		if strings.Contains(p.log(), text) {
			return ""
		}
		select {
		case <-p.ended:
			p.t.Fatalf("the process ended before it logged %q: %v", text, p.cmd.ProcessState)
		default:
		}
		return fmt.Sprintf("the log does not have %q", text)
	})
}

// kill kills the process, as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// terminate ends the process as a rollout does, and checks that it ends quickly and
// without an error.
func (p *process) terminate() {
	p.t.Helper()
	begin := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second): // what a kubelet gives it
		p.t.Fatal("the process did not end in 30 s after SIGTERM")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("the process ended with %d after SIGTERM, want 0", code)
	}
	p.t.Logf("ended %v after SIGTERM", time.Since(begin).Round(time.Millisecond))
}

// eventually polls until left returns "". left says what the test is waiting for.
func eventually(t *testing.T, left func() string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(2 * time.Minute)
	for {
		what := left()
		if what == "" {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}
