package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/clientcmd"
)

// meter is a TCP proxy that counts what the server sends to its clients. TLS
// passes through it, so the server's certificate is valid where the client finds
// the meter: both are at 127.0.0.1. What the server compressed counts as such; it
// compresses whole collections but not the changes of a watch.
type meter struct {
	server   string
	listener net.Listener
	sent     atomic.Int64

	stop    context.CancelFunc
	running sync.WaitGroup // ends with close
}

// newMeter returns a meter that listens. It must be closed.
func newMeter(server string) (*meter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for informctl: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &meter{server: server, listener: l, stop: cancel}
	m.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			m.running.Go(func() { m.forward(ctx, client) })
		}
	})
	return m, nil
}

// close cuts all connections.
func (m *meter) close() {
	m.stop()
	_ = m.listener.Close()
	m.running.Wait()
}

// take returns the bytes since it was last called.
func (m *meter) take() int64 { return m.sent.Swap(0) }

// forward blocks until either side has closed the connection or the meter is closed.
func (m *meter) forward(ctx context.Context, client net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", m.server)
	if err != nil {
		return // a closed connection tells the client
	}
	defer func() { _ = server.Close() }()
	context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client)
		cancel()
	})
	_, _ = io.Copy(client, io.TeeReader(server, (*counter)(&m.sent)))
	cancel()
	up.Wait()
}

// counter adds up what is written to it.
type counter atomic.Int64

func (c *counter) Write(p []byte) (int, error) {
	(*atomic.Int64)(c).Add(int64(len(p)))
	return len(p), nil
}

// writeKubeconfig writes the kubeconfig at from to to, with the meter in the server's place.
func (m *meter) writeKubeconfig(from, to string) error {
	cfg, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server = "https://" + m.listener.Addr().String()
	}
	if err := clientcmd.WriteToFile(*cfg, to); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
