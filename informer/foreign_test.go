package informer_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
)

// TestContentOfAnotherClusterThatGoesBack checks that the next process drops the objects
// of another cluster, although that cluster went back in history and this process has
// ended during the list of it.
func TestContentOfAnotherClusterThatGoesBack(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		w2 := &world{T: t, server: other}
		for range 20 {
			other.Advance()
		}
		w2.put("foreign", "1")
		back := other.RV()
		w2.put("x", "1")
		var lines []string
		var stuck atomic.Bool
		rt := roundTrip(func(r *http.Request) (*http.Response, error) {
			q := r.URL.Query()
			if stuck.Load() && strings.HasSuffix(r.URL.Path, "/configmaps") && q.Get("watch") == "" && q.Get("limit") == "500" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return a.RoundTrip(r)
		})
		r := w.runBehind(rt, nil, informer.FactoryOptions{}, &lines).sync()
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(2 * time.Minute)
		if err := other.Rewind(back); err != nil {
			t.Fatal(err)
		}
		stuck.Store(true)
		other.CloseWatches()
		waitFor(2 * time.Minute)
		if keys := r.inf.GetStore().ListKeys(); !slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "foreign") }) {
			t.Fatalf("nothing of the other cluster is stored, but %q: this tests nothing", keys)
		}
		r.end()
		waitFor(time.Minute)

		a.set(w.server, "one", nil)
		r = w.runBehind(rt, nil, informer.FactoryOptions{}, &lines)
		l := &log{}
		handle(w, l)(r.inf)
		waitFor(10 * time.Second)
		if told := l.take(); contains(told, "foreign") {
			t.Errorf("handlers of the first cluster were told %q; %+v", told, r.inf.Status().Checkpoint)
		}
		r.end()
		waitFor(time.Minute)
	})
}

// TestNextInformerAfterClusterReplaced checks that an informer which starts after another
// one of its Factory has found another cluster has the scope of that cluster.
func TestNextInformerAfterClusterReplaced(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		(&world{T: w.T, server: other}).put("b", "1")
		db := w.open()
		cfg := &rest.Config{Host: "http://api.example", Transport: a}
		factory, client := clientOf(w, db, cfg, informer.FactoryOptions{})
		var lines []string
		r := &run{w: w, done: make(chan struct{})}
		r.runClient(factory, client, &lines)
		r.sync()
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(2 * time.Minute)

		lw := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "", func(opts *metav1.ListOptions) {
			opts.LabelSelector = "app"
		})
		next := &run{w: w, done: make(chan struct{})}
		next.inf = factory.NewInformer(withoutStreams{lw}, &corev1.ConfigMap{}, 0, nil).(*informer.Informer)
		next.start()
		next.sync()
		if scope := next.inf.Scope(); scope.Cluster != "kube-system/two" {
			w.Errorf("the next informer has the scope of cluster %q", scope.Cluster)
		}
		if s := next.inf.Status(); !s.Persisted || s.Checkpoint.RV != other.RV() {
			w.Errorf("the next informer: %+v", s)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if err := next.inf.NotOlderThan(ctx, other.RV()); err != nil {
			w.Error(err)
		}
		if scope := r.inf.Scope(); scope.Cluster != "kube-system/one" {
			w.Errorf("the first informer has the scope of cluster %q", scope.Cluster)
		}
		next.end()
		r.end()
		if err := db.Close(); err != nil {
			w.Error(err)
		}
	})
}
