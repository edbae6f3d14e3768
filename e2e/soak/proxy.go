package soak

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Proxy forwards TCP connections to one address and can break them. Make one with
// [NewProxy].
//
// All methods are safe for concurrent use. Only Close blocks.
type Proxy struct {
	target   string
	listener net.Listener
	// running counts the goroutine that accepts connections, which Close ends, and two
	// goroutines per connection, which end when both sides of the connection are closed.
	running sync.WaitGroup

	// mu protects the fields below and those of every link.
	mu     sync.Mutex
	links  map[*link]struct{}
	cut    Cut
	closed bool
}

// Cut is a way to break connections.
type Cut string

// The cuts. Drop and Reset affect existing connections; the others also affect
// connections that are made until Heal.
const (
	Drop   Cut = "drop"   // closed in order
	Reset  Cut = "reset"  // closed by RST
	Refuse Cut = "refuse" // closed by RST; new connections are refused
	Halve  Cut = "halve"  // closed after some more bytes from the server
	Stall  Cut = "stall"  // nothing passes, even after Heal; only the client can close it
)

// Cuts are all ways to break connections.
var Cuts = []Cut{Drop, Reset, Refuse, Halve, Stall}

// halfAtMost is the maximal number of bytes from the server that a halved connection
// passes. The connection may end in a handshake, in the headers or in the body of a
// response.
const halfAtMost = 16 << 10

// link is one connection through the proxy.
type link struct {
	client, server *net.TCPConn
	stalled        bool
	halved         bool
	left           int // bytes from the server that a halved link still passes
}

// NewProxy listens on a free port of the loopback interface and forwards to target, a
// host and port.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for connections to %s: %w", target, err)
	}
	p := &Proxy{target: target, listener: l, links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the host and port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close breaks all connections and returns when all goroutines of the proxy have ended.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// Break breaks connections. It replaces the previous cut.
func (p *Proxy) Break(c Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = c
	for l := range p.links {
		p.breakLocked(l)
	}
}

// Heal ends the cut for new connections.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = ""
}

// breakLocked applies the cut to an open link. A stalled link stays stalled, even if the
// cut changes.
func (p *Proxy) breakLocked(l *link) {
	switch {
	case l.stalled:
	case p.cut == Drop:
		l.close()
	case p.cut == Reset, p.cut == Refuse:
		l.reset()
	case p.cut == Halve:
		l.halved, l.left = true, rand.IntN(halfAtMost)
	case p.cut == Stall:
		l.stalled = true
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.connect(client.(*net.TCPConn)) })
	}
}

// connect handles one connection.
func (p *Proxy) connect(client *net.TCPConn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn)}
	p.mu.Lock()
	p.links[l] = struct{}{}
	switch {
	case p.closed:
		l.reset()
	case p.cut != Drop && p.cut != Reset:
		p.breakLocked(l)
	}
	p.mu.Unlock()
	p.running.Go(func() { p.toClient(l) })
	p.toServer(l)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// toServer forwards the client's bytes until either side is closed. It continues to read
// from a stalled link to notice when the client gives up.
func (p *Proxy) toServer(l *link) {
	defer l.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := l.client.Read(buf)
		if err == nil && !p.isStalled(l) {
			_, err = l.server.Write(buf[:n])
		}
		if err != nil && (n == 0 || !p.isStalled(l)) {
			return
		}
	}
}

// toClient forwards the server's bytes.
func (p *Proxy) toClient(l *link) {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buf)
		pass, more := p.admit(l, n)
		if pass > 0 {
			if _, err := l.client.Write(buf[:pass]); err != nil {
				more = false
			}
		}
		if err == nil && more {
			continue
		}
		if !p.isStalled(l) {
			l.close()
		}
		return
	}
}

// admit returns how many of n bytes from the server pass, and whether more may follow.
func (p *Proxy) admit(l *link, n int) (pass int, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.stalled:
		return 0, true
	case !l.halved:
		return n, true
	}
	pass = min(n, l.left)
	l.left -= pass
	return pass, l.left > 0
}

func (p *Proxy) isStalled(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.stalled
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// reset closes the client's side by RST.
func (l *link) reset() {
	_ = l.client.SetLinger(0)
	l.close()
}
