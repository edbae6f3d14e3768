package releasetest_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// repository makes a repository of the checkout's files that tools/release reads, and a
// changelog with a section for version. It returns its folder and an environment for git.
func repository(t *testing.T, version string) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"go.mod", "metrics/go.mod", "postgres/go.mod", "relay/go.mod", "durable/controllerruntime/go.mod", "cmd/informctl/go.mod", "tools/release"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env = append(os.Environ(), "VERSION="+version, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
	bash(t, dir, env, `printf '# Changelog\n\n## %s\n\nThe first.\n' $VERSION >CHANGELOG.md
		git init -q . && git add . && git commit -qm all`)
	return dir, env
}

// bash runs a script.
func bash(t *testing.T, dir string, env []string, script string) string {
	t.Helper()
	return run(t, dir, env, "bash", "-euc", script)
}

// TestTag makes a release: five tags of the commit, and the command that pushes them.
func TestTag(t *testing.T) {
	version := release(t)
	dir, env := repository(t, version)
	tags := []string{"cmd/informctl/" + version, "durable/controllerruntime/" + version, "metrics/" + version, "postgres/" + version, "relay/" + version, version}
	out := bash(t, dir, env, "tools/release $VERSION")
	got := strings.Fields(bash(t, dir, env, "git tag --points-at HEAD"))
	if diff := cmp.Diff(tags, got); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	bash(t, dir, env, "git init -q --bare ../origin; git remote add origin ../origin; "+strings.Split(out, "\n")[1])
	got = strings.Fields(bash(t, filepath.Join(dir, "../origin"), env, "git tag"))
	if diff := cmp.Diff(tags, got); diff != "" {
		t.Errorf("tags that were pushed by what it says (-want +got):\n%s\n%s", diff, out)
	}
}

// TestRefusal makes mistakes: tools/release says in one line what is wrong, and tags
// nothing.
func TestRefusal(t *testing.T) {
	version := release(t)
	const commit = "; git commit -qam change"
	for name, test := range map[string]struct{ change, args, want string }{
		"nothing":     {args: "", want: "want one VERSION"},
		"two":         {args: "$VERSION $VERSION", want: "want one VERSION"},
		"option":      {args: "--push", want: `"--push" is no version`},
		"empty":       {args: "''", want: `"" is no version`},
		"no v":        {args: "${VERSION#v}", want: "is no version"},
		"short":       {args: "v0.1", want: "is no version"},
		"v2":          {args: "v2.0.0", want: "want v0.MINOR.PATCH or v1.MINOR.PATCH"},
		"changed":     {"echo >>CHANGELOG.md", "$VERSION", "the tree has changes"},
		"new":         {"echo >new", "$VERSION", "the tree has changes"},
		"changelog":   {"echo '## Unreleased' >CHANGELOG.md" + commit, "$VERSION", `CHANGELOG.md has no section "## ` + version + `"`},
		"longer":      {"echo \"## $VERSION-rc.1\" >CHANGELOG.md" + commit, "$VERSION", `CHANGELOG.md has no section "## ` + version + `"`},
		"other":       {args: "v1.99.0", want: "metrics/go.mod requires " + project + " " + version + ", want v1.99.0"},
		"unreleased":  {"go mod edit -require=" + project + "/metrics@v0.0.0 cmd/informctl/go.mod" + commit, "$VERSION", "cmd/informctl/go.mod requires " + project + "/metrics v0.0.0, want " + version},
		"replacement": {"echo 'replace " + project + " => ..' >>metrics/go.mod" + commit, "$VERSION", "metrics/go.mod replaces"},
		"block":       {"printf 'replace (\n\ta.b/c => ..\n)\n' >>go.mod" + commit, "$VERSION", "go.mod replaces"},
		"exclusion":   {"echo 'exclude a.b/c v1.0.0' >>metrics/go.mod" + commit, "$VERSION", "metrics/go.mod replaces or excludes"},
		"tag":         {"git tag metrics/$VERSION", "$VERSION", "the tag metrics/" + version + " exists"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, env := repository(t, version)
			bash(t, dir, env, test.change)
			tags := bash(t, dir, env, "git tag")
			cmd := exec.CommandContext(t.Context(), "bash", "-c", "tools/release "+test.args)
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
				t.Errorf("it ended with %v, want 1", err)
			}
			if got := string(out); !strings.HasPrefix(got, "tools/release: ") || strings.Count(got, "\n") != 1 || !strings.Contains(got, test.want) {
				t.Errorf("it says %q, want a line with %q", got, test.want)
			}
			if got := bash(t, dir, env, "git tag"); got != tags {
				t.Errorf("tags are %q, were %q", got, tags)
			}
		})
	}
}

// TestCorrection does what tools/release says until all modules name the next version.
func TestCorrection(t *testing.T) {
	const next = "v1.99.0"
	dir, env := repository(t, next)
	for range 8 {
		bash(t, dir, env, "tools/release $VERSION 2>&1 | sed -n 's/.*: go mod edit/go mod edit/p' | bash; git commit -qam version")
	}
	bash(t, dir, env, "tools/release $VERSION")
}

// TestHelp reads what -h prints, which tags nothing.
func TestHelp(t *testing.T) {
	dir, env := repository(t, release(t))
	out := bash(t, dir, env, "tools/release -h")
	for _, want := range []string{"usage: tools/release VERSION\n", "Nothing is pushed", "CHANGELOG.md"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if tags := bash(t, dir, env, "git tag"); tags != "" {
		t.Errorf("it made the tags %q", tags)
	}
}
