package postgres

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundSilence makes a connection fail when the server's host has answered nothing for 2
// deadlines, neither what was sent nor a keepalive. Statements whose time depends on the
// size of a collection have no other bound, and would keep all connections of the pool
// after a server has vanished without a reset.
func boundSilence(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var err error
	if controlErr := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(2*deadline.Milliseconds()))
	}); controlErr != nil {
		return controlErr
	}
	return err
}
