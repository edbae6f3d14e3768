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

// startLife starts a process. Its log goes to the round's.
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
	// A connection that stalls is noticed by the transport's pings, which come after 30 s unless that is said.
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

// ask sends a command and waits for what the child answers.
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
	w.life.Kill()
	for _, held := range w.held { // what changes may be stored as it was, or gone
		maps.DeleteFunc(held, func(key string, _ guarantees.State) bool { return strings.HasPrefix(key, namespace+"/soak-") })
	}
	return nil
}

// reasons are those for which a collection may be listed: promise 3. Those of a first list count in the first round only.
var reasons = map[string]bool{
	"nothing stored yet":                                 true,
	"first list did not end":                             true,
	"the server no longer has the history":               false,
	"the server is behind":                               false,
	"the server ends watches from this resource version": false,
	// A collection without a watch cache gets no bookmarks, and an idle one no event either.
	"the server does not say when a watch has caught up": false,
}

// count adds to the tally how a process has started, and returns what broke a guarantee in its life.
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
		err = w.life.Wait()
	}
	return err
}

// log is where the processes of a round log.
func (w *world) log() string {
	return filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("round-%d.log", w.rounds))
}
