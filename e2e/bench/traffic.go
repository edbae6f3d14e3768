package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// traffic counts a client's requests and the bytes that its connections receive,
// including headers and as compressed and encrypted.
type traffic struct{ requests, bytes atomic.Int64 }

// count makes the clients of cfg count their traffic.
func (t *traffic) count(cfg *rest.Config) {
	// These are the values of client-go.
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, t}, nil
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return countedRequests{next, t} })
}

type countedConn struct {
	net.Conn
	traffic *traffic
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.bytes.Add(int64(n))
	return n, err
}

type countedRequests struct {
	next    http.RoundTripper
	traffic *traffic
}

// RoundTrip implements http.RoundTripper.
func (c countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	c.traffic.requests.Add(1)
	return c.next.RoundTrip(r)
}
