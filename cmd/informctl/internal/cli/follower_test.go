package cli_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store/bolt"
)

// TestFollowerLogsOnce checks that a client that may list but not watch logs that once,
// however often it retries, and again after a success.
func TestFollowerLogsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := 0
		logger := funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(args, "No permission") {
				told++
			}
		}, funcr.Options{})
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return told
		}
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
		refuse := func() {
			server.FailWatch()
			for range 5 {
				server.FailWatch(apierrors.NewForbidden(corev1.Resource("pods"), "", nil))
			}
			server.CloseWatches()
		}
		refuse()
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := make(chan error)
		go func() { done <- cli.Follow(ctx, db, server) }()
		<-time.After(30 * time.Minute)
		if n := count(); n != 1 || server.Watches() != 1 {
			t.Errorf("told %d times, want once; %d watches", n, server.Watches())
		}
		refuse()
		<-time.After(30 * time.Minute)
		if n := count(); n != 2 || server.Watches() != 1 {
			t.Errorf("told %d times, want twice; %d watches", n, server.Watches())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
