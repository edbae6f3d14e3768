package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
)

// docs is the directory of the files that are generated from the commands' help.
const docs = "../../../../docs"

// TestDocs checks that docs/commands.md and docs/man match the commands' help. With
// -update, which "make docs" sets, it writes them.
func TestDocs(t *testing.T) {
	t.Setenv("INFORMCTL_DB", "") // the variable changes the default of a flag
	want := map[string]string{"commands.md": reference(t)}
	for _, cmd := range documented() {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		want[filepath.Join("man", name+".1")] = manual(t, cmd)
	}
	man := filepath.Join(docs, "man")
	if *update {
		if err := os.RemoveAll(man); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(man, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range want {
			if err := os.WriteFile(filepath.Join(docs, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Errorf("%v: make docs writes it", err)
			continue
		}
		if diff := cmp.Diff(content, string(got)); diff != "" {
			t.Errorf("%s (-want +got; make docs writes it):\n%s", name, diff)
		}
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if _, ok := want[filepath.Join("man", page.Name())]; !ok {
			t.Errorf("man/%s is of no command; make docs removes it", page.Name())
		}
	}
}

// documented returns the commands in the order of the documentation.
func documented() []*cobra.Command {
	// The list is copied: the root has its commands in the same memory.
	all := slices.Clone(cli.Commands())
	all = slices.DeleteFunc(all, func(c *cobra.Command) bool { return c.HasParent() && !c.IsAvailableCommand() })
	slices.SortFunc(all, func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	for _, cmd := range all {
		cmd.DisableAutoGenTag = true // otherwise the page contains a date
	}
	return all
}

// reference returns all commands on one page.
func reference(t *testing.T) string {
	t.Helper()
	page := "# Commands\n\nMade of the commands' help by `make docs`; [man](man) has the same as manual pages.\n\n"
	for _, cmd := range documented() {
		var b bytes.Buffer
		err := doc.GenMarkdownCustom(cmd, &b, func(file string) string {
			return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
		})
		if err != nil {
			t.Fatal(err)
		}
		section := b.String()
		if cmd.HasParent() {
			section, _, _ = strings.Cut(section, "### SEE ALSO")
		}
		page += section
	}
	return strings.TrimRight(page, "\n") + "\n"
}

// manual returns the manual page of a command.
func manual(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	var b bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Date: &time.Time{}, Source: "informctl"}, &b); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(b.String(), `"Jan 0001"`, `""`, 1)
}

// TestTableOfCommands checks that the page on operating names each command.
func TestTableOfCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(docs, "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			table.WriteString(cells[1])
		}
	}
	for _, cmd := range documented() {
		if cmd.HasParent() && !cmd.Parent().HasParent() && !strings.Contains(table.String(), "`"+cmd.Name()+"`") {
			t.Errorf("the table of commands lacks %s", cmd.Name())
		}
	}
}
