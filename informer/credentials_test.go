package informer_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// withToken returns a transport that sets the token of requests. After a 401 it sets what
// renewed returns, as an exec plugin does.
func withToken(token string, renewed func() string) func(http.RoundTripper) http.RoundTripper {
	var now atomic.Value
	now.Store(token)
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+now.Load().(string))
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusUnauthorized {
				now.Store(renewed())
			}
			return resp, err
		})
	}
}

// TestCredentialsAfterFactory checks that the identity of the cluster is asked for with
// the credentials of the informer's client, which come to the configuration after
// NewFactory, at the start and later.
func TestCredentialsAfterFactory(t *testing.T) {
	for name, renewed := range map[string]bool{"": false, "renewed after a 401": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a := &address{}
				a.set(w.server, "one", nil)
				w.put("a", "1")
				var lines []string
				var valid atomic.Value
				valid.Store("first")
				below := roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
						return (&http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}), nil
					}
					return a.RoundTrip(r)
				})
				above := withToken("first", func() string { return valid.Load().(string) })
				r := w.runBehind(below, above, informer.FactoryOptions{}, &lines)
				waitFor(time.Second)
				if s := r.inf.Status(); !s.Synced || !s.Persisted || s.Scope.Cluster != "kube-system/one" {
					t.Errorf("a second after the start: synced %t, persisted %t in the cluster %q, %s", s.Synced, s.Persisted, s.Scope.Cluster, s.Behind)
				}
				if renewed {
					valid.Store("second")
				}
				w.server.CloseWatches()
				w.put("b", "1")
				waitFor(time.Minute)
				if keys := r.inf.GetStore().ListKeys(); len(keys) != 2 {
					t.Errorf("a minute after its watch has ended, the informer holds %q; %s", keys, r.inf.Status().LastError)
				}
				r.end()
			})
		})
	}
}

// TestOnlyIdentityRefused checks informers of a server that refuses nothing but to
// identify itself: each goes on after some tries, and says how.
func TestOnlyIdentityRefused(t *testing.T) {
	for name, code := range map[string]int{"401": 401, "403": 403, "429": 429, "500": 500, "502": 502, "503": 503, "504": 504} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a := &address{}
				a.set(w.server, "one", nil)
				w.put("a", "1")
				var lines []string
				var refused atomic.Bool
				identity := refusingAll(a, code, &refused)
				below := roundTrip(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/configmaps") {
						return a.RoundTrip(r)
					}
					return identity.RoundTrip(r)
				})
				refused.Store(true)
				r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines)
				waitFor(2 * time.Minute)
				if s := r.inf.Status(); code == http.StatusForbidden {
					if !s.Synced || !s.Persisted || !strings.HasPrefix(s.Scope.Cluster, "host/") {
						t.Errorf("cold: synced %t, persisted %t in the cluster %q", s.Synced, s.Persisted, s.Scope.Cluster)
					}
					r.end()
					return // that is an identity
				} else if !s.Synced || s.Persisted || s.Memory == "" || !contains(lines, "NOT PERSISTED") {
					t.Errorf("cold: synced %t, persisted %t: %q, %s", s.Synced, s.Persisted, s.Memory, s.Behind)
				}
				r.end()

				refused.Store(false)
				r = w.runBehind(below, nil, informer.FactoryOptions{}, &lines).sync()
				refused.Store(true)
				since := len(w.server.Requests())
				for _, name := range []string{"b", "c"} {
					w.server.CloseWatches()
					waitFor(2 * time.Minute)
					w.put(name, "1")
					waitFor(time.Second)
				}
				if keys := r.inf.GetStore().ListKeys(); len(keys) != 3 || len(w.lists(since)) > 0 {
					t.Errorf("running: the informer holds %q after the lists %q; %s", keys, w.lists(since), r.inf.Status().LastError)
				}
				r.end()

				r = w.runBehind(below, nil, informer.FactoryOptions{}, &lines)
				w.put("d", "1")
				waitFor(2 * time.Minute)
				if s := r.inf.Status(); !s.Synced || s.Objects != 4 || s.Checkpoint.RV != "" || !contains(lines, "Going on without knowing") {
					t.Errorf("warm: synced %t, %d objects, stored RV %q; %s", s.Synced, s.Objects, s.Checkpoint.RV, s.Behind)
				}
				r.end()
			})
		})
	}
}

// TestErrorHandlerBeforeScope checks that the watch error handler is called while an
// informer waits for what it needs to open its scope.
func TestErrorHandlerBeforeScope(t *testing.T) {
	for name, path := range map[string]string{"its credentials": "/configmaps", "the identity of the cluster": "/kube-system"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a := &address{}
				a.set(w.server, "one", nil)
				w.put("a", "1")
				var lines []string
				var fails atomic.Bool
				fails.Store(true)
				failing := func(next http.RoundTripper) http.RoundTripper {
					return roundTrip(func(r *http.Request) (*http.Response, error) {
						if fails.Load() && strings.HasSuffix(r.URL.Path, path) {
							return nil, errOnPurpose
						}
						return next.RoundTrip(r)
					})
				}
				var below http.RoundTripper = a
				above := failing
				if path == "/kube-system" {
					below, above = failing(a), nil
				}
				r := w.runBehind(below, above, informer.FactoryOptions{}, &lines)
				waitFor(5 * time.Second)
				if heard, s := r.heard(), r.inf.Status(); !contains(heard, errOnPurpose.Error()) || !strings.Contains(s.LastError, errOnPurpose.Error()) || s.Errors != len(heard) {
					t.Errorf("the handler has received %q, and the status has %q after %d errors", heard, s.LastError, s.Errors)
				}
				fails.Store(false)
				r.sync()
				waitFor(time.Second)
				if s := r.inf.Status(); !s.Persisted || s.LastError != "" {
					t.Errorf("persisted %t, last error %q", s.Persisted, s.LastError)
				}
				r.end()
			})
		})
	}
}

// TestWatchOutsideTransport checks that an informer runs, in memory, whose ListerWatcher
// does not use the factory's transport and refuses to watch.
func TestWatchOutsideTransport(t *testing.T) {
	inBubble(t, func(w *world) {
		db := w.open()
		f, err := informer.NewFactory(db, &rest.Config{Host: "http://api.example"}, informer.FactoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inf := f.NewInformer(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, errors.New("cannot be watched")
			},
		}, &corev1.ConfigMap{}, 0, nil)
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.RunWithContext(ctx)
		}()
		waitFor(10 * time.Minute)
		if !inf.HasSynced() {
			t.Error("the informer has not synced")
		}
		cancel()
		<-done
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
