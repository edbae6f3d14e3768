package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/informctl/informctl/e2e/program"
)

// childTimeout is the time after which a child has failed.
const childTimeout = 10 * time.Minute

// run is one run of the command.
type run struct {
	options
	progress   io.Writer
	command    string // path of informctl, "" if it is not measured
	conditions conditions
	results    results
}

func newRun(o options, progress io.Writer) *run {
	return &run{options: o, progress: progress}
}

// all measures everything. It writes the results and the report after each group.
func (r *run) all(ctx context.Context) (err error) {
	plan, err := r.plan()
	if err != nil {
		return err
	}
	if r.add || r.report {
		if r.results, err = readResults(r.out); err != nil && (r.report || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if r.report {
		return r.writeReport()
	}
	if r.conditions, err = r.begin(); err != nil {
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
	if r.wanted()["query"] && slices.ContainsFunc(plan, func(p planned) bool { return p.Kind.name == boundKind }) {
		if r.command, err = program.Release(ctx, r.dir); err != nil {
			return err
		}
	}
	for _, p := range plan {
		if err := r.group(ctx, p); err != nil {
			return err
		}
		r.results.put(p.group)
		if err := r.results.write(r.out); err != nil {
			return err
		}
		if err := r.writeReport(); err != nil {
			return err
		}
	}
	return nil
}

// planned is a group to measure and the function that starts its server.
type planned struct {
	*group
	start func(context.Context, *group) (*apiServer, error)
}

// kubeKinds are the kinds that are measured on a kube-apiserver: a large one and a small
// one.
var kubeKinds = []string{boundKind, "configmaps"}

func (r *run) plan() (plan []planned, err error) {
	for _, name := range r.kinds {
		k, err := kindOf(name)
		if err != nil {
			return nil, fmt.Errorf("-kinds: %w", err)
		}
		sizes := r.sizes
		if k.large {
			sizes = []int{r.large}
		}
		for _, n := range sizes {
			plan = append(plan, planned{&group{Kind: k, Objects: n}, r.startServer})
		}
	}
	if !r.kube {
		return plan, nil
	}
	for _, name := range kubeKinds {
		k, err := kindOf(name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, planned{&group{Kind: k, Objects: r.kubeSize}, r.startKube})
	}
	return plan, nil
}

func (r *run) begin() (conditions, error) {
	machine, err := machineText()
	if err != nil {
		return conditions{}, err
	}
	load, err := loadAverage()
	return conditions{machine, time.Now().Format("2 January 2006"), r.rounds, load, r.seconds}, err
}

func (r *run) group(ctx context.Context, p planned) (err error) {
	g := p.group
	g.conditions, g.ClientGo, g.Ours = r.conditions, map[source][]float64{}, map[source][]float64{}
	server, err := p.start(ctx, g)
	if err != nil {
		return fmt.Errorf("server of %d %s: %w", g.Objects, g.Kind.name, err)
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	wanted := r.wanted()
	for round := range r.rounds {
		for _, s := range scenarios() {
			if !wanted[s.Name] || !g.has(s) {
				continue
			}
			sides := []bool{false, true}
			if round%2 == 1 { // so neither side is always the first
				slices.Reverse(sides)
			}
			for _, ours := range sides {
				if s.OursOnly && !ours {
					continue
				}
				if err := r.measure(ctx, g, server, s, ours, round); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// has reports whether a scenario is measured in a group: all of them with pods, the
// starts with a kube-apiserver, and what depends on the kind with each.
func (g *group) has(s scenario) bool {
	switch {
	case g.Kube != "":
		return s.After == "" && !s.Restart && !s.Query
	case g.Kind.name == boundKind:
		return true
	}
	return s.EachKind
}

// wanted returns the scenarios of the selected rows and the cold scenario, which makes
// the file for the others.
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
func (r *run) measure(ctx context.Context, g *group, server *apiServer, s scenario, ours bool, round int) error {
	side, results := "client-go", g.ClientGo
	if ours {
		side, results = "ours", g.Ours
	}
	what := fmt.Sprintf("%s, %d, round %d, %s, %s", g.Kind.name, g.Objects, round+1, s.Name, side)
	t := task{
		Kind: g.Kind.name, Objects: server.objects, URL: server.url, Kubeconfig: server.kubeconfig, Ours: ours, Scenario: s,
		Seconds: r.seconds, Quiet: r.quiet, File: filepath.Join(r.dir, "informers.db"), Command: r.command,
	}
	if r.profile != "" {
		t.Profile = filepath.Join(r.profile, fmt.Sprintf("%s-%d-%s-%s.pprof", g.Kind.name, g.Objects, s.Name, side))
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
		err = server.reset(ctx, s.Ahead)
	}
	var before, after float64
	if err == nil {
		before, err = cpuSecondsOf(server.pid)
	}
	var f figures
	begun := time.Now()
	if err == nil {
		f, err = r.runChild(ctx, t)
	}
	if err == nil {
		after, err = cpuSecondsOf(server.pid)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	f["serverCPU"] = after - before
	if file, ok := f["file"]; ok {
		f["fileOfJSON"] = file / float64(g.JSONBytes)
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

func (r *run) runChild(ctx context.Context, t task) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	cmd, err := again(ctx, childRole, t)
	if err != nil {
		return nil, err
	}
	if r.gogc != "" {
		cmd.Env = append(cmd.Env, "GOGC="+r.gogc)
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

// again returns a command that runs this program in another role.
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
