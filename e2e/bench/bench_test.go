package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEveryRow runs the whole command with few objects, in parallel parts.
func TestEveryRow(t *testing.T) {
	measured := map[string]bool{}
	for _, part := range []string{"^relist", "^(saturated|p50|p99|rate)", "^(cold|warm|loaded|read|get|list|by-index|keys|longest|decoded|file|query)", "^restart"} {
		only := regexp.MustCompile(part)
		for _, row := range rows() {
			if only.MatchString(row.name) {
				measured[row.name] = true
			}
		}
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			runPart(t, only)
		})
	}
	if len(measured) != len(rows()) {
		t.Errorf("the parts have %d of %d rows", len(measured), len(rows()))
	}
}

func runPart(t *testing.T, only *regexp.Regexp) {
	r := newRun(options{
		rounds: 1, sizes: []int{200}, kinds: []string{"pods"}, only: only,
		out: t.TempDir(), dir: t.TempDir(), seconds: 0.2, quiet: 50 * time.Millisecond,
	}, t.Output())
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.out, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows() {
		_, rest, found := strings.Cut(string(text), "| "+row.title+" |")
		if found != only.MatchString(row.name) {
			t.Errorf("row %q is there: %t", row.title, found)
		}
		if !found {
			continue
		}
		line, _, _ := strings.Cut(rest, "\n")
		cells := strings.Split(line, "|")
		for side, from := range []source{row.clientGo, row.ours} {
			if has := strings.ContainsAny(cells[side], "0123456789"); has != (from != source{}) {
				t.Errorf("row %q: %q on side %d", row.title, cells[side], side)
			}
		}
	}
}

// TestKube measures pods and config maps on a real API server. Of many fewer, a warm
// start would ask for all, see reflector.WholeLimit.
func TestKube(t *testing.T) {
	t.Parallel()
	r := newRun(options{
		rounds: 1, kube: true, kubeSize: 500, only: regexp.MustCompile(""),
		out: t.TempDir(), dir: t.TempDir(), quiet: 50 * time.Millisecond,
	}, t.Output())
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.results.Groups) != len(kubeKinds) {
		t.Errorf("%d groups", len(r.results.Groups))
	}
	for _, g := range r.results.Groups {
		cold, warm := g.ClientGo[source{"cold", "bytes"}], g.Ours[source{"warm", "bytes"}]
		if len(cold) != 1 || len(warm) != 1 || warm[0] >= cold[0] {
			t.Errorf("%s: bytes of client-go's start: %v; of a warm start: %v", g.Kind.name, cold, warm)
		}
		for _, scenario := range []string{"cold", "warm", "loaded"} {
			if got := g.Ours[source{scenario, "added"}]; len(got) != 1 {
				t.Errorf("%s, %s: %v", g.Kind.name, scenario, got)
			}
		}
		// A list of 100 pods takes less than a step of the clock.
		if used := g.ClientGo[source{"cold", "serverCPU"}]; len(used) != 1 || used[0] < 0 {
			t.Errorf("%s: CPU time of the API server: %v", g.Kind.name, used)
		}
	}
	if left, err := os.ReadDir(r.dir); err != nil || slices.ContainsFunc(left, fs.DirEntry.IsDir) {
		t.Errorf("directories that are left: %v, %v", left, err)
	}
}

// TestCPUSecondsOf compares this process's CPU time with what the kernel tells it itself.
func TestCPUSecondsOf(t *testing.T) {
	t.Parallel()
	const step = 0.01
	for cpuSeconds() < 10*step {
	}
	before := cpuSeconds()
	got, err := cpuSecondsOf(os.Getpid())
	if after := cpuSeconds(); err != nil || got < before-2*step || got > after+2*step {
		t.Errorf("%g s, %v, between %g and %g", got, err, before, after)
	}
}
