package releasetest_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

const (
	project = "github.com/informctl/informctl"
	root    = "../.."
	// quickStart is the page with the programs that newcomers copy.
	quickStart = root + "/docs/adopting.md"
)

// released are the folders of the modules that are released together.
var released = []string{".", "metrics", "postgres", "relay", "durable/controllerruntime", "cmd/informctl"}

// TestInstall serves the checkout as a release, as a module proxy does. The go command
// installs informctl, which prints that release's version, and builds the quick start's
// programs and one that imports metrics.
func TestInstall(t *testing.T) {
	version := release(t)
	env := environment(t, serve(t, version))
	t.Run("command", func(t *testing.T) {
		dir := t.TempDir()
		run(t, dir, append(env, "GOBIN="+dir), "go", "install", project+"/cmd/informctl@"+version)
		got := run(t, dir, env, filepath.Join(dir, "informctl"), "version")
		if want := "informctl " + version + " "; !strings.HasPrefix(got, want) {
			t.Errorf("informctl version says %q, want %q", got, want)
		}
	})
	t.Run("archives", func(t *testing.T) { archives(t, version, env) })
	t.Run("library", func(t *testing.T) {
		dir := t.TempDir()
		programs := programs(t)
		if len(programs) != 2 {
			t.Fatalf("%s has %d programs, want 2", quickStart, len(programs))
		}
		for _, imported := range []string{"/metrics", "/postgres", "/relay", "/durable/controllerruntime"} {
			programs = append(programs, "package main\n\nimport _ \""+project+imported+"\"\n\nfunc main() {}\n")
		}
		for i, program := range programs {
			file := filepath.Join(dir, string(rune('a'+i)), "main.go")
			if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run(t, dir, env, "go", "mod", "init", "example.com/user")
		run(t, dir, env, "go", "get", project+"@"+version, project+"/metrics@"+version, project+"/postgres@"+version, project+"/relay@"+version, project+"/durable/controllerruntime@"+version, controllerRuntime(t))
		run(t, dir, env, "go", "get", "./...")
		run(t, dir, env, "go", "build", "./...")
	})
}

// release returns the version that the modules name for each other. It fails the test if
// a module replaces or excludes others, or if the version is not fit for a release.
func release(t *testing.T) (version string) {
	t.Helper()
	for _, folder := range released {
		mod := parse(t, folder)
		if len(mod.Replace)+len(mod.Exclude) > 0 {
			t.Errorf("%s/go.mod replaces or excludes modules, which go install refuses: a replacement belongs into go.work", folder)
		}
		for _, r := range mod.Require {
			if !strings.HasPrefix(r.Mod.Path+"/", project+"/") {
				continue
			}
			has := r.Mod.Version
			if module.IsPseudoVersion(has) || semver.Compare(has, "v0.0.0") <= 0 {
				t.Errorf("%s/go.mod requires %s, which is no release: want a version such as v0.1.0", folder, r.Mod)
				continue
			}
			if version == "" {
				version = has
			}
			if has != version {
				t.Errorf("%s/go.mod requires %s, want %s, which the others require", folder, r.Mod, version)
			}
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return version
}

// parse reads go.mod of a folder.
func parse(t *testing.T, folder string) *modfile.File {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(folder+"/go.mod", b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

// serve returns the address of a module proxy that has one version of the modules, as
// they are in the checkout. It forbids all other paths of the project: after a 403 the go
// command asks no other proxy, which might have a release of that version.
func serve(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range released {
		publish(t, dir, folder, version)
	}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(r.URL.Path)))
		if err != nil && strings.HasPrefix(r.URL.Path, "/"+path.Dir(project)+"/") {
			http.Error(w, "no such release", http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// publish writes what a proxy serves of the module in a folder.
func publish(t *testing.T, proxy, folder, version string) {
	t.Helper()
	mod := module.Version{Path: path.Join(project, folder), Version: version}
	dir := filepath.Join(proxy, filepath.FromSlash(mod.Path), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write("list", []byte(version+"\n"))
	write(version+".info", info)
	write(version+".mod", goMod)
	out, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(zip.Create(out, mod, files(t, filepath.Join(root, folder))), out.Close()); err != nil {
		t.Fatalf("make the module %s: %v", mod, err)
	}
}

// files returns the files of a folder, without those that git ignores.
func files(t *testing.T, folder string) (files []zip.File) {
	t.Helper()
	names := run(t, folder, nil, "git", "ls-files", "-z", "-co", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		f := file{folder: folder, name: name}
		if _, err := f.Lstat(); errors.Is(err, fs.ErrNotExist) {
			continue // its deletion is not committed
		}
		files = append(files, f)
	}
	return files
}

// file is a file of a module.
type file struct{ folder, name string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.folder, f.name)) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.folder, f.name)) }

// environment returns that of a user who has no modules yet, and the proxy. Modules of
// others come from the go command's cache: no network is needed once they are there. It
// asks no checksum database, which does not know the project's modules before their
// release. "go list" has go.sum check the modules of informctl, which the test runs.
func environment(t *testing.T, proxy string) []string {
	t.Helper()
	run(t, root+"/cmd/informctl", nil, "go", "list", "-deps", "-f", "{{with .Error}}{{.}}{{end}}", ".")
	var has struct{ GOCACHE, GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal([]byte(run(t, ".", nil, "go", "env", "-json")), &has); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "GOENV=off", "GOWORK=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0",
		"GOPRIVATE=", "GONOPROXY=", "GOSUMDB=off",
		"GOPROXY="+proxy+",file://"+has.GOMODCACHE+"/cache/download,"+has.GOPROXY,
		"GOMODCACHE="+t.TempDir(), "GOCACHE="+has.GOCACHE,
		// With -trimpath packages that were compiled in another GOMODCACHE serve.
		"GOFLAGS=-modcacherw -trimpath")
}

// controllerRuntime returns controller-runtime with the version that e2e requires.
func controllerRuntime(t *testing.T) string {
	t.Helper()
	const name = "sigs.k8s.io/controller-runtime"
	for _, r := range parse(t, "e2e").Require {
		if r.Mod.Path == name {
			return r.Mod.String()
		}
	}
	t.Fatalf("e2e/go.mod does not require %s", name)
	return ""
}

// programs returns the programs of the quick start.
func programs(t *testing.T) (programs []string) {
	t.Helper()
	b, err := os.ReadFile(quickStart)
	if err != nil {
		t.Fatal(err)
	}
	for left := string(b); ; {
		_, after, found := strings.Cut(left, "\n```go\npackage main\n")
		if !found {
			return programs
		}
		var program string
		program, left, _ = strings.Cut(after, "\n```\n")
		programs = append(programs, "package main\n"+program+"\n")
	}
}

// run runs a command and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}
