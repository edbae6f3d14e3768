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

// meter is a TCP proxy that counts the bytes that the server sends to its clients. TLS
// passes through it. The server's certificate is valid for the meter too, because both
// are at 127.0.0.1. Compressed data is counted in its compressed size: the server
// compresses whole collections but not the events of a watch.
type meter struct {
	server   string
	listener net.Listener
	sent     atomic.Int64

	stop    context.CancelFunc
	running sync.WaitGroup // goroutines, which end with close
}

// newMeter returns a meter that listens. The caller must close it.
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

// take returns the number of bytes since the last call.
func (m *meter) take() int64 { return m.sent.Swap(0) }

// forward blocks until either side has closed the connection or the meter is closed.
func (m *meter) forward(ctx context.Context, client net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", m.server)
	if err != nil {
		return // the client notices the closed connection
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

// counter counts the bytes that are written to it.
type counter atomic.Int64

func (c *counter) Write(p []byte) (int, error) {
	(*atomic.Int64)(c).Add(int64(len(p)))
	return len(p), nil
}

// writeKubeconfig copies the kubeconfig from one path to another and replaces the
// server's address with that of the meter.
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
