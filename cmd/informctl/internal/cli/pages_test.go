package cli_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
)

// pages returns the pages but commands.md, whose examples TestHelp runs, by their paths
// from the project's root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Dir(docs)
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "deploy/*/*.md", "examples/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(name)] = string(b)
		}
	}
	delete(texts, "docs/commands.md")
	if len(texts) < 10 {
		t.Fatalf("%d pages are found", len(texts))
	}
	return texts
}

var (
	// fenced is a block of code; its language is the first group.
	fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	span   = regexp.MustCompile("`([^`\n]+)`")
	// target is a target of make at the begin of a line or of a code span.
	target = regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)")
	// named is the name of a command in the prose of a manifest.
	named = regexp.MustCompile(`\binformctl ([a-z]+)`)
)

// shellBlocks returns the blocks of a page that a shell reads: those that are in no other
// language.
func shellBlocks(text string) (blocks []string) {
	for _, b := range fenced.FindAllStringSubmatch(text, -1) {
		if !slices.Contains([]string{"go", "diff", "sql", "text"}, b[1]) {
			blocks = append(blocks, b[2])
		}
	}
	return blocks
}

// shellWords splits a script into simple commands and these into words. It knows quotes,
// comments and operators, and nothing of substitution.
func shellWords(script string) (commands [][]string) {
	var command []string
	var word strings.Builder
	inWord := false
	endWord := func() {
		if inWord {
			command = append(command, word.String())
		}
		word.Reset()
		inWord = false
	}
	end := func() {
		endWord()
		if len(command) > 0 {
			commands = append(commands, command)
		}
		command = nil
	}
	for i := 0; i < len(script); i++ {
		switch c := script[i]; {
		case c == '\\' && i+1 < len(script):
			i++
			if script[i] != '\n' {
				word.WriteByte(script[i])
				inWord = true
			}
		case c == '\'' || c == '"':
			inWord = true
			for i++; i < len(script) && script[i] != c; i++ {
				if c == '"' && script[i] == '\\' && i+1 < len(script) {
					i++
				}
				word.WriteByte(script[i])
			}
		case c == '#' && !inWord:
			for i+1 < len(script) && script[i+1] != '\n' {
				i++
			}
		case strings.IndexByte("\n|&;()<>", c) >= 0:
			end()
		case c == ' ' || c == '\t':
			endWord()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	end()
	return commands
}

func TestShellWords(t *testing.T) {
	got := fmt.Sprintf("%q", shellWords(`until a -x; do b 'c d' \
  "e \" f" g#h; done # no'thing
i <(j k) | l > m && n ''`))
	want := `[["until" "a" "-x"] ["do" "b" "c d" "e \" f" "g#h"] ["done"] ["i"] ["j" "k"] ["l"] ["m"] ["n" ""]]`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// arguments returns the arguments of informctl if that is what a simple command runs.
func arguments(command []string) ([]string, bool) {
	for i, word := range command {
		if word == "informctl" {
			return command[i+1:], true
		}
		if word == "kubectl" && i+1 < len(command) && command[i+1] == "informer" {
			return command[i+2:], true
		}
	}
	return nil, false
}

// parses reports what is wrong with the arguments of informctl, which is not run. A
// mention is a command that is named: it may lack its arguments, and the last flag its
// value.
func parses(args []string, mention bool) error {
	all := cli.Commands()
	cmd, rest, err := all[len(all)-1].Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	err = cmd.ParseFlags(rest)
	if mention && err != nil && strings.HasPrefix(err.Error(), "flag needs an argument: ") {
		err = nil
	}
	if err != nil {
		return err
	}
	words := cmd.Flags().Args()
	if !cmd.HasParent() && len(words) > 0 {
		return fmt.Errorf("unknown command %q", words[0])
	}
	if mention && len(words) == 0 {
		return nil
	}
	if err := cmd.ValidateArgs(words); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

// TestPagesParse checks that each command of informctl on a page exists, with flags that
// it has and as many arguments as it takes.
func TestPagesParse(t *testing.T) {
	found := 0
	for page, text := range pages(t) {
		scripts := map[string]bool{} // whether it is a mention
		for _, block := range shellBlocks(text) {
			scripts[block] = false
		}
		for _, s := range span.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if first, _, _ := strings.Cut(s[1], " "); first == "informctl" || first == "kubectl" {
				scripts[s[1]] = true
			}
		}
		for script, mention := range scripts {
			for _, command := range shellWords(script) {
				args, ok := arguments(command)
				if !ok {
					continue
				}
				found++
				if err := parses(args, mention); err != nil {
					t.Errorf("%s: %q: %v", page, command, err)
				}
			}
		}
	}
	if found < 60 {
		t.Errorf("%d commands are found", found)
	}
}

// TestMakeTargets checks that each target of make that a page names is in the Makefile.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(docs, "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for page, text := range pages(t) {
		code := strings.Join(shellBlocks(text), "")
		for _, s := range span.FindAllString(text, -1) {
			code += s + "\n"
		}
		for _, m := range target.FindAllStringSubmatch(code, -1) {
			if m[1] == "manifests" {
				continue // of a kubebuilder project
			}
			found++
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: make has no target %s", page, m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d targets are found", found)
	}
}

// TestManifestsParse checks the commands of the containers of deploy, and that each
// command exists which their comments and alerts name.
func TestManifestsParse(t *testing.T) {
	containers := 0
	err := filepath.WalkDir(filepath.Join(filepath.Dir(docs), "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(string(b), -1) {
			if err := parses(m[1:], true); err != nil {
				t.Errorf("%s: %q: %v", path, m[0], err)
			}
		}
		if filepath.Ext(path) != ".yaml" {
			return nil
		}
		for doc := range strings.SplitSeq("\n"+string(b), "\n---\n") {
			var manifest any
			if err := yaml.Unmarshal([]byte(doc), &manifest); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			for _, args := range containerArgs(manifest) {
				containers++
				if err := parses(args, false); err != nil {
					t.Errorf("%s: %q: %v", path, args, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if containers < 3 {
		t.Errorf("%d containers of informctl are found", containers)
	}
}

// containerArgs returns the arguments of each container of informctl's image, and of each
// list of words that begins with informctl, as a probe's.
func containerArgs(v any) (all [][]string) {
	words := func(v any) (words []string) {
		list, _ := v.([]any)
		for _, e := range list {
			words = append(words, fmt.Sprint(e))
		}
		return words
	}
	switch v := v.(type) {
	case map[string]any:
		if image, _ := v["image"].(string); strings.HasPrefix(image, "informctl:") {
			all = append(all, words(v["args"]))
		}
		for _, e := range v {
			all = append(all, containerArgs(e)...)
		}
	case []any:
		if w := words(v); len(w) > 0 && w[0] == "informctl" {
			all = append(all, w[1:])
		}
		for _, e := range v {
			all = append(all, containerArgs(e)...)
		}
	}
	return all
}

// TestParses checks that what TestPagesParse looks for is found.
func TestParses(t *testing.T) {
	for script, mention := range map[string]bool{
		"informctl querry pods":           true,
		"informctl query pods --wheel":    true,
		"informctl snapshot":              false,
		"informctl snapshot a b":          true,
		"informctl info --db":             false,
		"kubectl informer verify x":       true,
		"kubectl exec P -- informctl dmp": true,
	} {
		args, ok := arguments(shellWords(script)[0])
		if err := parses(args, mention); !ok || err == nil {
			t.Errorf("%s: nothing is wrong", script)
		}
	}
}
