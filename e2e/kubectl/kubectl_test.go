package kubectl_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKubectl runs both programs: what they print differs as the rows say, and is alike
// otherwise.
func TestKubectl(t *testing.T) {
	w := newWorld(t)
	for _, d := range differences {
		t.Run(d.row, func(t *testing.T) { w.in(t).testDifference(d) })
	}
	for _, args := range alike {
		t.Run(args, func(t *testing.T) { w.in(t).testAlike(args) })
	}
}

func (w *world) in(t *testing.T) *world {
	c := *w
	c.T = t
	return &c
}

// testDifference checks that both print what they did when the row was written, and so
// differ. Where the file does not matter, informctl has to print the same of one that
// nobody follows.
func (w *world) testDifference(d difference) {
	if diff := cmp.Diff(d.fromKubectl, w.says(w.kubectl, d.kubectl, d)); diff != "" {
		w.Errorf("kubectl (-want +got):\n%s", diff)
	}
	got := w.says(w.informctl, d.informctl, d)
	if diff := cmp.Diff(d.fromInformctl, got); diff != "" {
		w.Errorf("informctl (-want +got):\n%s", diff)
	}
	if d.lines > 0 || strings.Contains(d.informctl, "--db") {
		return
	}
	w.file = copied
	ofCopy := notes.ReplaceAllString(w.says(w.informctl, d.informctl, d), "")
	if diff := cmp.Diff(got, ofCopy); diff != "" {
		w.Errorf("informctl (-followed +copied):\n%s", diff)
	}
}

// alike are arguments with which both print the same bytes, but for ages.
var alike = []string{
	"configmaps -n default",
	"configmaps -A -l order",
	"cm,sa -n default -o wide",
	"configmaps -n default --show-labels -L order --no-headers",
	"configmap/settings sa/builder -n default",
	"widgets -n default",
	"services,service.example.com -n default -o name",
	"configmaps settings -n default -o json",
	"configmaps settings -n default -o json --show-managed-fields",
	"configmaps -n default -o json",
	"configmaps -A -l order -o yaml",
	"configmaps settings -n default -o kyaml",
	"hpa,widgets -n default -o yaml",
	"cm,sa,widgets -n default -o name",
	"configmaps -n default -o jsonpath={.items[*].data}",
	"configmaps settings -n default -o go-template={{.data.a}}",
	"configmaps -n default -o custom-columns=A:.data.a,NONE:.none",
	"configmaps none -n default --ignore-not-found",
	"configmaps -A -l order --sort-by .metadata.labels.order",
	"pods -n default -o json",
}

func (w *world) testAlike(args string) {
	cut := func(program, command string) string {
		stdout, err := w.command(w.Context(), program, append([]string{command}, strings.Fields(args)...)...).Output()
		if err != nil {
			w.Errorf("%s: %v", command, err)
		}
		return ages.ReplaceAllString(string(stdout), "1s")
	}
	if diff := cmp.Diff(cut(w.kubectl, "get"), cut(w.informctl, "query")); diff != "" {
		w.Errorf("(-kubectl +informctl):\n%s", diff)
	}
}

// TestPage checks that docs/kubectl.md has a row for each difference, in their order, and
// no other.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, d := range differences {
		want = append(want, d.row)
		if d.fromKubectl == d.fromInformctl {
			t.Errorf("%s: both print the same", d.row)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+?) \| .+ \| .* \|$`).FindAllSubmatch(page, -1) {
		got = append(got, string(row[1]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-test +page):\n%s", diff)
	}
}

// says returns what commands print, each with its standard error behind and its exit code
// if that is not 0. Of a watch it is the first lines.
func (w *world) says(program, commands string, d difference) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	for command := range strings.SplitSeq(commands, "; ") {
		cmd := w.command(ctx, program, strings.Fields(command)...)
		if d.lines == 0 {
			out.WriteString(w.whole(cmd))
			continue
		}
		stop := func() {}
		if d.changes != "" {
			stop = w.repeat(ctx, d.changes)
		}
		out.WriteString(w.begin(cmd, d.lines))
		stop()
	}
	return normal(out.String())
}

func (w *world) whole(cmd *exec.Cmd) string {
	w.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		w.Fatal(err)
	}
	return stdout.String() + stderr.String() + exitCode(cmd)
}

func exitCode(cmd *exec.Cmd) string {
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return fmt.Sprintf("exit %d\n", code)
	}
	return ""
}

// begin returns the first lines of a command, and what it says if it ends before.
func (w *world) begin(cmd *exec.Cmd, lines int) string {
	w.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	var out strings.Builder
	s := bufio.NewScanner(stdout)
	for ; lines > 0 && s.Scan(); lines-- {
		out.WriteString(s.Text() + "\n")
	}
	if lines == 0 {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return out.String()
	}
	_ = cmd.Wait() // the exit code is compared
	return out.String() + stderr.String() + exitCode(cmd)
}

// repeat runs kubectl again and again, until stop is called. %d is another number each
// time.
func (w *world) repeat(ctx context.Context, command string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			// If it fails, the watch has nothing to tell, and that is seen.
			_ = w.command(ctx, w.kubectl, strings.Fields(fmt.Sprintf(command, n))...).Run()
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

var (
	notes   = regexp.MustCompile(`informctl: as of .*; nothing follows this file\n`)
	ages    = regexp.MustCompile(`\b(\d+[smh])+\b`)
	clocks  = regexp.MustCompile(`\b(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\b`)
	spaces  = regexp.MustCompile(`(\S) {2,}`)
	ends    = regexp.MustCompile(`(?m) +$`)
	perRun  = regexp.MustCompile(`("resourceVersion":|"uid":|"creationTimestamp":|"time":)"[^"]+"`)
	held    = regexp.MustCompile(`; FILE holds .*; informctl info prints all`)
	perFile = regexp.MustCompile(`\b(` + copied + `|` + followed + `)\b`)
)

// normal returns a text without what is not the same in each run: times, the widths of
// columns, what the server sets, and the name of the file.
func normal(text string) string {
	text = ages.ReplaceAllString(text, "1s")
	text = clocks.ReplaceAllString(text, "10:02:03")
	text = ends.ReplaceAllString(text, "")
	text = spaces.ReplaceAllString(text, "$1  ")
	text = perRun.ReplaceAllString(text, `$1"..."`)
	text = perFile.ReplaceAllString(text, "FILE")
	return held.ReplaceAllString(text, "; FILE holds others")
}
