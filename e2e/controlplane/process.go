package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// process is a child process that has been started. Its output is appended to a file.
type process struct {
	name    string
	logPath string
	process *os.Process
	// done is closed when the child has ended; then err is its exit status.
	done chan struct{}
	err  error
}

// startProcess starts the program and returns when it runs. A goroutine waits for the
// program to end.
func startProcess(program string, args []string, logPath string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	p := &process{name: filepath.Base(program), logPath: logPath, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer log.Close()
		defer close(p.done)
		// The kernel kills the child when the thread that started it ends, so this
		// goroutine keeps its thread until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.process = cmd.Process
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// stop sends the signal and waits until the child has ended. If ctx ends first, it kills
// the child and waits. It does nothing if p is nil or the child has ended already.
func (p *process) stop(ctx context.Context, signal os.Signal) {
	if p == nil {
		return
	}
	// The only possible error is that the child has ended.
	_ = p.process.Signal(signal)
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.process.Kill()
		<-p.done
	}
}

// exited returns an error for a child that ended but should run. The error contains the
// end of the log, because a test removes the log with its directory.
func (p *process) exited() error {
	log, err := os.ReadFile(p.logPath)
	if err != nil {
		return fmt.Errorf("%s ended: %w", p.name, p.err)
	}
	return fmt.Errorf("%s ended: %w, after this output:\n%s", p.name, p.err, log[max(0, len(log)-1000):])
}
