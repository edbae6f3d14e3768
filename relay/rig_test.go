package relay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// oneKey is a codec.KeyProvider.
type oneKey struct{ key codec.Key }

func (k oneKey) Keys(context.Context) ([]codec.Key, error) { return []codec.Key{k.key}, nil }

// filled opens a scope of a file and lists objects into it.
func filled(t *testing.T, db *bolt.DB, scope store.Scope, example runtime.Object, objects ...runtime.Object) Collection {
	t.Helper()
	c, err := codec.For(example)
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(scope, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	bolttest.List(t, s, "1000", objects...)
	return Collection{Scope: scope, Reader: s, Live: true}
}

// file returns a file with pods, a config map and a secret.
func file(t *testing.T, pods int) Collections {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{Keys: oneKey{codec.NewKey()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	var all []runtime.Object
	for i := range pods {
		p := testobjects.Pod(i, 1)
		p.ResourceVersion = fmt.Sprint(1 + i%1000)
		all = append(all, p)
	}
	scope := func(resource, kind string) store.Scope {
		return store.Scope{Resource: resource, Kind: corev1.SchemeGroupVersion.WithKind(kind)}
	}
	cm, secret := testobjects.ConfigMap(1, 1), testobjects.Secret(1, 1, 10)
	cm.ResourceVersion, secret.ResourceVersion = "7", "8"
	return Collections{
		filled(t, db, scope("pods", "Pod"), &corev1.Pod{}, all...),
		filled(t, db, scope("configmaps", "ConfigMap"), &corev1.ConfigMap{}, cm),
		filled(t, db, scope("secrets", "Secret"), &corev1.Secret{}, secret),
	}
}

// serving serves collections until the test ends, and returns the listener and the
// configuration of a client.
func serving(t *testing.T, from Source, o Options, kubeconfig string) (*Local, *rest.Config) {
	t.Helper()
	_, l, config := servingServer(t, from, o, kubeconfig)
	return l, config
}

// servingServer is serving that returns the server, too.
func servingServer(t *testing.T, from Source, o Options, kubeconfig string) (*Server, *Local, *rest.Config) {
	t.Helper()
	l, err := Listen(t.Context(), 0, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	o.Token = l.Token
	s, err := New(from, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(ctx, s) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return s, l, config
}

// ask sends a request.
func ask(t *testing.T, c *http.Client, config *rest.Config, method, path string, change func(*http.Request)) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
