// Package program builds the programs that tests run.
package program

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds the main package pkg of the module in dir, and returns the path of the
// program, which is removed when the test has ended. A failure ends the test.
func Build(t testing.TB, name, dir, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// Informctl builds informctl for the tests of a package in a folder of this module.
func Informctl(t testing.TB) string {
	t.Helper()
	return Build(t, "informctl", "../../cmd/informctl", ".")
}
