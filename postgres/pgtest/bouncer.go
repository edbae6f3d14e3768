//go:build unix

package pgtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Bouncer is a PgBouncer in transaction mode before a Server: each transaction of a
// client may be on another connection of the server. Its methods are not safe for
// concurrent use.
type Bouncer struct {
	s    *Server
	path string
	port int
	cmd  *exec.Cmd // nil while it is down
}

// Bouncer starts a PgBouncer that has a number of connections to the server. It skips the
// test, and says so, if PgBouncer is not installed.
func (s *Server) Bouncer(t testing.TB, connections int) *Bouncer {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // of Debian, where only root may have it in the PATH
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("NOT TESTED: PgBouncer is not installed (Debian: apt-get install pgbouncer)")
	}
	b := &Bouncer{s: s, path: path}
	if b.port, err = freePort(); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf("[databases]\n* = host=%s port=%d user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = %d\n", s.dir, s.port, b.port, connections)
	if err := os.WriteFile(b.conf(), []byte(conf), 0o644); err != nil { //nolint:gosec // the owner of the server reads it
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	b.Up()
	return b
}

func (b *Bouncer) conf() string { return filepath.Join(b.s.dir, "pgbouncer.ini") }

// DSN returns the data source name of the server through the PgBouncer.
func (b *Bouncer) DSN() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", b.port)
}

// Up starts the PgBouncer after Kill.
func (b *Bouncer) Up() {
	b.s.t.Helper()
	cmd := b.s.commandOf(b.path, "--quiet", b.conf())
	var log bytes.Buffer // read after the end
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		b.s.t.Fatal(err)
	}
	b.cmd = cmd
	deadline := time.Now().Add(time.Minute)
	for {
		err := b.s.run("psql", "--host", "127.0.0.1", "--port", strconv.Itoa(b.port), "--user", "postgres", "--command", "SELECT 1")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.Kill()
			b.s.t.Fatalf("%v\n%s", err, &log)
		}
	}
}

// Kill kills the PgBouncer, which resets the connections of its clients.
func (b *Bouncer) Kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	b.cmd = nil
}
