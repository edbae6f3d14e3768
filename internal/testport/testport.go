// Package testport finds ports for servers of tests that other processes begin.
package testport

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// Listen listens on this machine at a port that the kernel gives to nobody who asks for
// any port: those begin at 32768 on Linux. So it stays free while its server is down.
func Listen() (l net.Listener, err error) {
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(12_000)))
		if l, err = net.Listen("tcp", address); err == nil { //nolint:noctx // at once
			return l, nil
		}
	}
	return nil, err
}
