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
)

// maxSocketPath is the longest path that a unix socket can have everywhere: the
// kernels' buffers take 104 or 108 bytes with a zero at the end.
const maxSocketPath = 103

// lockEvery is how often it is tried to lock a directory that somebody else has locked.
const lockEvery = 20 * time.Millisecond

// SocketPath returns where the process that has a database open serves its Handler,
// by convention: the database's path with ".sock". Where that is too long for a
// socket, it is a name made from a hash of it, in a directory of the user's below
// $XDG_RUNTIME_DIR or the system's directory for temporary files; both sides must
// have these alike.
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

// runtimeDir is for one user: names in it can be foreseen, and a directory of
// temporary files is everybody's.
func runtimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "informctl")
	}
	return filepath.Join(os.TempDir(), "informctl-"+strconv.Itoa(os.Getuid()))
}

// Serve serves h on a unix socket that only this user can connect to. It blocks
// until ctx ends and every connection and goroutine has ended, removes the socket
// and returns nil.
//
// The socket of a process that has ended is replaced; one that a live process serves
// is an error, and so is another file of that name and a path that is too long, for
// which SocketPath names another.
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
	s := newSocketServer(ctx, h)
	var parts sync.WaitGroup
	parts.Go(func() {
		<-ctx.Done()
		s.shutDown(ctx)
	})
	err = s.Serve(l) // which removes the socket
	cancel()
	parts.Wait()
	s.connections.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", path, err)
}

// listen makes the socket, with the directory locked against others who do.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d bytes, want %d at most: use SocketPath", len(path), maxSocketPath)
	}
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // ends the lock
	if err := lockDir(ctx, dir); err != nil {
		return nil, fmt.Errorf("lock the directory: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// Linux makes the socket's file with the mode of its descriptor, less the umask,
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

// openDir opens the socket's directory, and makes it where it is that of SocketPath:
// then it must be this user's alone.
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

// lockDir waits for the lock until the context ends; closing the directory ends it.
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

// removeStale removes a socket that nobody serves.
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

// socketServer counts its connections: http.Server's Close waits for none.
type socketServer struct {
	http.Server
	connections sync.WaitGroup
}

// socketServer's limits; Handler has its own for answers.
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
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends every request
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

// shutDown lets answers end whose requests have just been told to, and closes what
// is left.
func (s *socketServer) shutDown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutDownPatience)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
