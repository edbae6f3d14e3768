package cli_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeScopes makes a file in which several scopes hold objects of one resource: all pods
// at resource version 1000, and parts of them later. Since 1000, pods have been deleted,
// changed and created. Both APIs of events hold them, too.
func writeScopes(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	in := func(namespace, name, app string, phase corev1.PodPhase) runtime.Object {
		p := pod(namespace, name, app)
		p.Status.Phase = phase
		return p
	}
	indexes := []index.Index{index.Namespace(), index.Label("app")}
	for rv, part := range map[string]struct {
		store.Scope
		objects []runtime.Object
	}{
		"1000": {store.Scope{}, []runtime.Object{
			in("a", "ghost", "web", corev1.PodRunning),
			in("a", "other", "db", corev1.PodRunning),
			in("a", "web-1", "web", corev1.PodRunning),
			in("b", "changed", "old", corev1.PodRunning),
			in("b", "ghost", "web", corev1.PodRunning),
			in("c", "failed", "web", corev1.PodFailed),
			in("c", "ran", "web", corev1.PodRunning),
			in("c", "unknown", "web", ""),
		}},
		"2000": {store.Scope{Namespace: "a", LabelSelector: "app=web"}, []runtime.Object{
			in("a", "web-1", "web", corev1.PodFailed), in("a", "web-2", "web", corev1.PodRunning),
		}},
		"2001": {store.Scope{Namespace: "b"}, []runtime.Object{in("b", "changed", "new", corev1.PodRunning)}},
		"2002": {store.Scope{Namespace: "c", FieldSelector: "metadata.name!=else,status.phase!=Failed"}, nil},
	} {
		part.Resource, part.Kind = "pods", kind
		fillScopeAt(t, db, indexes, part.Scope, rv, part.objects...)
	}
	event := func(namespace, name string) *corev1.Event {
		return &corev1.Event{ObjectMeta: objectMeta(namespace, name, ""), Reason: "Core"}
	}
	newer := func(namespace, name string) *eventsv1.Event {
		return &eventsv1.Event{ObjectMeta: objectMeta(namespace, name, ""), Reason: "Newer"}
	}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Event"), "events", store.Typed, event("a", "e-1"), event("a", "e-2"))
	fill(t, db, eventsv1.SchemeGroupVersion.WithKind("Event"), "events.events.k8s.io", store.Typed, newer("a", "e-1"), newer("a", "e-2"), newer("b", "e-2"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNamespaceNotFollowed checks that a namespace that a file does not follow is told,
// where "nothing found" would be wrong.
func TestNamespaceNotFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scope := store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "default"}
	fillScopeAt(t, db, nil, scope, "1", pod("default", "web", "web"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	want := "informctl: " + path + " holds nothing of namespace other, but pods in default\n"
	for name, args := range map[string][]string{"query": {"query", "pods"}, "count": {"query", "pods", "--count"}, "named": {"query", "pod/web"}, "history": {"history", "pods"}, "all": {"query"}} {
		if got := say(t.Context(), append(args, "-n", "other", "--db", path)...); got.Code != 1 || got.Err != want || got.Out != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := say(t.Context(), "query", "pods", "-n", "default", "-o", "name", "--db", path); got.Code != 0 || got.Out != "pod/web\n" {
		t.Errorf("%+v", got)
	}
}
