package informer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestRateLimit checks that many informers behind client-go's default limit of 5 requests
// per second, of which watches are free, start warm as fast as cold, and watch again soon
// after all watches have ended.
func TestRateLimit(t *testing.T) {
	const kinds = 60 // whose lists take 10 seconds
	for name, c := range map[string]struct {
		factory bool
		while   func(w *world) // between the cold and the warm start
	}{
		"unchanged":            {while: func(w *world) { w.server.Advance() }},
		"unchanged, a Factory": {factory: true, while: func(w *world) { w.server.Advance() }},
		"changed":              {while: func(w *world) { w.put("a", "2") }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				w.startKinds(kinds, c.factory, nil)
				c.while(w)
				began := time.Now()
				w.startKinds(kinds, c.factory, func() {
					if took := time.Since(began); took > time.Second {
						t.Errorf("the warm start took %v, want a second at most", took)
					}
					waitFor(20 * time.Second)
					w.server.CloseWatches()
					waitFor(8 * time.Second)
					if n := w.server.Watches(); n != kinds {
						t.Errorf("8s after all watches have ended there are %d, want %d", n, kinds)
					}
				})
			})
		})
	}
}

// startKinds runs informers for a number of kinds that share a client's limit of
// requests, until they have synced and then has returned.
func (w *world) startKinds(kinds int, withFactory bool, then func()) {
	w.Helper()
	db, err := bolt.Open(w.path, bolt.Options{})
	if err != nil {
		w.Fatal(err)
	}
	cfg := w.server.Config(runtime.ContentTypeJSON)
	cfg.QPS, cfg.RateLimiter = 0, flowcontrol.NewTokenBucketRateLimiter(rest.DefaultQPS, rest.DefaultBurst)
	api := cfg.Transport
	cfg.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
			return respond(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "one"}}, nil)
		}
		return api.RoundTrip(r)
	})
	var factory *informer.Factory
	if withFactory {
		if factory, err = informer.NewFactory(db, cfg, informer.FactoryOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), klog.Logger{}))
	done := make(chan struct{})
	var all []*informer.Informer
	for i := range kinds {
		resource := fmt.Sprint("kinds", i)
		lw, err := fakeapi.ListerWatcher(cfg, corev1.SchemeGroupVersion.WithResource(resource))
		if err != nil {
			w.Fatal(err)
		}
		var inf *informer.Informer
		if withFactory {
			inf = factory.NewInformer(lw, &corev1.ConfigMap{}, 0, nil).(*informer.Informer)
		} else if inf, err = informer.New(lw, &corev1.ConfigMap{}, informer.Options{Backend: db, Scope: store.Scope{Resource: resource}}); err != nil {
			w.Fatal(err)
		}
		if err := inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
			w.Fatal(err)
		}
		all = append(all, inf)
		go func() {
			inf.RunWithContext(ctx)
			done <- struct{}{}
		}()
	}
	for _, inf := range all {
		<-inf.HasSyncedChecker().Done()
		if s := inf.Status(); !s.Persisted {
			w.Errorf("%s is not persisted: %s", s.Scope.Resource, s.Memory)
		}
	}
	synctest.Wait()
	if then != nil {
		then()
	}
	cancel()
	for range all {
		<-done
	}
	if err := db.Close(); err != nil {
		w.Error(err)
	}
}

// TestProbeOfOverloadedServer checks that a probe which an overloaded server refuses with
// 429 and Retry-After is sent again after that time, and is not taken for one that the
// client's own rate limiter has refused, to be replaced by a streamed list at once.
func TestProbeOfOverloadedServer(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, n := range []string{"a", "b", "c"} {
			w.put(n, strings.Repeat("x", 1<<20)) // no small collection
		}
		var mu sync.Mutex
		var sent []string
		refuse := 0
		cfg := w.server.Config(runtime.ContentTypeJSON)
		cfg.QPS = 0 // client-go's default: a rate limiter
		next := cfg.Transport
		cfg.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			q := r.URL.Query()
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, r.URL.RawQuery)
			if q.Get("watch") == "" && refuse > 0 {
				refuse--
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}, "Content-Type": {"text/plain"}},
					Body: io.NopCloser(strings.NewReader("too many requests")), Request: r,
				}, nil
			}
			return next.RoundTrip(r)
		})
		informer.TakeEncoded(cfg)
		var err error
		if w.lw, err = fakeapi.ListerWatcher(cfg, corev1.SchemeGroupVersion.WithResource("configmaps")); err != nil {
			t.Fatal(err)
		}
		w.run(informer.Options{}).sync().end()
		mu.Lock()
		sent, refuse = nil, 1
		mu.Unlock()
		r := w.run(informer.Options{}).sync()
		r.end()
		for _, query := range sent {
			if strings.Contains(query, "sendInitialEvents") {
				t.Errorf("an overloaded server was sent a streamed list: %s", query)
			}
		}
	})
}
