package cli_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeConsumers makes a file with two consumers. The queue of one has a key that waits,
// one that is delayed and one that has failed.
func writeConsumers(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fillScope(t, db, nil, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}, pod("a", "one", ""))
	open := func(name, version string) *durable.Consumer {
		c, err := durable.Open(db, name, durable.Options{Version: version})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	widgets, gadgets := open("widgets", "3"), open("gadgets", "")
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](time.Hour, time.Hour)
	q := durable.NewQueue(widgets, limiter, durable.ObjectNames)
	q.Add(cache.ObjectName{Namespace: "a", Name: "waits"})
	q.AddAfter(cache.ObjectName{Namespace: "a", Name: "later"}, time.Hour)
	q.AddRateLimited(cache.ObjectName{Namespace: "a", Name: "failed"})
	q.ShutDown()
	if err := errors.Join(widgets.Close(), gadgets.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestConsumersOfAProcess checks that a process is asked for its consumers.
func TestConsumersOfAProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, _ := hold(t, path)
	c, err := durable.Open(db, "widgets", durable.Options{Version: "3", Elected: make(chan struct{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the file is closed
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	q := durable.NewQueue(c, workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](), durable.ObjectNames)
	defer q.ShutDown()
	q.Add(cache.ObjectName{Name: "a"})
	got := say(t.Context(), "consumers", "--db", path, "--no-headers")
	if fields := strings.Join(strings.Fields(got.Out), " "); fields != "widgets standby 3 0 0 0 1 0 0 0" || got.Code != 0 {
		t.Errorf("it says %q, and %q, and ends with %d", got.Out, got.Err, got.Code)
	}
}

// TestStatusOfConsumers checks that status prints the consumers of a process below its
// scopes, and those of a file that nobody has.
func TestStatusOfConsumers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stopped.db")
	writeConsumers(t, path)
	got := say(t.Context(), "status", "--db", path)
	if got.Code != 1 || !strings.Contains(got.Out, "gadgets   stopped") || !strings.Contains(got.Err, "no process answers for "+path) {
		t.Errorf("it says %q, and %q, and ends with %d", got.Out, got.Err, got.Code)
	}

	path = filepath.Join(dir, "informers.db")
	db, _ := hold(t, path)
	c, err := durable.Open(db, "widgets", durable.Options{Version: "3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the file is closed
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	got = say(t.Context(), "status", "--db", path)
	if !strings.Contains(got.Out, "\nNAME      STATE") || !strings.Contains(got.Out, "\nwidgets   active") {
		t.Errorf("it says %q, and %q", got.Out, got.Err)
	}
}

// TestMissingOfStopped checks that of a consumer that has stopped no handler is missing,
// in each form.
func TestMissingOfStopped(t *testing.T) {
	for format, want := range map[string]string{"table": "gone stopped 1 1 0 0 0 0 0 0", "json": `"scopes": [ { "id": "", "handlers": 0 } ]`} {
		found := []durable.Status{{Name: "gone", State: durable.Stopped, Version: "1", Scopes: []durable.ScopeStatus{{Missing: 1}}}}
		var out strings.Builder
		if err := cli.PrintConsumers(&out, format, found); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, want) {
			t.Errorf("%s: %s", format, text)
		}
		if found[0].Scopes[0].Missing != 1 {
			t.Error("what was found has changed")
		}
	}
}
