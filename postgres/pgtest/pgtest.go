//go:build unix

// Package pgtest starts a PostgreSQL for tests and for the demo.
package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/informctl/informctl/internal/testport"
)

// DSNVariable is the environment variable with the data source name of a database that
// tests use instead of a server of their own. It must be empty, and its role must be
// allowed to create schemas.
const DSNVariable = "INFORMCTL_POSTGRES_DSN"

// ErrNotInstalled is the error of Run where there is no PostgreSQL.
var ErrNotInstalled = errors.New("PostgreSQL is not installed (Debian: apt-get install postgresql)")

// Server is a PostgreSQL on this host. Its methods are not safe for concurrent use.
type Server struct {
	t    testing.TB // nil in a program
	bin  string
	dir  string
	port int
	// owner is who the processes belong to; nil is the present user. PostgreSQL refuses
	// to run as root.
	owner *syscall.Credential
}

// DSN returns the data source name of the database that tests share, which they use in
// schemas of their own: that of DSNVariable, or of a server that is stopped at the end of
// the test.
func DSN(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv(DSNVariable); dsn != "" {
		return dsn
	}
	return Start(t).DSN()
}

var schemas atomic.Int64

// Schema returns the name of a schema that no other test uses.
func Schema() string { return fmt.Sprintf("t%d_%d", os.Getpid(), schemas.Add(1)) }

// Start starts a server with an empty database. It skips the test, and says so, if
// PostgreSQL is not installed.
func Start(t testing.TB) *Server {
	t.Helper()
	if _, err := binaries(); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	// A socket's path has at most 107 bytes, which t.TempDir may exceed.
	dir, err := os.MkdirTemp("/tmp", "pgtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := Run(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop("immediate") })
	s.t = t
	return s
}

// Run starts a server with an empty database for a program, in a directory whose path
// should be short: a socket's has at most 107 bytes. Up, Log and Save are for tests.
func Run(dir string) (*Server, error) {
	s := &Server{dir: dir}
	var err error
	if s.bin, err = binaries(); err != nil {
		return nil, err
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	if err := s.own(); err != nil {
		return nil, err
	}
	if err := s.run("initdb", "--pgdata", s.data(), "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("\nport = %d\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '%s'\nfsync = on\nmax_connections = 300\nlog_min_messages = warning\n", s.port, dir)
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteString(conf); err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return s, s.up()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// DSN returns the server's data source name.
func (s *Server) DSN() string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable", s.dir, s.port)
}

// Port returns the TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Up starts the server after Stop.
func (s *Server) Up() {
	s.t.Helper()
	if err := s.up(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) up() error {
	return s.run("pg_ctl", "--pgdata", s.data(), "--log", filepath.Join(s.dir, "log"), "--wait", "--timeout", "60", "start")
}

// Stop stops the server, if it runs: mode is fast, or immediate, which is a crash. A test
// fails if the server does not stop.
func (s *Server) Stop(mode string) {
	if s.t != nil {
		s.t.Helper()
	}
	var exit *exec.ExitError
	err := s.command("pg_ctl", "--pgdata", s.data(), "status").Run()
	if errors.As(err, &exit) && exit.ExitCode() >= 3 {
		return // there is no server, or no database
	}
	err = s.run("pg_ctl", "--pgdata", s.data(), "--mode", mode, "--wait", "--timeout", "180", "stop")
	if err != nil && s.t != nil {
		s.t.Fatal(err)
	}
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// Save copies the stopped server's files; the function that it returns puts them back.
func (s *Server) Save() (restore func()) {
	s.t.Helper()
	saved := filepath.Join(s.dir, "saved")
	copyTo := func(from, to string) {
		s.t.Helper()
		if err := os.RemoveAll(to); err != nil {
			s.t.Fatal(err)
		}
		if out, err := s.commandOf("/bin/cp", "-a", from, to).CombinedOutput(); err != nil {
			s.t.Fatalf("copy the database: %v\n%s", err, out)
		}
	}
	copyTo(s.data(), saved)
	return func() { copyTo(saved, s.data()) }
}

func (s *Server) run(name string, args ...string) error {
	out, err := s.command(name, args...).CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("%s: %w\n%s%s", name, err, out, log)
	}
	return nil
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	return s.commandOf(filepath.Join(s.bin, name), args...)
}

// commandOf returns a command of the owner.
func (s *Server) commandOf(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // of PostgreSQL; ends by itself
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	if s.owner != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	}
	return cmd
}

// own finds the owner and gives him the directory.
func (s *Server) own() error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	group, groupErr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err, groupErr); err != nil {
		return err
	}
	s.owner = &syscall.Credential{Uid: uint32(id), Gid: uint32(group)}
	return os.Chown(s.dir, int(id), int(group))
}

// binaries returns the folder of the newest PostgreSQL.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", ErrNotInstalled
	}
	slices.SortFunc(found, func(a, b string) int { return major(a) - major(b) })
	return filepath.Dir(found[len(found)-1]), nil
}

func major(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}

func freePort() (int, error) {
	l, err := testport.Listen()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close() //nolint:forcetypeassert // of a TCP listener
}
