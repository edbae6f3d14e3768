package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEveryRow runs the whole command with few objects, in parts that wait at the
// same time.
func TestEveryRow(t *testing.T) {
	measured := map[string]bool{}
	for _, part := range []string{"^relist", "^(saturated|p50|p99|rate)", "^(cold|warm|loaded|read|get|list|by-index|keys|decoded|file)"} {
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
	for _, plot := range []string{"starts.svg", "memory.svg"} {
		if _, err := os.Stat(filepath.Join(r.out, plot)); err != nil || !strings.Contains(string(text), "("+plot+")") {
			t.Errorf("plot %s is not there, or not linked: %v", plot, err)
		}
	}
}
