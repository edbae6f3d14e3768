// Package child lets a test binary start itself again as a child process that the test
// can kill. The child reads commands from its standard input, one per line, and answers
// each with a line of JSON.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"go.uber.org/goleak"
)

// Main implements TestMain. If the environment variable is set, this process is a child:
// Main calls run with the value of the variable and exits when run returns. Otherwise
// Main runs the tests and then checks that no goroutine is left.
func Main(m goleak.TestingM, variable string, run func(ctx context.Context, dir string) error) {
	if dir := os.Getenv(variable); dir != "" {
		if err := run(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// Process is a child process that has been started. Its methods must be called from one
// goroutine.
type Process struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// Start starts this binary again. The child has the environment of this process plus env,
// and is killed when ctx ends. The caller must wait for the child.
func Start(ctx context.Context, log io.Writer, env ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &Process{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// ErrNoAnswer indicates that a child did not answer in time.
var ErrNoAnswer = errors.New("no answer")

// Ask sends a command and reads the answer into answer. After an error the process must
// not be asked again.
func (p *Process) Ask(command string, patience time.Duration, answer any) error {
	if _, err := fmt.Fprintln(p.in, command); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	type result struct {
		line []byte
		err  error
	}
	got := make(chan result, 1)
	go func() {
		line, err := p.out.ReadBytes('\n')
		got <- result{line, err}
	}()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case r := <-got:
		if r.err != nil {
			return fmt.Errorf("%s: the process has ended: %w", command, r.err)
		}
		if err := json.Unmarshal(r.line, answer); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		return nil
	case <-timeout.C:
		return fmt.Errorf("%s: %w in %v", command, ErrNoAnswer, patience)
	}
}

// Kill kills the process, as a power cut would, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}
