package cli_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

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
	for _, cmd := range slices.Clone(all) {
		if cmd.HasParent() {
			all = append(all, cmd.Commands()...)
		}
	}
	all = slices.DeleteFunc(all, func(c *cobra.Command) bool { return c.HasParent() && !c.IsAvailableCommand() })
	slices.SortFunc(all, func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	for _, cmd := range all {
		cmd.DisableAutoGenTag = true // otherwise the page contains a date
	}
	return all
}

// reference returns all commands on one page. What several commands have in common stands
// below the last one.
func reference(t *testing.T) string {
	t.Helper()
	page := "# Commands\n\nMade of the commands' help by `make docs`; [man](man) has the same as manual pages.\n\n"
	users := flagUsers()
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
		all := "### Options\n\n```\n" + cmd.NonInheritedFlags().FlagUsages() + "```\n\n"
		if strings.Count(section, all) != 1 {
			t.Fatalf("%s: the flags are not found in\n%s", cmd.Name(), section)
		}
		page += strings.Replace(section, all, options(cmd, users), 1)
	}
	return strings.TrimRight(page+sharedFlags(users), "\n") + "\n"
}

// flagText is all that a page says of a flag.
type flagText struct{ name, shorthand, kind, usage, value string }

func textOf(f *pflag.Flag) flagText {
	return flagText{f.Name, f.Shorthand, f.Value.Type(), f.Usage, f.DefValue}
}

// flagUsers returns the names of the commands that have a flag with that text.
func flagUsers() map[flagText][]string {
	users := map[flagText][]string{}
	for _, cmd := range documented() {
		visitFlags(cmd, func(f *pflag.Flag) {
			users[textOf(f)] = append(users[textOf(f)], "`"+strings.TrimPrefix(cmd.CommandPath(), "informctl ")+"`")
		})
	}
	return users
}

// visitFlags visits the flags of a command but help.
func visitFlags(cmd *cobra.Command, visit func(*pflag.Flag)) {
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			visit(f)
		}
	})
}

// options returns a command's own flags, and the names of those that others have too.
func options(cmd *cobra.Command, users map[flagText][]string) string {
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), []string(nil)
	visitFlags(cmd, func(f *pflag.Flag) {
		switch {
		case len(users[textOf(f)]) == 1:
			own.AddFlag(f)
		case f.Shorthand != "":
			shared = append(shared, "`-"+f.Shorthand+", --"+f.Name+"`")
		default:
			shared = append(shared, "`--"+f.Name+"`")
		}
	})
	text := ""
	if own.HasFlags() {
		text += "```\n" + own.FlagUsages() + "```\n\n"
	}
	if len(shared) > 0 {
		text += "[As several commands](#flags-of-several-commands): " + strings.Join(shared, ", ") + ".\n\n"
	}
	if text != "" {
		text = "### Options\n\n" + text
	}
	return text
}

// sharedFlags returns the flags of several commands, those of the same commands together.
func sharedFlags(users map[flagText][]string) string {
	groups := map[string]*pflag.FlagSet{} // by the commands
	for _, cmd := range documented() {
		visitFlags(cmd, func(f *pflag.Flag) {
			of := users[textOf(f)]
			if len(of) == 1 {
				return
			}
			title := strings.Join(of[:len(of)-1], ", ") + " and " + of[len(of)-1]
			if groups[title] == nil {
				groups[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
			}
			if groups[title].Lookup(f.Name) == nil {
				groups[title].AddFlag(f)
			}
		})
	}
	text := "## Flags of several commands\n\nEach command has `-h`, `--help`.\n\n"
	// The flags of most commands come first.
	for _, title := range slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		if more := strings.Count(b, "`") - strings.Count(a, "`"); more != 0 {
			return more
		}
		return strings.Compare(a, b)
	}) {
		text += title + ":\n\n```\n" + groups[title].FlagUsages() + "```\n\n"
	}
	return text
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
