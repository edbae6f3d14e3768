package informer_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// throttled is a server behind a client that sends few requests: a whole list waits for
// its turn, of all servers that share it.
type throttled struct {
	*fakeapi.Server
	turn chan struct{} // holds one value
}

func (s throttled) wait(ctx context.Context) {
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(900 * time.Millisecond):
	case <-ctx.Done():
	}
}

func (s throttled) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.Limit != 1 && opts.Limit != reflector.WholeLimit {
		s.wait(ctx)
	}
	return s.Server.ListWithContext(ctx, opts)
}

func (s throttled) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		s.wait(ctx)
	}
	return s.Server.WatchWithContext(ctx, opts)
}

// TestInterruptedStartsConverge checks that a program that is ended two seconds after
// each start, because not all of its informers have synced, gets further each time: what
// one start has listed is warm in the next.
func TestInterruptedStartsConverge(t *testing.T) {
	const kinds = 6
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		turn <- struct{}{}
		var servers []*fakeapi.Server
		for i := range kinds {
			s := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
			if _, err := s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("of-", i)}}); err != nil {
				t.Fatal(err)
			}
			servers = append(servers, s)
		}
		start := func() (synced int) {
			db, err := bolt.Open(path, bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), klog.Logger{}), 2*time.Second)
			defer cancel()
			var running sync.WaitGroup
			var all []*informer.Informer
			for i, s := range servers {
				inf, err := informer.New(throttled{s, turn}, &corev1.ConfigMap{}, informer.Options{
					Backend: db, Scope: store.Scope{Resource: fmt.Sprint("kind", i), Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
				})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, inf)
				running.Go(func() { inf.RunWithContext(ctx) })
			}
			waitFor(1999 * time.Millisecond)
			for _, inf := range all {
				if inf.HasSynced() {
					synced++
				}
			}
			running.Wait()
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			return synced
		}
		last := 0
		for starts := 1; last < kinds; starts++ {
			synced := start()
			if synced <= last {
				t.Fatalf("start %d: %d of %d informers have synced, %d at the one before", starts, synced, kinds, last)
			}
			last = synced
		}
	})
}
