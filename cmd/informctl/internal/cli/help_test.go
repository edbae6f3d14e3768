package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
)

// TestHelp checks that the help of every command has a purpose, two working examples and
// the exit codes.
func TestHelp(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "informers.db")
	writeFile(t, whole)
	more := filepath.Join(t.TempDir(), "more.db")
	writeMore(t, more)
	dir := t.TempDir()
	for _, cmd := range cli.Commands() {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || strings.Contains(cmd.Short, "\n") {
			t.Errorf("%s: the purpose is %q, want a line without a full stop", cmd.Name(), cmd.Short)
		}
		if !strings.HasPrefix(cmd.Long, strings.Split(cmd.Short, " ")[0]) || !strings.Contains(cmd.Long, "\nExit codes: 0 ") {
			t.Errorf("%s: help without a purpose or exit codes:\n%s", cmd.Name(), cmd.Long)
		}
		examples := strings.Split(cmd.Example, "\n")
		if len(examples) < 2 {
			t.Errorf("%s: %d examples, want two", cmd.Name(), len(examples))
		}
		script := "cp $DATA/informers.db informers.db\ncp $DATA/more.db more.db\n"
		for _, example := range examples {
			code := 0
			switch {
			case strings.Contains(example, "--live"):
				code = 4 // there is no cluster
			case strings.Contains(example, "--since 1h pods"):
				code = 4 // the file was just made
			case strings.HasPrefix(example, "  informctl watch"):
				code = 1 // there is no process
			case strings.HasPrefix(example, "  informctl diff"):
				code = 1 // they do differ
			case strings.Contains(example, "--postgres-dsn-file"):
				code = 1 // there is no such file
			case strings.HasPrefix(example, "  informctl run"):
				code = 1 // there is no cluster
			case strings.HasPrefix(example, "  informctl publish"), strings.HasPrefix(example, "  informctl postgres"):
				code = 64 // there is no database
			case strings.HasPrefix(example, "  informctl audit"):
				code = 4 // there is no cluster
			case strings.HasPrefix(example, "  informctl serve"), strings.HasPrefix(example, "  informctl kubeconfig"):
				code = 1 // there is no such file or moment, and nothing is served
			case strings.HasPrefix(example, "  informctl restore"):
				code = 1 // nothing was deleted
			case strings.HasPrefix(example, "  informctl status"):
				code = 1 // there is no process
			case strings.HasPrefix(example, "  informctl top"):
				code = 1 // there is no terminal
			}
			if strings.Contains(example, "informers.jsonl") && !strings.Contains(example, ">") {
				script += "exec sh -c 'informctl export > informers.jsonl'\n"
			}
			script += fmt.Sprintf("exits %d bash -c %s\n", code, quoted(strings.TrimSpace(example)))
			if code == 1 && strings.Contains(example, "informctl run") && !strings.Contains(example, "dsn") {
				script += "stderr '^informctl: kubeconfig: '\n"
			}
		}
		if err := os.WriteFile(filepath.Join(dir, cmd.Name()+".txtar"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			// This is not a kubeconfig: with a server that is down, commands would wait
			// for it.
			e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "more.db"))
			e.Setenv("DATA", t.TempDir())
			if err := setKeys(e); err != nil {
				return err
			}
			if err := copyFile(whole, filepath.Join(e.Getenv("DATA"), "informers.db")); err != nil {
				return err
			}
			return copyFile(more, filepath.Join(e.Getenv("DATA"), "more.db"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// TestCommandsAreACopy checks that Commands copies the root's list: the next command
// added to the root would overwrite an element appended to the list itself.
func TestCommandsAreACopy(t *testing.T) {
	all := cli.Commands()
	root := all[len(all)-1]
	root.AddCommand(&cobra.Command{Use: "another"})
	if all[len(all)-1] != root {
		t.Errorf("the last of all commands has become %q", all[len(all)-1].Name())
	}
}

// quoted quotes a word for a script.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
