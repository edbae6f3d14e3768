package run_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cmd/run"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
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
		go func() { done <- run.Follow(ctx, db, server) }()
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
		go func() { done <- run.Progress(ctx, db, server, progressed) }()
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

// TestOutageLoggedOnce checks that an outage is one warning when the server is gone and
// one when it is back, whatever the number of followers, and that of an API that another
// server answers, too.
func TestOutageLoggedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var lines []string
		logger := logr.FromSlogHandler(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if line := string(b); strings.Contains(line, "reached") || strings.Contains(line, "trying again") {
				_, line, _ = strings.Cut(line, "level=")
				line, _, _ = strings.Cut(line, " because=")
				line, _, _ = strings.Cut(line, " after=")
				lines = append(lines, strings.TrimSpace(line))
			}
			return len(b), nil
		}), nil))
		want := func(what string, want ...string) {
			t.Helper()
			<-time.After(10 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			lines = nil
		}
		of := map[store.Scope]cache.ListerWatcherWithContext{}
		var servers []*fakeapi.Server
		for i := range 12 {
			s := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
			scope := store.Scope{Cluster: "one", Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: fmt.Sprint("n", i)}
			if i == 0 {
				scope.Kind.Group, scope.Form = "metrics.k8s.io", store.Unstructured
			}
			servers = append(servers, s)
			of[scope] = s
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := make(chan error)
		go func() { done <- run.FollowAll(ctx, db, of) }()
		want("at the start")
		gone := `WARN msg="Server cannot be reached, trying again" server=https://test`
		back := `WARN msg="Server is reached again" server=https://test`
		for range 2 {
			for _, s := range servers {
				s.Down()
			}
			want("down", gone)
			for _, s := range servers {
				s.Up()
			}
			want("up", back)
		}
		for range 20 {
			servers[0].FailWatch(apierrors.NewServiceUnavailable("no"))
		}
		servers[0].CloseWatches()
		<-time.After(time.Hour)
		want("an API", `WARN msg="An API cannot be reached, trying again" api=metrics.k8s.io/v1`, `WARN msg="An API is reached again" api=metrics.k8s.io/v1`)
		servers[3].Down()
		want("down", gone)
		cancel()
		if err := errors.Join(<-done, db.Close()); err != nil {
			t.Error(err)
		}
		want("ended") // nobody is reached again
	})
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestOnceEndsAfterFailures checks that --once ends with an error if the server fails a
// resource in a way that may last, as a webhook that converts its objects and is down.
func TestOnceEndsAfterFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
		for range 100 {
			err := apierrors.NewInternalError(errors.New("conversion webhook failed"))
			server.FailList(err)
			server.FailWatch(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := run.FollowOnce(ctx, db, server); err == nil || !strings.Contains(err.Error(), "conversion webhook failed") || ctx.Err() != nil {
			t.Errorf("got %v", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
