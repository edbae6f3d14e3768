package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// childTimeout is when a child has gone wrong.
const childTimeout = 10 * time.Minute

// run is one run of the command.
type run struct {
	options
	progress io.Writer
	begun    time.Time
	load     string // before it began
	groups   []*group
}

// group is the results of one kind and number of objects.
type group struct {
	kind    kind
	objects int
	served  served
	// clientGo and ours have the figures of each round.
	clientGo, ours map[source][]float64
}

func newRun(o options, progress io.Writer) *run {
	return &run{options: o, progress: progress, begun: time.Now()}
}

// all measures everything and writes the report after each group.
func (r *run) all(ctx context.Context) (err error) {
	if r.load, err = loadAverage(); err != nil {
		return err
	}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "informctl-bench-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(r.dir) }()
	}
	for _, dir := range []string{r.out, r.dir, r.profile} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range r.kinds {
		k, err := kindOf(name)
		if err != nil {
			return fmt.Errorf("-kinds: %w", err)
		}
		sizes := r.sizes
		if k.name == "configmaps" {
			sizes = []int{r.large}
		}
		for _, n := range sizes {
			if err := r.group(ctx, k, n); err != nil {
				return err
			}
			if err := r.write(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) group(ctx context.Context, k kind, n int) error {
	g := &group{kind: k, objects: n, clientGo: map[source][]float64{}, ours: map[source][]float64{}}
	stop, err := g.startServer(ctx)
	if err != nil {
		return fmt.Errorf("server of %d %s: %w", n, k.name, err)
	}
	defer stop()
	wanted := r.wanted()
	for round := range r.rounds {
		for _, s := range scenarios() {
			if !wanted[s.Name] {
				continue
			}
			sides := []bool{false, true}
			if round%2 == 1 { // neither is always the one that comes first
				slices.Reverse(sides)
			}
			for _, ours := range sides {
				if s.OursOnly && !ours {
					continue
				}
				if err := r.measure(ctx, g, s, ours, round); err != nil {
					return err
				}
			}
		}
	}
	r.groups = append(r.groups, g)
	return nil
}

// wanted returns the scenarios that the wanted rows are made of, and the cold one,
// which makes the file of the others.
func (r *run) wanted() map[string]bool {
	wanted := map[string]bool{"cold": true}
	for _, row := range rows() {
		if r.only.MatchString(row.name) {
			wanted[row.clientGo.scenario], wanted[row.ours.scenario] = true, true
		}
	}
	return wanted
}

// measure runs one child.
func (r *run) measure(ctx context.Context, g *group, s scenario, ours bool, round int) error {
	side, results := "client-go", g.clientGo
	if ours {
		side, results = "ours", g.ours
	}
	what := fmt.Sprintf("%s, %d, round %d, %s, %s", g.kind.name, g.objects, round+1, s.Name, side)
	t := task{
		Kind: g.kind.name, Objects: g.objects, URL: g.served.URL, Ours: ours, Scenario: s,
		Seconds: r.seconds, Quiet: r.quiet, File: filepath.Join(r.dir, "informers.db"),
	}
	if r.profile != "" {
		t.Profile = filepath.Join(r.profile, fmt.Sprintf("%s-%d-%s-%s.pprof", g.kind.name, g.objects, s.Name, side))
	}
	first := filepath.Join(r.dir, "first.db")
	var err error
	switch {
	case ours && s.Fresh:
		t.File, err = first, remove(first)
	case ours:
		err = copyFile(first, t.File)
	}
	if err == nil {
		_, err = controller{g.served.URL}.ask(ctx, "reset", s.Ahead, 0)
	}
	var f figures
	begun := time.Now()
	if err == nil {
		f, err = runChild(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if file, ok := f["file"]; ok {
		f["fileOfJSON"] = file / float64(g.served.JSONBytes)
	}
	for name, figure := range f {
		at := source{s.Name, name}
		results[at] = append(results[at], figure)
	}
	fmt.Fprintf(r.progress, "%s: %.1fs", what, time.Since(begun).Seconds())
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(r.progress, " %s=%.4g", name, f[name])
	}
	fmt.Fprintln(r.progress)
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// startServer blocks until the server has encoded its objects and listens.
func (g *group) startServer(ctx context.Context) (stop func(), err error) {
	cmd, err := again(ctx, serverRole, serving{Kind: g.kind.name, Objects: g.objects})
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&g.served); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func runChild(ctx context.Context, t task) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	cmd, err := again(ctx, childRole, t)
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		text := log.Bytes()
		return nil, fmt.Errorf("%w: %s", err, text[max(0, len(text)-4000):])
	}
	var f figures
	return f, json.Unmarshal(out, &f)
}

// again is this program in another role.
func again(ctx context.Context, role string, ask any) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), role+"="+string(text))
	return cmd, nil
}
