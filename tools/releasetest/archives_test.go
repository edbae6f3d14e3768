package releasetest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// archives builds the archive of this platform as a release does, and unpacks it: the
// program prints the release's version, and the checksums are those of the archive.
func archives(t *testing.T, version string, env []string) {
	script, err := filepath.Abs(filepath.Join(root, "tools/archives"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	out := run(t, dir, env, script, version, "dist", platform)
	name := "informctl_" + version + "_" + strings.ReplaceAll(platform, "/", "_") + ".tar.gz"
	if want := "checksums.txt\n" + name + "\ninformer.yaml\n"; out != want {
		t.Errorf("it prints %q, want %q", out, want)
	}
	dist := filepath.Join(dir, "dist")
	sum, _, _ := strings.Cut(bash(t, dist, env, "sha256sum -c --quiet checksums.txt; cat checksums.txt"), " ")
	manifest, err := os.ReadFile(filepath.Join(dist, "informer.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"version: " + version + "\n", "/" + version + "/" + name + "\n", "sha256: " + sum + "\n", "bin: informctl\n"} {
		if !strings.Contains(string(manifest), want) {
			t.Errorf("%q is not in\n%s", want, manifest)
		}
	}
	got := bash(t, dist, env, "tar -xf *.tar.gz; test -s LICENSE; ./informctl version")
	if want := "informctl " + version + " "; !strings.HasPrefix(got, want) {
		t.Errorf("the program says %q, want %q", got, want)
	}
	for args, want := range map[string]string{
		"":                        "want VERSION and FOLDER",
		version:                   "want VERSION and FOLDER",
		"0.1 new":                 `"0.1" is no version`,
		version + " dist":         "dist is not empty",
		version + " new linux":    `"linux" is no platform`,
		"v0.98.0 new " + platform: "informctl v0.98.0 cannot be built for " + platform,
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script+" "+args)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if lines := strings.TrimSpace(string(out)); err == nil || !strings.Contains(lines[strings.LastIndexByte(lines, '\n')+1:], "tools/archives: ") || !strings.Contains(lines, want) {
			t.Errorf("%q: error %v, and it says %q, want %q", args, err, out, want)
		}
	}
}
