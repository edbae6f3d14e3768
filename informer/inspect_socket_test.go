package informer_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store/bolt"
)

// served is a running Serve.
type served struct {
	path string
	stop context.CancelFunc
	done chan error
	http.Client
}

// serve calls Serve until the test ends. It returns when a client has received an answer.
func serve(t *testing.T, path string, h http.Handler) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	s := &served{path: path, stop: cancel, done: make(chan error, 1)}
	s.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}
	go func() { s.done <- inspect.Serve(ctx, path, h) }()
	for {
		r, err := s.Get("http://informer/v1/scopes")
		if err == nil {
			_ = r.Body.Close()
			return s
		}
		select {
		case err := <-s.done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *served) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(s.path); err == nil {
		t.Error("the socket is still there")
	}
}

// A factory's informers answer on a socket beside the database:
// curl --unix-socket /var/cache/app/informers.db.sock http://informer/v1/status.
func ExampleServe() {
	run := func(ctx context.Context, db *bolt.DB, factory *informer.Factory) error {
		// Until the context ends.
		return inspect.Serve(ctx, inspect.SocketPath(db.Path()), inspect.NewHandler(factory))
	}
	_ = run
	// Output:
}

func anybody(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// TestServe checks that a running informer answers on its socket, only to this user,
// until the context ends. Then nothing is left, even if a client still follows.
func TestServe(t *testing.T) {
	t.Parallel()
	w := &world{T: t, path: filepath.Join(t.TempDir(), "i.db"), server: fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})}
	w.put("a", "1")
	r := w.run(informer.Options{})
	<-r.inf.HasSyncedChecker().Done()
	s := serve(t, inspect.SocketPath(w.path), handlerOf(r.inf))
	if info, err := os.Lstat(w.path + ".sock"); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	response, err := s.Get("http://informer/v1/changes?initial=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	if lines.Scan(); summary(lines.Text()) != "INITIAL a=1" {
		t.Errorf("told %s", lines.Text())
	}
	w.put("a", "2")
	if lines.Scan(); summary(lines.Text()) != "MODIFIED a=2" {
		t.Errorf("told %s", lines.Text())
	}
	err = inspect.Serve(t.Context(), s.path, handlerOf(r.inf))
	if err == nil || !strings.Contains(err.Error(), "live process") {
		t.Errorf("of a second one: %v", err)
	}
	s.end(t)
	if lines.Scan(); lines.Text() != `{"error":"the process ends","cause":"closed"}` || lines.Scan() {
		t.Errorf("at the end told %s", lines.Text())
	}
	if n := len(r.inf.Status().Handlers); n != 0 {
		t.Errorf("%d handlers are left", n)
	}
	r.end()
}

// TestServeReplacesStaleSockets checks that Serve replaces stale sockets and nothing
// else.
func TestServeReplacesStaleSockets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "i.db.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	serve(t, path, http.HandlerFunc(anybody)).end(t)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = inspect.Serve(t.Context(), path, http.HandlerFunc(anybody))
	if b, readErr := os.ReadFile(path); err == nil || !strings.Contains(err.Error(), "no socket") || string(b) != "mine" {
		t.Errorf("of a file: %v; it has %q (%v)", err, b, readErr)
	}
}

// TestServeEndsStuckClients checks that a client that does not read its answer blocks
// nothing.
func TestServeEndsStuckClients(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	s := serve(t, filepath.Join(t.TempDir(), "s"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/large" {
			return
		}
		_, _ = w.Write(make([]byte, 1<<10))
		close(begun)
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	c, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprint(c, "GET /large HTTP/1.1\r\nHost: informer\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-begun
	s.end(t)
}

// TestSocketPath checks that the path is valid for a socket and that both sides find it.
func TestSocketPath(t *testing.T) {
	runtime := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	if got := inspect.SocketPath("/var/cache/i.db"); got != "/var/cache/i.db.sock" {
		t.Errorf("of a short path: %s", got)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	if got, want := inspect.SocketPath("i.db"), inspect.SocketPath(filepath.Join(dir, "i.db")); got != want {
		t.Errorf("relative %s, absolute %s", got, want)
	}
	long := filepath.Join(dir, strings.Repeat("d", 100), "i.db")
	path := inspect.SocketPath(long)
	if filepath.Dir(path) != filepath.Join(runtime, "informctl") || path == inspect.SocketPath(long+"x") || path != inspect.SocketPath(long) {
		t.Errorf("of a long path: %s", path)
	}
	serve(t, path, http.HandlerFunc(anybody)).end(t)
	if err := inspect.Serve(t.Context(), long+".sock", nil); err == nil || !strings.Contains(err.Error(), "use SocketPath") {
		t.Errorf("served on a long path: %v", err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := inspect.Serve(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), "not this user's alone") {
		t.Errorf("served in a directory that others can read: %v", err)
	}
}

// TestServeWaitsForLock checks that Serve waits until another process has created its
// socket in the directory, or until the context ends.
func TestServeWaitsForLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "i.db.sock")
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	done := make(chan error, 1)
	go func() { done <- inspect.Serve(ctx, path, http.HandlerFunc(anybody)) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("a socket was made")
	}
	go func() { _ = dir.Close() }()
	serve(t, path, http.HandlerFunc(anybody)).end(t)
}
