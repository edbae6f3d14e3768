//go:build !linux

package postgres

import "syscall"

// boundSilence does nothing: the keepalives of Go find a host that is gone within
// minutes, unless something was sent that it has not received.
func boundSilence(string, string, syscall.RawConn) error { return nil }
