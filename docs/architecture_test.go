package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// step is a line of ARCHITECTURE.md that says which function of which file does what.
var step = regexp.MustCompile("(?m)^[0-9]+\\. `([a-z/_]+\\.go)` `((?:\\w+\\.)?\\w+)`")

// TestWays looks up every step of the ways that ARCHITECTURE.md describes.
func TestWays(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps := step.FindAllStringSubmatch(string(text), -1)
	if len(steps) < 45 {
		t.Errorf("%d steps are found", len(steps))
	}
	for _, s := range steps {
		path, name := s[1], s[2]
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		found := false
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				found = found || name == qualified(fn)
			}
		}
		if !found {
			t.Errorf("%s has no function %s", path, name)
		}
	}
}

// qualified returns a function's name, with its receiver's type in front.
func qualified(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}
