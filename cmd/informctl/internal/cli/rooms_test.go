package cli_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestRooms checks that only the root command imports commands: what two of them need is
// in a package of its own.
func TestRooms(t *testing.T) {
	const commands = "github.com/informctl/informctl/cmd/informctl/internal/cmd/"
	files := 0
	err := filepath.WalkDir("..", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		in := path.Dir(filepath.ToSlash(name))
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			command, ok := strings.CutPrefix(imported, commands)
			// A test is beside what it tests.
			if ok && in != "../cli" && in != "../cmd/"+command {
				t.Errorf("%s imports the command %s", name, command)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 80 {
		t.Errorf("%d files were found", files)
	}
}
