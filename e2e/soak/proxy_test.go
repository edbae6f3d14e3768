package soak_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/informctl/informctl/e2e/soak"
)

// echo serves connections and sends back all bytes that it receives.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// link is a connection through the proxy.
type link struct {
	t *testing.T
	net.Conn
	err error // why Conn is nil
}

func newProxy(t *testing.T) *soak.Proxy {
	t.Helper()
	addr := echo(t)
	p, err := soak.NewProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *soak.Proxy) link {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return link{t, nil, err} // the connection was reset at once
	}
	t.Cleanup(func() { _ = c.Close() })
	return link{t, c, nil}
}

// passes sends bytes and waits until all have come back.
func (l link) passes(n int) {
	l.t.Helper()
	if got := l.send(n, time.Minute); got.err != nil || got.n != n {
		l.t.Fatalf("%d of %d bytes are back: %v", got.n, n, got.err)
	}
}

type result struct {
	n   int
	err error
}

// send sends bytes and reads until all have come back, the connection ends or the time is
// over.
func (l link) send(n int, patience time.Duration) result {
	l.t.Helper()
	if l.err != nil {
		return result{0, l.err}
	}
	if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
	written := make(chan error, 1)
	go func() {
		_, err := l.Write(sent)
		written <- err
	}()
	got := make([]byte, n)
	read, err := io.ReadFull(l, got)
	// The kernel reports a reset once, to either the reader or the writer.
	err = errors.Join(err, <-written)
	if !bytes.Equal(got[:read], sent[:read]) {
		l.t.Error("other bytes are back than were sent")
	}
	return result{read, err}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

const moment = 100 * time.Millisecond

func TestProxy(t *testing.T) {
	for _, c := range []struct {
		cut   soak.Cut
		ended func(result) bool // checks an existing connection
		fresh func(result) bool // checks a connection made during the cut
	}{
		{soak.Drop, func(r result) bool { return r.n == 0 && (errors.Is(r.err, io.EOF) || isReset(r.err)) }, whole},
		{soak.Reset, func(r result) bool { return r.n == 0 && isReset(r.err) }, whole},
		{soak.Refuse, func(r result) bool { return r.n == 0 && isReset(r.err) }, func(r result) bool { return r.n == 0 && isReset(r.err) }},
		{soak.Halve, half, half},
		{soak.Stall, func(r result) bool { return r.n == 0 && isTimeout(r.err) }, func(r result) bool { return r.n == 0 && isTimeout(r.err) }},
	} {
		t.Run(string(c.cut), func(t *testing.T) {
			p := newProxy(t)
			l := dial(t, p)
			l.passes(1 << 10)
			p.Break(c.cut)
			patience := time.Minute
			if c.cut == soak.Stall {
				patience = moment
			}
			if r := l.send(much, patience); !c.ended(r) {
				t.Errorf("a connection that was there passed %d bytes and ended with: %v", r.n, r.err)
			}
			if r := dial(t, p).send(much, patience); !c.fresh(r) {
				t.Errorf("a connection made during the cut passed %d bytes and ended with: %v", r.n, r.err)
			}
			p.Heal()
			dial(t, p).passes(much)
			if r := l.send(1<<10, moment); r.n > 0 {
				t.Errorf("a connection that was cut passed %d bytes after the cut", r.n)
			}
		})
	}
}

const much = 100 << 10

func whole(r result) bool { return r.n == much && r.err == nil }

func half(r result) bool { return r.n < much && r.err != nil && !isTimeout(r.err) }

// TestProxyDown checks that a connection passes nothing if the proxy cannot reach its
// server, and that no connection outlives its proxy.
func TestProxyDown(t *testing.T) {
	addr := echo(t)
	p, err := soak.NewProxy("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if r := dial(t, p).send(1, time.Minute); r.n > 0 || r.err == nil {
		t.Errorf("a connection to nobody passed %d bytes", r.n)
	}
	live, err := soak.NewProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	l := dial(t, live)
	l.passes(1)
	live.Close()
	if r := l.send(1, time.Minute); r.err == nil {
		t.Error("a connection outlived its proxy")
	}
}
