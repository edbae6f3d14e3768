package durable_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var kills = flag.Int("kills", 50, "processes that TestKill kills")

// TestKill kills controllers at random moments and at the points between delivery and
// Done, and stops some of them. A journal outside of them notes the objects that each
// finished work has seen. In the end, each change that a watch can have delivered must
// have been seen by work on its owners before and after it. See also TestSchedules.
func TestKill(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	const together = 5
	var all sync.WaitGroup
	var worlds []*killed
	for i := range together {
		w := &killed{
			T: t, path: filepath.Join(t.TempDir(), "informers.db"), rand: rand.New(rand.NewPCG(seed, uint64(i))),
			deaths: map[string]int{},
		}
		worlds = append(worlds, w)
		all.Go(func() {
			for n := 0; n < *kills/together && !t.Failed(); {
				if w.live() {
					n++
				}
			}
			w.settle()
			if len(w.left()) > 0 {
				t.Logf("seed %d, world %d:\n%s", seed, i, strings.Join(w.notes, "\n"))
			}
		})
	}
	all.Wait()
	deaths, changes := map[string]int{}, 0
	for _, w := range worlds {
		changes += len(w.history)
		for how, n := range w.deaths {
			deaths[how] += n
		}
	}
	t.Logf("%d changes; %v", changes, deaths)
}

// killed is a file with the controllers that have it one after the other, and what the
// journal knows.
type killed struct {
	*testing.T
	path    string
	rand    *rand.Rand
	history []change // change i has the resource version i+2
	place   uint64   // the highest one that was printed
	notes   []string
	deaths  map[string]int
}

// ending is how one controller ends.
type ending struct {
	point string
	hits  int
	after time.Duration // until it is killed, or stopped
	stop  bool
}

// live runs one controller until its end, and reports whether it was killed.
func (w *killed) live() bool {
	for range w.rand.IntN(4) {
		w.write()
	}
	e := ending{point: "-", after: time.Duration(w.rand.IntN(2500)) * time.Millisecond}
	switch w.rand.IntN(8) {
	case 0:
		e.stop = true
	case 1, 2, 3, 4:
		e.point, e.hits = points[w.rand.IntN(len(points))], w.rand.IntN(6)
	}
	p := w.begin(e.point, e.hits)
	end := time.After(e.after)
	for alive := true; alive; {
		select {
		case line, ok := <-p.lines:
			if alive = ok; ok {
				w.read(line)
			}
		case <-time.After(time.Duration(w.rand.IntN(120)) * time.Millisecond):
			if line := w.write(); line != "" {
				_, _ = fmt.Fprintln(p.in, line) // it may be dead
			}
		case <-end:
			end = nil
			if e.stop {
				_ = p.in.Close()
				continue
			}
			_ = p.cmd.Process.Kill()
		}
	}
	return strings.HasPrefix(p.end(w, e), "killed")
}

// settle runs a last controller, whose work succeeds, until nothing is left.
func (w *killed) settle() {
	p := w.begin("quiet", 0)
	patience := time.After(2 * time.Minute)
	for len(w.left()) > 0 {
		select {
		case line, ok := <-p.lines:
			if !ok {
				w.Errorf("the last controller has died: %s", p.errors.String())
				_ = p.cmd.Wait()
				return
			}
			w.read(line)
			continue
		case <-patience:
		}
		for _, c := range w.left() {
			w.Errorf("%s was changed at %d, and its owners %s were not worked on after that", c.name, c.rv, c.owners)
		}
		break
	}
	_ = p.in.Close()
	for line := range p.lines {
		w.read(line)
	}
	p.end(w, ending{stop: true})
}

// left returns the changes that still wait for work on an owner.
func (w *killed) left() (out []change) {
	for _, c := range w.history {
		if len(c.owners) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// write changes a random object, if its last change is in a commit of its own: the log
// has one change for several of an object in one commit. It returns the line for the
// controller.
func (w *killed) write() string {
	c := change{rv: uint64(len(w.history)) + 2, name: fmt.Sprintf("o%d", w.rand.IntN(30))}
	owner := ""
	for i := len(w.history) - 1; i >= 0; i-- {
		if last := w.history[i]; last.name == c.name {
			if last.rv > w.place {
				return ""
			}
			owner = last.owner
			break
		}
	}
	if owner != "" {
		c.owners = append(c.owners, owner)
	}
	if owner != "" && w.rand.IntN(4) == 0 {
		c.deleted = true
	} else {
		if c.owner = owner; owner == "" || w.rand.IntN(3) == 0 {
			c.owner = fmt.Sprintf("k%d", w.rand.IntN(12))
		}
		c.owners = append(c.owners, c.owner)
	}
	c.owners = slices.Compact(c.owners)
	w.note("%d: %s of %s", c.rv, c.name, c.owners)
	w.history = append(w.history, c)
	return c.line()
}

// line is the change for controller.change.
func (c change) line() string { return strings.TrimSpace(c.name + " " + c.owner) }

func (w *killed) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// read reads a line that a controller has printed.
func (w *killed) read(line string) {
	w.note("  %s", line)
	words := strings.Fields(line)
	switch {
	case len(words) == 2 && words[0] == "place":
		rv, _ := strconv.ParseUint(words[1], 10, 64)
		w.place = max(w.place, rv)
	case len(words) >= 3 && words[0] == "worked":
		synced, _ := strconv.ParseUint(words[2], 10, 64)
		held := map[string]uint64{}
		for _, word := range words[3:] {
			name, rv, _ := strings.Cut(word, "=")
			held[name], _ = strconv.ParseUint(rv, 10, 64)
		}
		w.worked(words[1], synced, held)
	}
}

// worked notes that an owner was worked on by a controller whose informer held these
// objects at least as of a resource version.
func (w *killed) worked(owner string, synced uint64, held map[string]uint64) {
	for i := range w.history {
		c := &w.history[i]
		if at, is := held[c.name]; at >= c.rv || !is && synced >= c.rv {
			c.owners = slices.DeleteFunc(c.owners, func(name string) bool { return name == owner })
		}
	}
}

// process is a running controller.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed when it has died
	errors strings.Builder
}

// begin starts a controller with the history so far.
func (w *killed) begin(point string, hits int) *process {
	w.note("begins, with %s %d", point, hits)
	p := &process{lines: make(chan string)}
	p.cmd = exec.Command(os.Args[0], w.path, strconv.FormatUint(w.rand.Uint64(), 10), point, strconv.Itoa(hits))
	p.cmd.Env = append(os.Environ(), childVar+"=1")
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		w.Error(err)
		close(p.lines)
		return p
	}
	var history strings.Builder
	for _, c := range w.history {
		history.WriteString(c.line() + "\n")
	}
	history.WriteString("go\n")
	_, _ = p.in.Write([]byte(history.String())) // it reads all of it before it begins
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}

// end waits for a controller that has died, and returns how.
func (p *process) end(w *killed, e ending) (how string) {
	err := p.cmd.Wait()
	var exit *exec.ExitError
	switch how = "stopped"; {
	case err == nil:
	case !errors.As(err, &exit):
		w.Error(err)
	case !exit.Exited():
		how = "killed at " + e.point
	case strings.Contains(p.errors.String(), "a handler has panicked"):
		how = "panicked"
	default:
		w.Errorf("a controller has ended by itself: %v: %.3000s", err, p.errors.String())
	}
	w.note("%s", how)
	w.deaths[how]++
	return how
}
