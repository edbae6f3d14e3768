package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/informctl/informctl/e2e/program"
)

// resources are the resources that informctl watches.
var resources = []string{"pods", "widgets"}

// informctl is the program. Its commands run in dir.
type informctl struct {
	path, dir, kubeconfig string
	env                   []string // beside KUBECONFIG
}

func (c *informctl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir = c.dir
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+c.kubeconfig), c.env...)
	return cmd
}

// output returns the output of a command.
func (c *informctl) output(ctx context.Context, args ...string) ([]byte, error) {
	out, err := c.command(ctx, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("informctl %s: %w", args[0], program.OutputError(err))
	}
	return out, nil
}

// lines returns the lines of the output of a command.
func (c *informctl) lines(ctx context.Context, args ...string) ([]string, error) {
	out, err := c.output(ctx, args...)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), nil
}

// follower is a running "informctl run". Its methods must be called from one goroutine.
type follower struct {
	cmd    *exec.Cmd
	stderr *bufio.Reader
	begin  time.Time
	ended  bool
	said   string   // the last line on standard error
	listed []string // the resources that it has listed, and why
}

// follow starts "informctl run". The caller must wait for it or kill it. It is killed
// when ctx ends.
func (c *informctl) follow(ctx context.Context, flags ...string) (*follower, error) {
	args := append([]string{"run"}, resources...)
	args = append(args, "--db", file, "--log-format", "json")
	f := &follower{cmd: c.command(ctx, append(args, flags...)...), begin: time.Now()}
	stderr, err := f.cmd.StderrPipe()
	if err == nil {
		f.stderr = bufio.NewReader(stderr)
		err = f.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("informctl run: %w", err)
	}
	return f, nil
}

// awaitCaughtUp blocks until all resources are caught up and returns the time since the
// start. After the timeout it kills the process.
func (f *follower) awaitCaughtUp(timeout time.Duration) (time.Duration, error) {
	expired := time.AfterFunc(timeout, func() { _ = f.cmd.Process.Kill() })
	defer expired.Stop()
	caughtUp := map[string]bool{}
	for len(caughtUp) < len(resources) {
		line, err := f.stderr.ReadString('\n')
		if err != nil {
			took := time.Since(f.begin).Round(time.Second)
			return 0, fmt.Errorf("informctl run was not caught up when it ended after %v: %s", took, f.said)
		}
		f.said = line
		if e := f.note(line); e.Msg == "Caught up" {
			caughtUp[e.Resource] = true
		}
	}
	return time.Since(f.begin), nil
}

// event is a line on standard error.
type event struct{ Msg, Resource, Because string }

// note notes what a line says of lists, and returns it. Lines that are not JSON are
// messages to a person.
func (f *follower) note(line string) (e event) {
	if json.Unmarshal([]byte(line), &e) != nil {
		return event{}
	}
	if e.Msg == "Listed" {
		f.listed = append(f.listed, fmt.Sprintf("%s (%s)", e.Resource, e.Because))
	}
	return e
}

// wait blocks until the process has ended by itself. It returns an error unless the
// process succeeded.
func (f *follower) wait() error {
	rest, err := io.ReadAll(f.stderr)
	f.ended = true
	if err = errors.Join(err, f.cmd.Wait()); err != nil {
		return fmt.Errorf("informctl run: %w: %s%s", err, f.said, rest)
	}
	for line := range strings.Lines(string(rest)) {
		f.note(line)
	}
	return nil
}

// kill sends SIGKILL and waits. It does nothing after wait.
func (f *follower) kill() {
	if f.ended {
		return
	}
	_ = f.cmd.Process.Kill()
	_ = f.wait()
}
