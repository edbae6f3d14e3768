package postgres

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/postgres/pgtest"
)

// TestBoundSilence checks that a connection over TCP ends if its server vanishes.
func TestBoundSilence(t *testing.T) {
	pg := pgtest.Start(t)
	cfg, err := parse(fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", pg.Port()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.PgConn().Conn().Close() })
	raw, err := conn.PgConn().Conn().(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ms int
	if controlErr := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	if want := int(2 * deadline.Milliseconds()); ms != want {
		t.Errorf("a connection waits %d ms for a server that has vanished, want %d", ms, want)
	}
	// A socket of this host has no such option.
	if cfg, err = parse(pg.DSN(), Options{}); err != nil {
		t.Fatal(err)
	}
	local, err := pgx.ConnectConfig(t.Context(), cfg.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	_ = local.PgConn().Conn().Close()
}
