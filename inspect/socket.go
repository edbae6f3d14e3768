package inspect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

// maxSocketPath is the longest path of a unix socket on all systems: the kernels' buffers
// have 104 or 108 bytes, including a final zero.
const maxSocketPath = 103

// lockEvery is the interval between attempts to lock a directory that another process has
// locked.
const lockEvery = 20 * time.Millisecond

// SocketPath returns the path of the socket on which, by convention, the process with an
// open database serves its Handler: the path of the database with ".sock". If that is too
// long for a socket, the name is a hash of the path, in a directory of the user below
// $XDG_RUNTIME_DIR or the system's temporary directory; both must be the same for server
// and client.
func SocketPath(databasePath string) string {
	path := databasePath + ".sock"
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if len(path) <= maxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(runtimeDir(), hex.EncodeToString(sum[:16])+".sock")
}

// runtimeDir returns a directory for one user: its file names are predictable, and
// everybody can write to a temporary directory.
func runtimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "informctl")
	}
	return filepath.Join(os.TempDir(), "informctl-"+strconv.Itoa(os.Getuid()))
}

// Serve serves h on a unix socket that only this user can connect to. It blocks until ctx
// ends and every connection and goroutine has ended, removes the socket and returns nil.
//
// Serve replaces the socket of a process that has ended. It returns an error if a live
// process serves the socket, if another file has that name, or if the path is too long;
// SocketPath returns a shorter one.
func Serve(ctx context.Context, path string, h http.Handler) error {
	l, err := listen(ctx, path)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("serve on %s: %w", path, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, end := context.WithCancelCause(context.WithoutCancel(ctx))
	s := newSocketServer(requests, h)
	var parts sync.WaitGroup
	parts.Go(func() {
		<-ctx.Done()
		end(errEnds)
		s.shutDown(ctx)
	})
	err = s.Serve(l) // removes the socket when it returns
	cancel()
	parts.Wait()
	s.connections.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", path, err)
}

// errEnds is why the requests end when the context of Serve does. A client that follows
// is told.
var errEnds error = &placeError{store.ErrClosed, "the process ends"}

// listen creates the socket. It holds a lock on the directory, so that only one process
// does this at a time.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d bytes, want %d at most: use SocketPath", len(path), maxSocketPath)
	}
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // releases the lock
	if err := lockDir(ctx, dir); err != nil {
		return nil, fmt.Errorf("lock the directory: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// Linux creates the socket's file with the mode of its descriptor, minus the umask,
	// so nobody else can connect before Chmod.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// openDir opens the directory of the socket. If the directory is SocketPath's, openDir
// creates it if necessary and verifies that only this user has access.
func openDir(dir string) (*os.File, error) {
	own := dir == runtimeDir()
	if own {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil || !own {
		return f, err
	}
	var info unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &info)
	if err == nil && (int(info.Uid) != os.Getuid() || info.Mode&0o077 != 0) {
		err = fmt.Errorf("%s is not this user's alone", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockDir waits for the lock until the context ends. Closing the directory releases it.
func lockDir(ctx context.Context, dir *os.File) error {
	again := time.NewTicker(lockEvery)
	defer again.Stop()
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// removeStale removes a socket that no process serves.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file of that name that is no socket")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = c.Close()
		return errors.New("a live process serves there already")
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	default:
		return fmt.Errorf("ask whether a live process serves there: %w", err)
	}
}

// socketServer counts its connections, because http.Server's Close does not wait for
// them.
type socketServer struct {
	http.Server
	connections sync.WaitGroup
}

// These are the limits of socketServer; Handler has its own limits for answers.
const (
	headerPatience   = 5 * time.Second
	idlePatience     = time.Minute
	shutDownPatience = 2 * time.Second
	maxHeader        = 64 << 10
)

func newSocketServer(ctx context.Context, h http.Handler) *socketServer {
	s := &socketServer{}
	s.Server = http.Server{
		Handler: h, ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader,
		// The end of ctx ends every request.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(logr.ToSlogHandler(klog.FromContext(ctx)), slog.LevelWarn),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				s.connections.Add(1)
			case http.StateClosed, http.StateHijacked:
				s.connections.Done()
			case http.StateActive, http.StateIdle:
			}
		},
	}
	return s
}

// shutDown waits up to shutDownPatience for answers, whose requests are canceled already,
// and then closes the remaining connections.
func (s *socketServer) shutDown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutDownPatience)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
