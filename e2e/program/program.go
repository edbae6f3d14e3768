// Package program builds the programs that tests, the demo and the benchmark run.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// Release builds informctl into dir in the same way as make build, and returns the path
// of the program.
func Release(ctx context.Context, dir string) (path string, err error) {
	const module = "github.com/informctl/informctl"
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, OutputError(err))
	}
	if path, err = filepath.Abs(filepath.Join(dir, "informctl")); err != nil {
		return "", fmt.Errorf("build informctl: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, ".")
	// The command is a separate module.
	build.Dir = filepath.Join(strings.TrimSpace(string(root)), "cmd", "informctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if _, err := build.Output(); err != nil {
		return "", fmt.Errorf("build informctl: %w", OutputError(err))
	}
	return path, nil
}

// OutputError adds to the error of exec.Cmd.Output what the program wrote to standard
// error.
func OutputError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
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
