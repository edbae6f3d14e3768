package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// process is a child that has been started. Its output is appended to a file.
type process struct {
	name    string
	logPath string
	process *os.Process
	// done is closed when the child has ended; err is its exit status then.
	done chan struct{}
	err  error
}

// startProcess starts the program and returns once it runs. One goroutine waits for it until it ends.
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
		// The kernel kills the child with the thread that started it, so this thread has to last as long.
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

// stop sends the signal and waits until the child has ended. When ctx ends first, it kills the child and waits.
// A child that has ended already, or a nil one, is left alone.
func (p *process) stop(ctx context.Context, signal os.Signal) {
	if p == nil {
		return
	}
	// The only error is that the child has ended.
	_ = p.process.Signal(signal)
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.process.Kill()
		<-p.done
	}
}

// exited describes the end of a child that should run. It has the end of the log, which a test removes with its directory.
func (p *process) exited() error {
	log, err := os.ReadFile(p.logPath)
	if err != nil {
		return fmt.Errorf("%s ended: %w", p.name, p.err)
	}
	return fmt.Errorf("%s ended: %w, after this output:\n%s", p.name, p.err, log[max(0, len(log)-1000):])
}
