package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// traffic counts what a client asks and what its connections bring, with headers and
// as it is compressed and encrypted.
type traffic struct{ requests, bytes atomic.Int64 }

// count makes a client with cfg one that is counted.
func (t *traffic) count(cfg *rest.Config) {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // client-go's
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
