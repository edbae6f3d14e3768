package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// mention is a method or field that the prose of ARCHITECTURE.md names with its package
// and its type.
var mention = regexp.MustCompile("`([a-z]+)\\.([A-Za-z]\\w*)\\.([A-Za-z]\\w*)(?:\\(\\))?`")

// TestMentions looks up every method and field that ARCHITECTURE.md names.
func TestMentions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := members(t)
	mentions := mention.FindAllStringSubmatch(string(text), -1)
	if len(mentions) < 10 {
		t.Errorf("%d mentions are found", len(mentions))
	}
	for _, m := range mentions {
		if pkg, typ, name := m[1], m[2], m[3]; !known[pkg+"."+typ+"."+name] && hasPackage(known, pkg) {
			t.Errorf("package %s has no %s.%s", pkg, typ, name)
		}
	}
}

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	namedTest    = regexp.MustCompile(`\bTest[A-Z]\w*\*?`)
)

// TestNamedTests looks up every test that docs/reliability.md names; TestWarm* means all
// that begin so.
func TestNamedTests(t *testing.T) {
	text, err := os.ReadFile("reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{} // also the beginnings of names, with * behind them
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range testFunction.FindAllSubmatch(source, -1) {
			name := string(m[1])
			there[name] = true
			for end := range name {
				there[name[:end]+"*"] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := namedTest.FindAllString(string(text), -1)
	if len(named) < 80 {
		t.Errorf("%d tests are found", len(named))
	}
	for _, name := range named {
		if !there[name] {
			t.Errorf("docs/reliability.md names %s, which does not exist", name)
		}
	}
}

func hasPackage(known map[string]bool, pkg string) bool {
	for name := range known {
		if strings.HasPrefix(name, pkg+".") {
			return true
		}
	}
	return false
}

// members returns the methods and fields of all types of the project, each as
// package.type.name.
func members(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := f.Name.Name
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				known[pkg+"."+qualified(n)] = true
				return false
			case *ast.TypeSpec:
				for _, name := range memberNames(n.Type) {
					known[pkg+"."+n.Name.Name+"."+name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// memberNames returns the names of a struct's fields or of an interface's methods.
func memberNames(typ ast.Expr) (names []string) {
	var fields *ast.FieldList
	switch typ := typ.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	default:
		return nil
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			names = append(names, name.Name)
		}
	}
	return names
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
