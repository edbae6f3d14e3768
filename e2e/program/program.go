// Package program builds the programs that tests run.
package program

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/informctl/informctl/e2e/controlplane"
)

// Build builds the main package pkg of the module in dir, and returns the path of the
// program, which is removed when the test has ended. A failure ends the test.
func Build(t testing.TB, name, dir, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build(t, path, dir, pkg)
	return path
}

func build(t testing.TB, path, dir, pkg string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// Informctl is Build of informctl for the tests of a package in a folder of this module.
// The packages share a program, which is linked once for all of them: go build leaves one
// that is up to date.
func Informctl(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "informctl", "tests")
	unlock, err := controlplane.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	shared, own := filepath.Join(dir, "informctl"), filepath.Join(t.TempDir(), "informctl")
	build(t, shared, "../../cmd/informctl", ".")
	if err := copyProgram(own, shared); err != nil {
		t.Fatal(err)
	}
	return own
}

// copyProgram copies a program: the next build may replace the shared one.
func copyProgram(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}
