package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the project's.
const root = ".."

// sources are the files of the programs: neither tests nor what only tests use.
func sources(t *testing.T) []*ast.File {
	t.Helper()
	var files []*ast.File
	set := token.NewFileSet()
	for _, dir := range []string{"cmd", "codec", "durable", "fifo", "index", "informer", "inspect", "internal/audit", "internal/parallel", "postgres", "reflector", "relay", "store"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "storetest"):
				return filepath.SkipDir
			case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			files = append(files, f)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// text returns what a constant string expression says.
func text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.BinaryExpr:
		x, isX := text(e.X)
		y, isY := text(e.Y)
		return x + y, isX && isY
	}
	return "", false
}

// verb is a verb of fmt.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9.]*[a-zA-Z]`)

// fragments returns what the programs print between what differs.
func fragments(files []*ast.File) map[string]bool {
	all := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if s, ok := text(e); ok {
					for _, fragment := range verb.Split(s, -1) {
						all[strings.TrimSpace(fragment)] = true
					}
				}
			}
			return true
		})
	}
	return all
}

// isPrinted reports whether a fragment is one that is printed, or two on end: the
// rest of a line may be added elsewhere.
func isPrinted(all map[string]bool, fragment string) bool {
	if all[fragment] {
		return true
	}
	for at := 4; at < len(fragment)-4; at++ {
		if all[strings.TrimSpace(fragment[:at])] && all[strings.TrimSpace(fragment[at:])] {
			return true
		}
	}
	return false
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// quoted returns the code spans in the first column of all tables whose first column
// has that header.
func quoted(t *testing.T, header string) (spans []string) {
	t.Helper()
	b, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	inside, columns := false, 0
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) < 3:
			inside, columns = false, 0
		case columns > 0 && len(cells) != columns:
			t.Errorf("%d cells in a table of %d: %s", len(cells)-2, columns-2, line)
		case strings.TrimSpace(cells[1]) == header:
			inside, columns = true, len(cells)
		case inside && !strings.HasPrefix(cells[1], "---"):
			found := codeSpan.FindAllStringSubmatch(cells[1], -1)
			if len(found) == 0 {
				t.Errorf("a row quotes nothing: %s", line)
			}
			for _, f := range found {
				spans = append(spans, f[1])
			}
		}
	}
	return spans
}

// TestQuotedWords: each message that docs/troubleshooting.md quotes is printed by the
// programs in these words.
func TestQuotedWords(t *testing.T) {
	all := fragments(sources(t))
	spans := append(quoted(t, "It says"), quoted(t, "Log line")...)
	if len(spans) < 80 {
		t.Errorf("%d messages are quoted: tables are not found", len(spans))
	}
	for _, span := range spans {
		for fragment := range strings.SplitSeq(span, "…") {
			if fragment = strings.TrimSpace(fragment); fragment != "" && !isPrinted(all, fragment) {
				t.Errorf("no program prints %q, as %q is quoted", fragment, span)
			}
		}
	}
}

// TestLogLines: every line that is logged at info or error is in the table of them.
func TestLogLines(t *testing.T) {
	listed := quoted(t, "Log line")
	logged := map[string]bool{}
	for _, f := range sources(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			if line, ok := logLine(n); ok {
				logged[line] = true
			}
			return true
		})
	}
	if len(logged) < 30 {
		t.Errorf("%d lines are logged: calls are not found", len(logged))
	}
	for line := range logged {
		if !slices.Contains(listed, line) {
			t.Errorf("docs/troubleshooting.md does not have the log line %q", line)
		}
	}
	for _, line := range listed {
		if !logged[line] {
			t.Errorf("docs/troubleshooting.md has the log line %q, which nobody logs", line)
		}
	}
}

// logLine returns the message of a call of a logger's Info or Error.
func logLine(n ast.Node) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fmt.Sprint(method.X) == "http" {
		return "", false
	}
	if of, ok := method.X.(*ast.CallExpr); ok {
		if s, ok := of.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "V" {
			return "", false // printed only at a higher verbosity
		}
	}
	at, ok := map[string]int{"Info": 0, "Error": 1}[method.Sel.Name]
	if !ok || len(call.Args) <= at {
		return "", false
	}
	return text(call.Args[at])
}
