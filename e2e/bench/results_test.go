package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fabricated returns a group with figures for all rows. They grow with the number of
// objects, more for client-go than for ours.
func fabricated(t *testing.T, kindName string, objects int, kube string) *group {
	t.Helper()
	k, err := kindOf(kindName)
	if err != nil {
		t.Fatal(err)
	}
	g := &group{
		Kind: k, Objects: objects, Kube: kube, served: served{int64(objects) * 10_000, int64(objects) * 14_000},
		conditions: conditions{"a machine", "21 November 2026", 2, "0.01", 10},
		ClientGo:   map[source][]float64{}, Ours: map[source][]float64{},
	}
	onlyHere := map[string]bool{} // scenarios that need this command's server
	for _, s := range scenarios() {
		onlyHere[s.Name] = s.After != "" || s.Restart || s.Query
	}
	n := float64(objects)
	for _, row := range rows() {
		if kube != "" && onlyHere[row.ours.scenario] {
			continue
		}
		each := map[unit][2]float64{duration: {110e-6, 70e-6}, size: {30 * kb, 200}, count: {1, 0.1}, fraction: {1, 0.1}}[row.unit]
		if row.clientGo != (source{}) {
			g.ClientGo[row.clientGo] = []float64{n * each[0], n * each[0] * 1.1}
		}
		g.Ours[row.ours] = []float64{n * each[1], n * each[1] * 1.1}
		if row.unit == size {
			g.Ours[row.ours] = []float64{7*mb + n*each[1], 8*mb + n*each[1]}
		}
	}
	return g
}

func writeResults(t *testing.T, dir string, groups ...*group) {
	t.Helper()
	var r results
	for _, g := range groups {
		r.put(g)
	}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
}

func readText(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// report runs the command with -report.
func report(t *testing.T, dir string) string {
	t.Helper()
	if err := bench(t.Context(), []string{"-report", "-out", dir}, t.Output()); err != nil {
		t.Fatal(err)
	}
	return readText(t, dir, "benchmarks.md")
}

// headings returns the headings of the groups.
func headings(text string) (all []string) {
	for _, found := range regexp.MustCompile(`(?m)^## ([0-9].*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// TestResultsComeBack checks that written results are read back in the order of the
// report, and that writing them again results in the same file.
func TestResultsComeBack(t *testing.T) {
	dir := t.TempDir()
	wrote := []*group{
		fabricated(t, "pods", 10_000, "v1.37.1"), fabricated(t, "widgets", 10_000, ""),
		fabricated(t, "pods", 50_000, ""), fabricated(t, "pods", 10_000, ""),
	}
	writeResults(t, dir, wrote...)
	before := readText(t, resultsFile(dir))
	read, err := readResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []*group{wrote[3], wrote[2], wrote[1], wrote[0]}
	sameKind := cmp.Comparer(func(a, b kind) bool { return a.name == b.name })
	if diff := cmp.Diff(want, read.Groups, cmp.AllowUnexported(group{}, source{}), sameKind); diff != "" {
		t.Errorf("-wrote +read:\n%s", diff)
	}
	if err := read.write(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, readText(t, resultsFile(dir))); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestReportOfResults checks that a report without a measurement contains all groups, the
// conditions that differ between them, and plots over several sizes.
func TestReportOfResults(t *testing.T) {
	dir := t.TempDir()
	later := fabricated(t, "widgets", 10_000, "")
	later.Rounds, later.Load = 3, "1.50"
	writeResults(t, dir, fabricated(t, "pods", 10_000, ""), fabricated(t, "pods", 50_000, ""), fabricated(t, "pods", 150_000, ""),
		later, fabricated(t, "widgets", 50_000, ""), fabricated(t, "large", 1000, ""), fabricated(t, "pods", 20_000, "v1.37.1"))
	text := report(t, dir)
	want := []string{
		"10,000 pods, typed, protobuf, 10 KB each",
		"50,000 pods, typed, protobuf, 10 KB each",
		"150,000 pods, typed, protobuf, 10 KB each",
		"10,000 custom resources, unstructured, JSON, 5 KB each",
		"50,000 custom resources, unstructured, JSON, 5 KB each",
		"1,000 config maps, typed, protobuf, 100 KB each",
		"20,000 pods on a real kube-apiserver v1.37.1",
	}
	if diff := cmp.Diff(want, headings(text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, g := range []string{"| pods, typed, protobuf, 10 KB each | 150,000 |", "| config maps, typed, protobuf, 100 KB each | 1,000 |"} {
		if !strings.Contains(text, g) {
			t.Errorf("the table of kinds lacks %q", g)
		}
	}
	head, _, _ := strings.Cut(text, "## ")
	if !strings.Contains(head, "Machine: a machine.\nDate: 21 November 2026.\nChanges at a rate: for 10 s.\n") {
		t.Errorf("the head has not what all groups share: %s", head)
	}
	for line, times := range map[string]int{"<sub>Rounds: 3. Load average before: 1.50.</sub>": 1, "<sub>Rounds: 2. Load average before: 0.01.</sub>": 6} {
		if got := strings.Count(text, line); got != times {
			t.Errorf("%q is there %d times, not %d", line, got, times)
		}
	}
	for _, plot := range []string{"starts.svg", "memory.svg"} {
		svg := readText(t, dir, plot)
		for _, label := range []string{">10,000<", ">50,000<", ">150,000<", ">client-go<", ">pods, typed", ">custom resources"} {
			if !strings.Contains(svg, label) {
				t.Errorf("%s lacks %s", plot, label)
			}
		}
		for _, label := range []string{">config maps", ">20,000<"} {
			if strings.Contains(svg, label) {
				t.Errorf("%s has %s, a kind of one size or a kube-apiserver's", plot, label)
			}
		}
		if !strings.Contains(text, "("+plot+")") {
			t.Errorf("%s is not linked", plot)
		}
	}
}

// TestKubeTable checks that the table for a kube-apiserver contains starts but no lists,
// changes or reads.
func TestKubeTable(t *testing.T) {
	dir := t.TempDir()
	writeResults(t, dir, fabricated(t, "pods", 50_000, "v1.37.1"))
	text := report(t, dir)
	if !strings.Contains(text, aboutKube) || strings.Contains(text, "## Bounds") || strings.Contains(text, ".svg)") {
		t.Error("the report does not say what is different, or has bounds or plots of a kube-apiserver")
	}
	started := map[string]bool{"file": true, "file-json": true}
	for _, row := range startRows() {
		started[row.name] = !strings.HasPrefix(row.name, "read-")
	}
	for _, row := range rows() {
		if got := strings.Contains(text, "| "+row.title+" |"); got != started[row.name] {
			t.Errorf("row %q is there: %t", row.title, got)
		}
	}
}

// TestOldResults checks that figures that no row uses are kept, and that rows without
// figures are left out.
func TestOldResults(t *testing.T) {
	dir := t.TempDir()
	g := fabricated(t, "pods", boundObjects, "")
	gone := source{"napping", "duration"}
	g.Ours[gone] = []float64{1, 2}
	delete(g.ClientGo, source{"cold", "serverCPU"})
	delete(g.Ours, source{"cold", "serverCPU"})
	// Without this figure there is no bound that is relative to it.
	delete(g.ClientGo, source{"saturated", "eventsPerSecond"})
	writeResults(t, dir, g)
	text := report(t, dir)
	for title, want := range map[string]bool{
		"cold start: CPU time": true, "cold start: CPU time of the server": false, "warm start: CPU time of the server": true,
	} {
		if got := strings.Contains(text, "| "+title+" |"); got != want {
			t.Errorf("row %q is there: %t", title, got)
		}
	}
	for what, times := range map[string]int{"| changes, as fast as it goes": 1, "| cold start: HasSynced |": 2} {
		if got := strings.Count(text, what); got != times {
			t.Errorf("%q is there %d times, not %d", what, got, times)
		}
	}
	read, err := readResults(dir)
	if err != nil || len(read.Groups[0].Ours[gone]) != 2 {
		t.Errorf("figures of a row that is gone: %v, %v", read.Groups[0].Ours[gone], err)
	}
}

// TestAdd measures one group. It must replace the same group, and the other groups must
// stay only with -add.
func TestAdd(t *testing.T) {
	for _, add := range []bool{true, false} {
		t.Run(map[bool]string{true: "add", false: "alone"}[add], func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeResults(t, dir, fabricated(t, "pods", 200, ""), fabricated(t, "pods", 300, ""), fabricated(t, "pods", 200, "v1.37.1"))
			r := newRun(options{
				rounds: 1, sizes: []int{200}, kinds: []string{"pods"}, only: regexp.MustCompile("^cold-requests$"),
				out: dir, dir: t.TempDir(), quiet: 50 * time.Millisecond, add: add,
			}, t.Output())
			if err := r.all(t.Context()); err != nil {
				t.Fatal(err)
			}
			read, err := readResults(dir)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range read.Groups {
				got = append(got, thousands(float64(g.Objects))+g.Kube+" "+g.Load)
			}
			want := []string{"200 " + r.conditions.Load}
			if add {
				want = append(want, "300 0.01", "200v1.37.1 0.01")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestBadInput checks the error messages, and that the results do not change.
func TestBadInput(t *testing.T) {
	for _, c := range []struct{ name, results, args, want string }{
		{"no results", "", "-report", "read earlier results"},
		{"no JSON", "{", "-report", "unexpected end of JSON input"},
		{"no JSON to add to", "{", "-add", "unexpected end of JSON input"},
		{"unknown kind", `{"groups":[{"kind":"nap"}]}`, "-add", `no kind "nap"`},
		{"figure without scenario", `{"groups":[{"kind":"pods","ours":{"nap":[1]}}]}`, "-add", `figure "nap"`},
		{"no rounds", "{}", "-rounds=0", "-report writes"},
		{"few pods", "{}", "-kube-size=1", "-kube-size: 1"},
		{"kinds", "{}", "-kinds=nap", `-kinds: no kind "nap"`},
		{"nothing to measure", "{}", "-kinds=", "-kinds: empty without -kube"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.results != "" {
				if err := os.WriteFile(resultsFile(dir), []byte(c.results), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := bench(t.Context(), []string{c.args, "-out", dir}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			text, err := os.ReadFile(resultsFile(dir))
			if c.results == "" && errors.Is(err, fs.ErrNotExist) {
				return
			}
			if err != nil || !bytes.Equal(text, []byte(c.results)) {
				t.Errorf("results are now %q, %v", text, err)
			}
		})
	}
}

// TestSignificant checks that the number of digits does not change if rounding adds one.
func TestSignificant(t *testing.T) {
	for v, want := range map[float64]string{9.9999: "10.0", 9.99: "9.99", 0.99999: "1.00", 1076: "1076", 0: "0", -2: "-2.00", 0.0123: "0.0123"} {
		if got := significant(v, 3); got != want {
			t.Errorf("%g is %s, want %s", v, got, want)
		}
	}
}
