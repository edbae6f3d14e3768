package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Binaries are the paths of the two programs of a control plane.
type Binaries struct {
	Etcd      string
	APIServer string
	// Version is the Kubernetes version of the API server, such as v1.37.1.
	Version string
}

// Build builds the programs into the user's cache directory with the go command. The
// module of the working directory must require them as tools. Build compiles only what
// has changed: the first build takes minutes, later ones take seconds. A process builds
// once. Concurrent builds wait for each other, also those of other processes. Progress is
// written to log.
func Build(ctx context.Context, log io.Writer) (Binaries, error) {
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.binaries == (Binaries{}) {
		var err error
		if built.binaries, err = build(ctx, log); err != nil {
			return Binaries{}, err
		}
	}
	return built.binaries, nil
}

// Kubectl builds kubectl as Build builds the programs, and returns its path. It is of the
// version of the API server.
func Kubectl(ctx context.Context, log io.Writer) (path string, err error) {
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.kubectl == "" {
		built.kubectl, err = buildKubectl(ctx, log)
	}
	return built.kubectl, err
}

// built contains what this process has built, once it has. mu is held during the build.
var built struct {
	mu       sync.Mutex
	binaries Binaries
	kubectl  string
}

func build(ctx context.Context, log io.Writer) (Binaries, error) {
	dir, version, unlock, err := openCache(ctx)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	b := Binaries{
		Etcd:      filepath.Join(dir, "etcd"),
		APIServer: filepath.Join(dir, "kube-apiserver"),
		Version:   version,
	}
	if err := goBuild(ctx, log, b.Etcd, "go.etcd.io/etcd/server/v3", ""); err != nil {
		return Binaries{}, err
	}
	if err := goBuild(ctx, log, b.APIServer, "k8s.io/kubernetes/cmd/kube-apiserver", stamp(version)); err != nil {
		return Binaries{}, err
	}
	return b, nil
}

func buildKubectl(ctx context.Context, log io.Writer) (string, error) {
	dir, version, unlock, err := openCache(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(dir, "kubectl")
	if err := goBuild(ctx, log, path, "k8s.io/kubernetes/cmd/kubectl", stamp(version)); err != nil {
		return "", err
	}
	return path, nil
}

// openCache returns the directory of the binaries for the Kubernetes version that the
// module requires. The directory is locked until unlock is called.
func openCache(ctx context.Context) (dir, version string, unlock func(), err error) {
	version, err = moduleVersion(ctx, "k8s.io/kubernetes")
	if err != nil {
		return "", "", nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", nil, fmt.Errorf("find a place for the binaries: %w", err)
	}
	dir = filepath.Join(cache, "informctl", "controlplane", version)
	unlock, err = Lock(dir)
	if err != nil {
		return "", "", nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return dir, version, unlock, nil
}

// stamp returns the linker flag without which a program of Kubernetes reports version
// v0.0.0, which clients may refuse.
func stamp(version string) string {
	return "-X k8s.io/component-base/version.gitVersion=" + version
}

func moduleVersion(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the version of %s in the working directory's module: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func goBuild(ctx context.Context, log io.Writer, path, pkg, ldflags string) error {
	if _, err := os.Stat(path); err != nil {
		fmt.Fprintf(log, "building %s, which takes minutes the first time\n", pkg)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w "+ldflags, "-o", path, pkg)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// Lock creates dir and blocks until no other process holds its lock.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
