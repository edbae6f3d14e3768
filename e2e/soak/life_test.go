package soak_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/informctl/informctl/e2e/child"
	"github.com/informctl/informctl/internal/guarantees"
)

// life is one process of informers.
type life struct {
	*child.Process
	started time.Time
	bounded bool
}

// startLife starts a process. It appends to the log of the round.
func (w *world) startLife() error {
	log, err := os.OpenFile(w.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	fmt.Fprintf(log, "---- a process starts at %s\n", time.Now().Format(time.StampMilli))
	held, err := json.Marshal(w.held)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, heldFile), held, 0o600)
	}
	if err != nil {
		return err
	}
	// The transport's pings detect a stalled connection. Their default interval is 30 s.
	env := []string{childDir + "=" + w.dir, "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=2"}
	bound := w.disk.bound()
	if bound > 0 {
		env = append(env, fmt.Sprintf("%s=%d", maxBytes, bound))
	}
	started := time.Now()
	p, err := child.Start(w.t.Context(), log, env...)
	if err != nil {
		return err
	}
	w.life = &life{p, started, bound > 0}
	w.tally.add("processes started")
	return nil
}

// ask sends a command and waits for the answer.
func (l *life) ask(command string) (a answer, err error) {
	err = l.Ask(command, patience+30*time.Second, &a)
	if errors.Is(err, child.ErrNoAnswer) {
		_ = l.Cmd.Process.Signal(stackDump)
		_ = l.Wait()
	}
	if err == nil && a.Err != "" {
		err = fmt.Errorf("%s: %s", command, a.Err)
	}
	return a, err
}

// kill kills the process, as a power cut would. If the process has lived for more than a
// second, kill asks it first for the state of its informers.
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
	w.life.Kill()
	// A changing object may be stored in an older state or not at all.
	for _, held := range w.held {
		maps.DeleteFunc(held, func(key string, _ guarantees.State) bool { return strings.HasPrefix(key, namespace+"/soak-") })
	}
	return nil
}

// reasons are the permitted reasons for a list (promise 3). Those with value true are
// permitted only in the first round.
var reasons = map[string]bool{
	"nothing stored yet":                                 true,
	"first list did not end":                             true,
	"the server no longer has the history":               false,
	"the server is behind":                               false,
	"the server ends watches from this resource version": false,
	// A collection without a watch cache gets no bookmarks, and an idle one gets no
	// events either.
	"the server does not say when a watch has caught up": false,
}

// count adds to the tally how a process has started. It returns an error if the process
// broke a guarantee.
func (w *world) count(a answer) error {
	for name, s := range a.Scopes {
		if len(s.Violations) > 0 {
			return fmt.Errorf("%s: %s", name, strings.Join(s.Violations, "\n"))
		}
		switch s.Status.Start {
		case "":
			w.tally.add("starts: killed before it had caught up")
		case "resumed":
			w.tally.add("starts: resumed")
		default:
			w.tally.add("starts: listed, " + s.Status.StartReason)
		}
		w.tally.addN("notifications", s.Told.Adds+s.Told.Updates+s.Told.Deletes)
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

// mayBeInMemory reports whether an informer may run without the file: the disk was full
// from the start, so nothing of its scope could be written.
func (w *world) mayBeInMemory(s scope) bool {
	return w.rounds == 1 && (strings.Contains(s.Status.Memory, syscall.ENOSPC.Error()) || w.life.bounded)
}

// stop ends the process as SIGTERM does: the process writes what it has received.
func (w *world) stop() error {
	a, err := w.life.ask("stop")
	if err == nil && len(a.Left) > 0 {
		err = fmt.Errorf("left after the informers have stopped: %v", a.Left)
	}
	if err == nil {
		err = w.life.Wait()
	}
	return err
}

// log returns the path of the log of the round.
func (w *world) log() string {
	return filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("round-%d.log", w.rounds))
}
