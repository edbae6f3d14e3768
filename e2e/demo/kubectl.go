package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/program"
)

// served is a running "informctl serve".
type served struct {
	cmd   *exec.Cmd
	ended chan error // the end of it
}

// stopServer stops the API server: what kubectl shows then is the file.
func (d *demo) stopServer(ctx context.Context) (string, error) { return "", d.cp.StopAPIServer(ctx) }

func (d *demo) buildKubectl(ctx context.Context) (_ string, err error) {
	d.kubectl, err = controlplane.Kubectl(ctx, io.Discard)
	return "", err
}

// serve starts "informctl serve", and waits until it answers.
func (d *demo) serve(ctx context.Context) (string, error) {
	s := &served{cmd: d.informctl.command(ctx, "serve", "--db", file), ended: make(chan error, 1)}
	if err := s.cmd.Start(); err != nil {
		return "", fmt.Errorf("informctl serve: %w", err)
	}
	d.served = s
	go func() { s.ended <- s.cmd.Wait() }() // it ends with the process
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		if _, err := d.informctl.lines(ctx, "kubeconfig", "--db", file); err == nil {
			return "", nil
		}
		select {
		case <-poll.C:
		case err := <-s.ended:
			d.served = nil
			return "", fmt.Errorf("informctl serve has ended: %w", errors.Join(err, ctx.Err()))
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// stop interrupts it and waits.
func (s *served) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	return <-s.ended
}

// showKubectl prints what kubectl prints, with nothing in its cache.
func (d *demo) showKubectl(ctx context.Context, head int, args ...string) error {
	kubeconfig, err := d.informctl.lines(ctx, "kubeconfig", "--db", file)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, d.kubectl, args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig[0], "HOME="+d.dir)
	begin := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w", args[0], program.OutputError(err))
	}
	took := time.Since(begin)
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	text := fmt.Sprintf("$ kubectl %s | head -%d\n%s\n", strings.Join(args, " "), head, strings.Join(lines[:min(head, len(lines))], "\n"))
	return d.out.print(text + fmt.Sprintf("... %d lines in %s\n\n", len(lines), seconds(took)))
}
