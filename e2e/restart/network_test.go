package restart_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/store"
)

// slowLink is a TCP proxy that limits the bytes per second from the server to all of its
// clients together.
type slowLink struct {
	listener net.Listener
	running  sync.WaitGroup
}

func newSlowLink(t *testing.T, server string, bytesPerSecond int) *slowLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowLink{listener: l}
	limit := rate.NewLimiter(rate.Limit(bytesPerSecond), 16<<10)
	ctx, cancel := context.WithCancel(t.Context())
	s.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() { s.forward(ctx, client, server, limit) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		s.running.Wait()
	})
	return s
}

func (s *slowLink) forward(ctx context.Context, client net.Conn, server string, limit *rate.Limiter) {
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		_ = client.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = upstream.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(upstream, client)
		_ = upstream.Close()
	})
	both.Go(func() {
		defer func() { _ = client.Close() }()
		buf := make([]byte, 8<<10)
		for {
			n, err := upstream.Read(buf)
			if n > 0 && limit.WaitN(ctx, n) == nil {
				_, err = client.Write(buf[:n])
			}
			if err != nil {
				return
			}
		}
	})
	both.Wait()
}

// throughLink sets the address of the proxy in the child's kubeconfig.
func (w *world) throughLink(s *slowLink) {
	w.t.Helper()
	cfg, err := clientcmd.LoadFromFile(w.cp.Kubeconfig())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		u, err := url.Parse(cluster.Server)
		if err != nil {
			w.t.Fatal(err)
		}
		u.Host = s.listener.Addr().String()
		cluster.Server = u.String()
	}
	if err := clientcmd.WriteToFile(*cfg, w.dir+"/kubeconfig"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) address() string {
	u, err := url.Parse(w.cp.Config().Host)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.Host
}

// TestSlowLink checks that an informer is not synced before the last missed change is in
// the store, although the missed changes do not fit into one short watch and the watch
// may end cleanly without a bookmark.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	configmaps := collections[1]
	r := w.client.Resource(configmaps.resource).Namespace("default")
	const missed = 300
	for i := range missed {
		w.create(configmaps, configmaps.object(i, "default", fmt.Sprintf("big-%d", i)))
	}
	c := w.start()
	c.sync()
	c.atRest()
	c.stop()
	payload, err := json.Marshal(map[string]any{"data": map[string]string{"payload": strings.Repeat("0123456789abcdef", 60<<10/16)}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range missed {
		if _, err := r.Patch(t.Context(), fmt.Sprintf("big-%d", i), "application/merge-patch+json", payload, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.throughLink(newSlowLink(t, w.address(), 1<<20))
	begin := time.Now()
	c = w.start()
	c.sync()
	took := time.Since(begin)
	t.Logf("synced after %v", took)
	for _, form := range []store.Form{store.Typed, store.Unstructured} {
		got, want := c.report()[configmaps.name(form)], w.server(configmaps, form)
		stale := 0
		for key, s := range want {
			if got.Store[key] != s {
				stale++
			}
		}
		if stale > 0 {
			t.Errorf("%s: synced with %d of %d objects older than the server's", configmaps.name(form), stale, len(want))
		}
		if got.Lists > 0 {
			t.Errorf("%s: listed on a slow link", configmaps.name(form))
		}
	}
	if took < 5*time.Second {
		t.Errorf("synced after %v: the link was not slow, the test proves nothing", took)
	}
}

// TestServerDown checks a start while the server is down: Loaded serves the stored
// objects, CaughtUp waits, and both recover.
func TestServerDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	c := w.start()
	c.sync()
	c.atRest()
	c.stop()
	if err := w.cp.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = w.start(childDir + "_LOADED=yes")
	c.sync()
	for name, r := range c.report() {
		if len(r.Store) == 0 || !r.Synced {
			t.Errorf("%s: Loaded serves %d objects, synced %v", name, len(r.Store), r.Synced)
		}
	}
	c.kill()
	c = w.start()
	var seen string
	c.ask("await default/sentinel-1", &seen)
	for name, r := range c.report() {
		if r.Synced {
			t.Errorf("%s: CaughtUp synced without a server", name)
		}
		if len(r.Store) == 0 {
			t.Errorf("%s: CaughtUp does not show what is stored", name)
		}
	}
	if err := w.cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.sync()
	c.atRest()
}
