package manager_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/informctl/informctl/store"
)

// TestOptions checks the options of a cache that do not select objects, for each form of
// object, on a cold and on a warm file.
func TestOptions(t *testing.T) {
	w := theWorld(t)
	for _, row := range optionRows {
		for _, form := range forms {
			t.Run(row.name+"/"+form.String(), func(t *testing.T) {
				t.Parallel()
				s := setup{options: row.options, transformVersion: "1"}
				w.coldAndWarm(t, s, func(t *testing.T, c *session) { row.check(t, reader{c, shape{}, form}) })
			})
		}
	}
}

var optionRows = []struct {
	name    string
	options crcache.Options
	check   func(*testing.T, reader)
}{
	{name: "a transform of one type and one for all others", options: crcache.Options{
		DefaultTransform: annotate("default"),
		ByObject:         map[client.Object]crcache.ByObject{&corev1.Pod{}: {Transform: annotate("explicit")}},
	}, check: func(t *testing.T, r reader) {
		wantTransformed(t, r, pods, "", "explicit")
		wantTransformed(t, r, services, "", "default")
		if got := r.get(t, services, "default", "kubernetes").GetAnnotations()["transformed"]; got != "default" {
			t.Errorf("got %q", got)
		}
	}},
	{name: "a transform of a namespace comes before the type's and the default one", options: crcache.Options{
		DefaultTransform: annotate("default"),
		DefaultNamespaces: map[string]crcache.Config{
			"one": {Transform: annotate("one")}, "two": {}, crcache.AllNamespaces: {},
		},
		ByObject: map[client.Object]crcache.ByObject{&corev1.Pod{}: {
			Transform:  annotate("type"),
			Namespaces: map[string]crcache.Config{"one": {}, "two": {Transform: annotate("two")}},
		}},
	}, check: func(t *testing.T, r reader) {
		wantTransformed(t, r, pods, "one", "type")
		wantTransformed(t, r, pods, "two", "two")
		wantTransformed(t, r, services, "one", "one")
		wantTransformed(t, r, services, "two", "default")
		wantTransformed(t, r, services, "default", "default")
	}},
	{name: "managed fields are stripped", options: crcache.Options{DefaultTransform: crcache.TransformStripManagedFields()}, check: func(t *testing.T, r reader) {
		for _, obj := range r.items(t, pods) {
			want := known(t, r, obj.GetNamespace(), obj.GetName())
			if len(want.GetManagedFields()) == 0 {
				t.Errorf("%s: the server has no managed fields", keyOf(obj))
			}
			want.SetManagedFields(nil)
			wantSame(t, keyOf(obj), want, obj)
		}
	}},
	{name: "a reader fails where there is no informer", options: crcache.Options{ReaderFailOnMissingInformer: true}, check: func(t *testing.T, r reader) {
		var missing *crcache.ErrResourceNotCached
		if err := r.List(t.Context(), newList(t, r.form, services)); !errors.As(err, &missing) || missing.GVK != services {
			t.Errorf("List: %v", err)
		}
		if err := r.getError(t, services, "default", "kubernetes"); !errors.As(err, &missing) {
			t.Errorf("Get: %v", err)
		}
		if _, err := r.GetInformer(t.Context(), r.object(t, services)); err != nil {
			t.Fatal(err)
		}
		r.wantKeys(t, services, []string{"default/kubernetes", "one/service-1", "two/service-2"})
		r.get(t, services, "default", "kubernetes")
		if err := r.RemoveInformer(t.Context(), r.object(t, services)); err != nil {
			t.Fatal(err)
		}
		if err := r.getError(t, services, "default", "kubernetes"); !errors.As(err, &missing) {
			t.Errorf("after RemoveInformer: %v", err)
		}
	}},
	{name: "a reader that fails where there is no informer waits until one has synced", options: crcache.Options{ReaderFailOnMissingInformer: true}, check: checkReadsWait},
	{name: "a handler is told of every object each sync period", options: crcache.Options{SyncPeriod: new(1200 * time.Millisecond)}, check: checkResync},
	{name: "a sync period of one type", options: byPod(crcache.ByObject{SyncPeriod: new(1200 * time.Millisecond)}), check: checkResync},
	{name: "a sync period of one namespace", options: crcache.Options{DefaultNamespaces: in("two", crcache.Config{SyncPeriod: new(1200 * time.Millisecond)})}, check: checkResync},
	{name: "sharing what is held of one type only", options: crcache.Options{
		DefaultUnsafeDisableDeepCopy: new(true),
		ByObject:                     map[client.Object]crcache.ByObject{&corev1.Pod{}: {UnsafeDisableDeepCopy: new(false)}},
	}, check: func(t *testing.T, r reader) {
		for _, kind := range []schema.GroupVersionKind{services, pods} {
			namespace, name := "two", "pod-2"
			if kind == services {
				namespace, name = "default", "kubernetes"
			}
			first, second := r.get(t, kind, namespace, name), r.get(t, kind, namespace, name)
			if shared := kind != pods; shared != (address(first) == address(second)) {
				t.Errorf("%s is shared: %t", keyOf(first), !shared)
			}
		}
	}},
}

// annotate returns a transform that does not change objects that are already transformed.
func annotate(value string) cache.TransformFunc {
	return func(in any) (any, error) {
		obj, err := meta.Accessor(in)
		if err != nil {
			return nil, err
		}
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations["transformed"] == "" {
			annotations["transformed"] = value
			obj.SetAnnotations(annotations)
		}
		return in, nil
	}
}

func wantTransformed(t *testing.T, r reader, kind schema.GroupVersionKind, namespace, want string) {
	t.Helper()
	items := r.items(t, kind, client.InNamespace(namespace))
	if len(items) == 0 {
		t.Errorf("nothing in %q", namespace)
	}
	for _, obj := range items {
		if got := obj.GetAnnotations()["transformed"]; got != want {
			t.Errorf("%s was transformed by %q, want %q", keyOf(obj), got, want)
		}
	}
}

// checkResync checks that resyncs repeatedly send the same object as old and as new.
func checkResync(t *testing.T, r reader) {
	calls := handle(t, r.informer(t), "pod-2")
	wantSame(t, "first call", "add", next(t, calls).what)
	for range 2 {
		call := next(t, calls)
		if call.what != "update" || call.old != call.obj {
			t.Errorf("got %+v, want an update with one object", call)
		}
	}
}

// TestTransformWithoutVersion checks that the results of a transform without a version
// are not used again: a restart lists, and has the same objects.
func TestTransformWithoutVersion(t *testing.T) {
	w := theWorld(t)
	path := t.TempDir() + "/informers.db"
	for _, value := range []string{"first", "second"} {
		t.Run(value, func(t *testing.T) {
			c := w.open(t, path, setup{options: crcache.Options{DefaultTransform: annotate(value)}})
			for _, form := range forms {
				wantTransformed(t, reader{c, shape{}, form}, pods, "two", value)
			}
			c.stop()
			if got := w.lists(t, t.Name()); len(got) != len(forms) {
				t.Errorf("%d lists, want one of each form: %q", len(got), got)
			}
		})
	}
}

// TestWatchErrorHandler checks that the handler is called with a reflector when the
// server cannot be reached, and that the informer continues to retry.
func TestWatchErrorHandler(t *testing.T) {
	w := theWorld(t)
	type call struct {
		reflector *cache.Reflector
		err       error
	}
	calls := make(chan call, 1000)
	s := setup{options: crcache.Options{DefaultWatchErrorHandler: func(_ context.Context, r *cache.Reflector, err error) {
		calls <- call{r, err}
	}}}
	refused := errors.New("refused by the gate")
	w.coldAndWarm(t, s, func(t *testing.T, c *session) {
		r := reader{c, shape{}, store.Typed}
		r.keys(t, services) // the cluster must be known before the gate fails requests
		c.gate.fail(refused)
		inf := r.unsyncedInformer(t)
		select {
		case got := <-calls:
			if got.reflector == nil || !errors.Is(got.err, refused) {
				t.Errorf("got %+v", got)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("not called within 2 minutes")
		}
		c.gate.fail(nil)
		await(t, inf.HasSyncedChecker())
		r.wantKeys(t, pods, podsOfTwo, client.InNamespace("two"))
	})
}

// TestNeedsNoLeader checks that a cache runs before its manager leads.
func TestNeedsNoLeader(t *testing.T) {
	w := theWorld(t)
	c := w.open(t, t.TempDir()+"/informers.db", setup{})
	runnable, ok := c.Cache.(manager.LeaderElectionRunnable)
	if !ok || runnable.NeedLeaderElection() {
		t.Error("it waits for the lead")
	}
}

// TestReadBeforeStart checks that a cache that has not started returns
// ErrCacheNotStarted.
func TestReadBeforeStart(t *testing.T) {
	w := theWorld(t)
	notStarted := func(t *testing.T, c crcache.Cache) {
		var want *crcache.ErrCacheNotStarted
		if err := c.List(t.Context(), &corev1.PodList{}); !errors.As(err, &want) {
			t.Errorf("List: %v", err)
		}
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "one", Name: "pod-1"}, &corev1.Pod{}); !errors.As(err, &want) {
			t.Errorf("Get: %v", err)
		}
	}
	w.coldAndWarm(t, setup{before: notStarted}, func(t *testing.T, c *session) {
		r := reader{c, shape{}, store.Typed}
		if got := r.keys(t, pods); !slices.Contains(got, "one/pod-1") {
			t.Errorf("got %q", got)
		}
		if err := r.getError(t, pods, "one", "unknown"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	})
}
