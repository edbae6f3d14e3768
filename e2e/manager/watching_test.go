package manager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/store"
)

// TestWatching contains the checks of controller-runtime's own suite for a cache as a
// source of informers. It runs them for each shape of cache and each form of object, on a
// cold and on a warm file.
func TestWatching(t *testing.T) {
	w := theWorld(t)
	t.Parallel() // with tests of ConfigMaps only, because it creates pods
	for _, shape := range shapes {
		for _, form := range forms {
			for _, row := range watching {
				if row.typed && form != store.Typed {
					continue
				}
				t.Run(shape.name+"/"+form.String()+"/"+row.name, func(t *testing.T) {
					t.Parallel()
					w.coldAndWarm(t, setup{options: shape.options}, func(t *testing.T, c *session) { row.check(t, reader{c, shape, form}) })
				})
			}
		}
	}
}

var watching = []struct {
	name  string
	typed bool // has no other form
	check func(*testing.T, reader)
}{
	{name: "tells a handler of an object that is created", check: func(t *testing.T, r reader) { checkCreated(t, r, r.informer(t)) }},
	{name: "tells a handler of an informer by kind", typed: true, check: func(t *testing.T, r reader) {
		inf, err := r.GetInformerForKind(t.Context(), pods)
		if err != nil || !inf.HasSynced() {
			t.Fatal(err)
		}
		checkCreated(t, r, inf)
	}},
	{name: "tells a handler of changes and of the end", check: checkEvents},
	{name: "tells a handler that comes late of what is there", check: checkLate},
	{name: "stops an informer that is removed, and makes another", check: checkRemoved},
	{name: "fails when the context has ended before an informer has synced", check: func(t *testing.T, r reader) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		inf, err := r.GetInformer(ended, r.object(t, pods))
		if inf != nil || !apierrors.IsTimeout(err) {
			t.Errorf("got %v, %v, want a timeout", inf, err)
		}
		r.informer(t)
	}},
	{name: "fails when the context has ended before an informer by kind has synced", typed: true, check: func(t *testing.T, r reader) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		inf, err := r.GetInformerForKind(ended, pods)
		if inf != nil || !apierrors.IsTimeout(err) {
			t.Errorf("got %v, %v, want a timeout", inf, err)
		}
		r.informer(t)
	}},
	{name: "does not wait for an informer where it is not to", check: func(t *testing.T, r reader) {
		open := r.gate.close()
		inf := r.unsyncedInformer(t)
		open()
		await(t, inf.HasSyncedChecker())
	}},
	{name: "makes reads wait until the informer has synced", check: checkReadsWait},
	{name: "indexes a field without waiting for the server", check: func(t *testing.T, r reader) {
		open := r.gate.close()
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := r.IndexField(soon, r.object(t, pods), "policy", policyOf); err != nil || soon.Err() != nil {
			t.Errorf("got %v, %v", err, soon.Err())
		}
		open()
		checkPolicy(t, r)
	}},
	{name: "is not started twice", check: func(t *testing.T, r reader) {
		r.keys(t, pods)
		if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "informer already started") {
			t.Errorf("got %v", err)
		}
	}},
}

func (r reader) informer(t *testing.T) crcache.Informer {
	t.Helper()
	return r.informerOf(t, pods)
}

func (r reader) informerOf(t *testing.T, kind schema.GroupVersionKind) crcache.Informer {
	t.Helper()
	inf, err := r.GetInformer(t.Context(), r.object(t, kind))
	if err != nil {
		t.Fatal(err)
	}
	if inf == nil || !inf.HasSynced() {
		t.Fatal("the informer has not synced")
	}
	return inf
}

func (r reader) unsyncedInformer(t *testing.T) crcache.Informer {
	t.Helper()
	soon, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	inf, err := r.GetInformer(soon, r.object(t, pods), crcache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	if inf == nil || inf.HasSynced() {
		t.Error("the informer has synced without a server")
	}
	return inf
}

func await(t *testing.T, what cache.DoneChecker) {
	t.Helper()
	select {
	case <-what.Done():
	case <-time.After(2 * time.Minute):
		t.Fatalf("not in 2 minutes: %s", what.Name())
	}
}

// told is one call of a handler.
type told struct {
	what     string
	initial  bool
	old, obj any
}

// handle adds a handler and waits until it has synced. The channel receives the calls for
// one object, or for all objects if name is "".
func handle(t *testing.T, inf crcache.Informer, name string) <-chan told {
	t.Helper()
	calls := make(chan told, 1000)
	tell := func(call told) {
		if obj, ok := call.obj.(client.Object); name == "" || !ok || obj.GetName() == name {
			calls <- call
		}
	}
	registration, err := inf.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { tell(told{"add", initial, nil, obj}) },
		UpdateFunc: func(old, obj any) { tell(told{"update", false, old, obj}) },
		DeleteFunc: func(obj any) { tell(told{"delete", false, nil, obj}) },
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, registration.HasSyncedChecker())
	if !registration.HasSynced() {
		t.Error("the handler has synced and says that it has not")
	}
	return calls
}

func next(t *testing.T, calls <-chan told) told {
	t.Helper()
	select {
	case call := <-calls:
		return call
	case <-time.After(2 * time.Minute):
		t.Fatal("the handler was not told within 2 minutes")
	}
	return told{}
}

var created atomic.Int64

// create creates a pod that is deleted at the end of the test, in a namespace that every
// shape caches. It returns the pod in the reader's form.
func (r reader) create(t *testing.T, name string) client.Object {
	t.Helper()
	var obj client.Object = pod("default", name, corev1.RestartPolicyAlways)
	if r.form == store.Unstructured {
		obj = inForm(t, r.form, pods, obj)
	}
	r.world.create(t, obj)
	if r.form == store.Unstructured {
		return obj
	}
	return inForm(t, r.form, pods, obj)
}

func newName() string { return fmt.Sprintf("watched-%d", created.Add(1)) }

func checkCreated(t *testing.T, r reader, inf crcache.Informer) {
	t.Helper()
	name := newName()
	calls := handle(t, inf, name)
	want := r.create(t, name)
	wantSame(t, "call", told{"add", false, nil, want}, next(t, calls))
}

func checkEvents(t *testing.T, r reader) {
	name := newName()
	calls := handle(t, r.informer(t), name)
	first := r.create(t, name)
	wantSame(t, "first call", told{"add", false, nil, first}, next(t, calls))

	second := r.object(t, pods)
	if r.form == store.Typed {
		second = first.DeepCopyObject().(client.Object)
	}
	key := types.NamespacedName{Namespace: "default", Name: name}
	second.SetNamespace(key.Namespace)
	second.SetName(key.Name)
	if err := r.world.direct.Patch(t.Context(), second, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`))); err != nil {
		t.Fatal(err)
	}
	if r.form == store.Typed {
		second = inForm(t, r.form, pods, second)
	} else {
		second.GetObjectKind().SetGroupVersionKind(pods)
	}
	wantSame(t, "second call", told{"update", false, first, second}, next(t, calls))
	wantSame(t, "what is read when a handler has been told", "yes", r.get(t, pods, "default", name).GetLabels()["changed"])

	if err := r.world.direct.Delete(t.Context(), second.DeepCopyObject().(client.Object)); err != nil {
		t.Fatal(err)
	}
	last := next(t, calls)
	for last.what == "update" { // a pod is updated before it is deleted
		last = next(t, calls)
	}
	obj, ok := last.obj.(client.Object)
	if last.what != "delete" || !ok || obj.GetUID() != second.GetUID() || obj.GetLabels()["changed"] != "yes" {
		t.Errorf("last call: %+v", last)
	}
	if err := r.getError(t, pods, "default", name); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

// checkLate checks that a handler that is added to a running informer receives every
// object once, as an initial add.
func checkLate(t *testing.T, r reader) {
	calls := handle(t, r.informer(t), "")
	var got []string
	for len(calls) > 0 {
		call := <-calls
		obj := call.obj.(client.Object)
		if strings.HasPrefix(obj.GetName(), "watched-") {
			continue
		}
		if call.what != "add" || !call.initial {
			t.Errorf("%s: %s, initial %t", keyOf(obj), call.what, call.initial)
		}
		want := known(t, r, obj.GetNamespace(), obj.GetName())
		if r.form == store.Typed {
			want = inForm(t, r.form, pods, want)
		}
		wantSame(t, keyOf(obj), want, obj)
		got = append(got, keyOf(obj))
	}
	slices.Sort(got)
	wantSame(t, "keys", r.shape.visible("one/pod-1", "one/pod-5", "three/pod-4", "two/pod-2", "two/pod-3", "two/pod-6"), got)
}

func checkRemoved(t *testing.T, r reader) {
	first := r.informer(t)
	if err := r.RemoveInformer(t.Context(), r.object(t, pods)); err != nil {
		t.Fatal(err)
	}
	second := r.informer(t) // created at once, possibly before the first one has stopped
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !first.IsStopped() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the removed informer has not stopped in 2 minutes")
		}
	}
	if second.IsStopped() {
		t.Error("the new informer has stopped")
	}
	checkCreated(t, r, second)
	r.wantKeys(t, pods, []string{"one/pod-1", "one/pod-5"}, client.InNamespace("one"))
}

// checkReadsWait checks that a loaded warm file is not read until the server has been
// reached, although the cluster is known.
func checkReadsWait(t *testing.T, r reader) {
	r.informerOf(t, services)
	open := r.gate.close()
	r.unsyncedInformer(t)
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.List(soon, newList(t, r.form, pods)); !apierrors.IsTimeout(err) {
		t.Errorf("List: got %v, want a timeout", err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "unknown"}
	if err := r.Get(soon, key, r.object(t, pods)); !apierrors.IsTimeout(err) {
		t.Errorf("Get: got %v, want a timeout", err)
	}
	open()
	r.wantKeys(t, pods, []string{"one/pod-1", "one/pod-5"}, client.InNamespace("one"))
	r.keys(t, pods) // from every namespace
	if err := r.getError(t, pods, "default", "unknown"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}
