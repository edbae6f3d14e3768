// Package child makes a test's binary the process that is killed, too: a child reads
// commands from its standard input, a line each, and answers with lines of JSON.
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

// Main is what TestMain does. Where the environment has variable this process is a
// child: run is called with its value, and ends it. Else the tests are run, after
// which no goroutine may be left.
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

// Process is a child that was started. Its methods are for one goroutine.
type Process struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// Start starts this binary again, with env beside this process's environment, until
// ctx ends at the latest. The caller waits for it.
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

// ErrNoAnswer indicates that a child did not answer in the time that it was given.
var ErrNoAnswer = errors.New("no answer")

// Ask sends a command and reads the answer. After an error there is nothing more to
// be asked.
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

// Kill ends the process as a power cut would, and waits for its end.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}
