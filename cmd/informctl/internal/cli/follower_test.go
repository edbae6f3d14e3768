package cli_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
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

// TestProgressEnds checks that run does not report the progress of a list for ever that
// the server refuses.
func TestProgressEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
		for range 1000 {
			refused := apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
			server.FailList(refused)
			server.FailWatch(refused)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		done, progressed := make(chan error), make(chan struct{})
		go func() { done <- cli.Progress(ctx, db, server, progressed) }()
		select {
		case <-progressed:
		case <-time.After(time.Hour):
			t.Error("progress is still shown")
		}
		cancel()
		if err := errors.Join(<-done, db.Close()); err != nil {
			t.Error(err)
		}
	})
}
