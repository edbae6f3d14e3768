package soak_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// life is one process of informers.
type life struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	started time.Time
	bounded bool
}

// startLife starts a process. Its log goes to the round's.
func (w *world) startLife() error {
	log, err := os.OpenFile(w.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	fmt.Fprintf(log, "---- a process starts at %s\n", time.Now().Format(time.StampMilli))
	cmd := exec.CommandContext(w.t.Context(), os.Args[0])
	// A connection that stalls is noticed by the transport's pings, which come after 30 s unless that is said.
	cmd.Env = append(os.Environ(), childDir+"="+w.dir, "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=2")
	bound := w.disk.bound()
	if bound > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", maxBytes, bound))
	}
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.life = &life{cmd: cmd, in: in, out: bufio.NewReader(out), started: time.Now(), bounded: bound > 0}
	w.tally.add("processes started")
	return cmd.Start()
}

// ask sends a command and waits for what the child answers.
func (l *life) ask(command string) (a answer, err error) {
	if _, err := fmt.Fprintln(l.in, command); err != nil {
		return a, fmt.Errorf("%s: %w", command, err)
	}
	type result struct {
		line []byte
		err  error
	}
	got := make(chan result, 1)
	go func() {
		line, err := l.out.ReadBytes('\n')
		got <- result{line, err}
	}()
	timeout := time.NewTimer(patience + 30*time.Second)
	defer timeout.Stop()
	select {
	case r := <-got:
		if r.err != nil {
			return a, fmt.Errorf("%s: the process has ended: %w", command, r.err)
		}
		err = json.Unmarshal(r.line, &a)
	case <-timeout.C:
		_ = l.cmd.Process.Signal(stackDump)
		_ = l.cmd.Wait()
		return a, fmt.Errorf("%s: no answer", command)
	}
	if err == nil && a.Err != "" {
		err = errors.New(a.Err)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", command, err)
	}
	return a, err
}

// kill ends the process as a power cut would end it. One that lived long enough to have started is asked before how its
// informers are.
func (w *world) kill() error {
	if time.Since(w.life.started) > time.Second {
		a, err := w.life.ask("look")
		if err != nil {
			return err
		}
		if err := w.count(a); err != nil {
			return err
		}
	} else {
		w.tally.add("starts: killed within a second")
	}
	w.tally.add("kills")
	_ = w.life.cmd.Process.Kill()
	_ = w.life.cmd.Wait()
	return nil
}

// reasons are those for which a collection may be listed: promise 3. Those of a first list count in the first round only.
var reasons = map[string]bool{
	"nothing stored yet":                                 true,
	"first list did not end":                             true,
	"the server no longer has the history":               false,
	"the server is behind":                               false,
	"the server ends watches from this resource version": false,
}

// count adds to the tally how a process has started, and returns what broke a guarantee in its life.
func (w *world) count(a answer) error {
	for name, s := range a.Scopes {
		for _, fault := range s.Faults {
			return fmt.Errorf("%s: %s", name, fault)
		}
		switch s.Status.Start {
		case "":
			w.tally.add("starts: killed before it had caught up")
		case "resumed":
			w.tally.add("starts: resumed")
		default:
			w.tally.add("starts: listed, " + s.Status.StartReason)
		}
		w.tally.addN("notifications", s.Told)
		w.tally.addN("watches resumed", s.Status.Resumes)
		w.tally.addN("errors of lists, watches and probes", s.Status.Errors)
		for reason, n := range s.Status.ListsByReason {
			w.tally.addN("lists: "+reason, n)
			if first, ok := reasons[reason]; !ok || first && w.rounds > 1 {
				return fmt.Errorf("%s: listed for a reason that there is not: %s", name, reason)
			}
		}
		if s.Status.Memory != "" {
			if !w.mayBeInMemory(s) {
				return fmt.Errorf("%s: not persisted: %s", name, s.Status.Memory)
			}
			w.tally.add("starts: in memory")
		}
	}
	return nil
}

// mayBeInMemory says whether an informer had to do without the file: nothing of its scope could be written on a disk
// that was full from the start.
func (w *world) mayBeInMemory(s scope) bool {
	return w.rounds == 1 && (strings.Contains(s.Status.Memory, syscall.ENOSPC.Error()) || w.life.bounded)
}

// stop ends the process as SIGTERM would: what was received is written.
func (w *world) stop() error {
	a, err := w.life.ask("stop")
	if err == nil && len(a.Left) > 0 {
		err = fmt.Errorf("left after the informers have stopped: %v", a.Left)
	}
	if err == nil {
		err = w.life.cmd.Wait()
	}
	return err
}

// log is where the processes of a round log.
func (w *world) log() string {
	return filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("round-%d.log", w.rounds))
}
