package quickstart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// adopting is the page with whole programs.
const (
	adopting  = "docs/adopting.md"
	operating = "docs/operating.md"
	sample    = "examples/samplecontroller/README.md"
)

// programs are the whole programs of a page, by their headings.
var programs = map[string]string{
	"## A controller on controller-runtime": "controllerruntime/main.go",
	"## A controller on client-go":          "clientgo/main.go",
}

// parts are the parts of programs on pages, and the files that have their lines.
var parts = []struct{ page, heading, language, whole string }{
	{"README.md", "### Dynamic and metadata clients, or one informer alone", "go", "../../informer/example_test.go"},
	{adopting, "## One informer alone", "go", "../../informer/example_test.go"},
	{adopting, "## One type without a client", "go", "../../informer/example_test.go"},
	{adopting, "## Listers", "go", "../../informer/example_test.go"},
	{adopting, "## Pages of a lister", "go", "../../informer/example_test.go"},
	{adopting, "## Options of one type", "go", "../../informer/example_test.go"},
	{adopting, "### Only the work that is left", "go", "parts_test.go"},
	{adopting, "## Dynamic and metadata clients", "go", "parts_test.go"},
	{operating, "## In a cluster", "go", "parts_test.go"},
	{operating, "## Secrets", "go", "parts_test.go"},
	{operating, "## Memory and the processor", "go", "parts_test.go"},
	{operating, "## Looking into a running process", "go", "parts_test.go"},
	{"docs/postgres.md", "## Start it", "go", "../../postgres/example_test.go"},
	{sample, "## What differs from a controller on client-go's informers", "go", "../../examples/samplecontroller/main.go"},
}

// TestPrograms checks that the page contains exactly the programs that the tests run.
func TestPrograms(t *testing.T) {
	for heading, path := range programs {
		// The page does not have the package comment.
		_, program, _ := strings.Cut(read(t, path), "\n")
		if block(t, adopting, heading, "go") != program {
			t.Errorf("%s: %q does not have %s", adopting, heading, path)
		}
	}
	if n := strings.Count(read(t, "../../"+adopting), "\npackage main\n"); n != 2 {
		t.Errorf("%s has %d programs, want 2", adopting, n)
	}
}

// TestParts checks that each line of a part of a program is also in a whole program,
// which is run or compiled.
func TestParts(t *testing.T) {
	for _, part := range parts {
		whole := map[string]bool{}
		for line := range strings.Lines(read(t, part.whole)) {
			whole[code(line)] = true
		}
		for line := range strings.Lines(strings.Join(blocks(t, part.page, part.heading, part.language), "")) {
			if part.language == "diff" {
				if line[0] == '-' {
					continue
				}
				line = line[1:]
			}
			if !whole[code(line)] {
				t.Errorf("%s: %q: %s does not have the line %q", part.page, part.heading, part.whole, line)
			}
		}
	}
}

// TestNoSnippetIsLeftOut checks that each block of Go or of a diff on a page is compiled:
// it is in programs or parts, or TestQuickStart applies it.
func TestNoSnippetIsLeftOut(t *testing.T) {
	known := map[string]bool{"README.md ### controller-runtime diff": true, "README.md ### client-go diff": true}
	for heading := range programs {
		known[adopting+" "+heading+" go"] = true
	}
	for _, part := range parts {
		known[part.page+" "+part.heading+" "+part.language] = true
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, path := range append(pages, "../../README.md", "../../"+sample) {
		page := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		heading, fenced := "", false
		for line := range strings.Lines(read(t, path)) {
			language, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case isFence:
				fenced = !fenced
				if name := page + " " + heading + " " + language; (language == "go" || language == "diff") && !known[name] {
					t.Errorf("%s: no test compiles this block", name)
				}
			case !fenced && (strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "### ")):
				heading = strings.TrimSpace(line)
			}
		}
	}
}

// code returns a line without its indentation and its comment.
func code(line string) string {
	line, _, _ = strings.Cut(line, " //")
	return strings.TrimSpace(line)
}

// changed applies a diff of the README to a program of testdata, and returns the path of
// the result.
func changed(t *testing.T, heading, program string) string {
	t.Helper()
	program = read(t, filepath.Join("testdata", program, "main.go"))
	diff := "\n" + block(t, "README.md", heading, "diff")
	hunks := strings.Split(diff, "\n@@")[1:]
	if len(hunks) != 3 {
		t.Fatalf("the README's diff has %d parts, want 3", len(hunks))
	}
	for _, hunk := range hunks {
		var before, after strings.Builder
		_, lines, _ := strings.Cut(hunk, "\n")
		for line := range strings.Lines(strings.TrimSuffix(lines, "\n") + "\n") {
			if line[0] != '+' {
				before.WriteString(line[1:])
			}
			if line[0] != '-' {
				after.WriteString(line[1:])
			}
		}
		if n := strings.Count(program, before.String()); n != 1 {
			t.Fatalf("what the README's diff changes is there %d times, want once:\n%s", n, &before)
		}
		program = strings.Replace(program, before.String(), after.String(), 1)
	}
	path := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// block returns the only block of a language below a heading of a page.
func block(t *testing.T, page, heading, language string) string {
	t.Helper()
	all := blocks(t, page, heading, language)
	if len(all) != 1 {
		t.Fatalf("%s: %q has %d blocks of %s, want 1", page, heading, len(all), language)
	}
	return all[0]
}

// blocks returns the blocks of a language below a heading of a page.
func blocks(t *testing.T, page, heading, language string) (all []string) {
	t.Helper()
	_, section, found := strings.Cut(read(t, "../../"+page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	section, _, _ = strings.Cut(section, "\n### ")
	for _, b := range strings.Split(section, "\n```"+language+"\n")[1:] {
		text, _, _ := strings.Cut(b, "\n```\n")
		all = append(all, text+"\n")
	}
	if len(all) == 0 {
		t.Fatalf("%s: %q has no block of %s", page, heading, language)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
