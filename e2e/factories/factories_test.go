package factories_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/store"
)

// TestFactories runs all tests on one API server.
func TestFactories(t *testing.T) {
	w := newWorld(t)
	t.Run("restart", func(t *testing.T) { w.in(t).testRestart() })
	t.Run("secrets", func(t *testing.T) { w.in(t).testSecrets() })
	t.Run("typed wrappers", func(t *testing.T) { w.in(t).testTypedWrappers() })
	t.Run("shut down a handler", func(t *testing.T) { w.in(t).testShutDownEventHandler() })
}

var (
	resources = []schema.GroupVersionResource{pods, configMaps, widgets}
	forms     = []store.Form{store.Typed, store.Unstructured, store.Metadata}
)

// openAll opens the file with an informer for each resource in each form, except typed
// widgets: no typed client exists for them.
func (w *world) openAll() *run {
	w.t.Helper()
	r := w.open()
	for _, gvr := range resources {
		for _, form := range forms {
			if form != store.Typed || gvr != widgets {
				r.hold(form, gvr)
			}
		}
	}
	return r
}

// testRestart checks all forms of all resources in one file: after a cold start, after
// events, and after changes while no informer ran.
func (w *world) testRestart() {
	for _, gvr := range resources {
		for _, name := range []string{"kept", "changed", "gone"} {
			w.create(gvr, name)
		}
	}
	r := w.openAll()
	r.start()
	r.checkEqual()
	r.checkGeneratedListers()
	r.checkEvents()
	r.end()
	if got := r.lists(); len(got) != len(r.held) {
		w.t.Errorf("the cold start made %d lists, want %d: %s", len(got), len(r.held), strings.Join(got, "; "))
	}

	for _, gvr := range resources {
		w.annotate(gvr, "changed", "while down")
		w.delete(gvr, "gone")
		w.create(gvr, "new")
	}
	r = w.openAll()
	r.start()
	r.checkEqual()
	for _, h := range r.held {
		for name, want := range map[string][]string{
			"kept": {"initial"}, "changed": {"initial", "update"}, "gone": {"initial", "delete"}, "new": {"initial"},
		} {
			if diff := cmp.Diff(want, h.view.told("default/"+name)); diff != "" {
				w.t.Errorf("%s: told of %q (-want +got):\n%s", h, name, diff)
			}
		}
	}
	r.checkEvents()
	r.checkEqual()
	r.end()
	if got := r.lists(); len(got) > 0 {
		w.t.Errorf("the warm start listed: %s", strings.Join(got, "; "))
	}
	w.checkScopes()
}

// checkEvents checks that each handler receives a creation, a change and a deletion.
func (r *run) checkEvents() {
	r.t.Helper()
	for _, gvr := range resources {
		r.create(gvr, "live")
		r.annotate(gvr, "live", "now")
		r.delete(gvr, "live")
		r.create(gvr, "after-"+r.agent[len(r.agent)-1:])
	}
	for _, h := range r.held {
		h.view.await(r.t, "after-"+r.agent[len(r.agent)-1:])
		if diff := cmp.Diff([]string{"add", "update", "delete"}, h.view.told("default/live")); diff != "" {
			r.t.Errorf("%s: told of events (-want +got):\n%s", h, diff)
		}
	}
}

// checkGeneratedListers checks the listers of the typed factory, which are client-go's
// generated code.
func (r *run) checkGeneratedListers() {
	r.t.Helper()
	core := r.typed.Core().V1()
	pod, err := core.Pods().Lister().Pods("default").Get("kept")
	if err != nil || len(pod.Spec.Containers) == 0 {
		r.t.Errorf("Get of a pod: %v", err)
	}
	inDefault, err := core.ConfigMaps().Lister().ConfigMaps("default").List(labels.Everything())
	if err != nil || !slices.ContainsFunc(inDefault, func(c *configMap) bool { return c.Name == "kept" && len(c.Data) > 0 }) {
		r.t.Errorf("List of a namespace's ConfigMaps: %d objects: %v", len(inDefault), err)
	}
	selector := labels.SelectorFromSet(pod.Labels)
	selected, err := core.Pods().Lister().List(selector)
	if err != nil || !slices.Contains(podNames(selected), "kept") || slices.ContainsFunc(selected, func(p *podType) bool {
		return !selector.Matches(labels.Set(p.Labels))
	}) {
		r.t.Errorf("List by label: %v: %v", podNames(selected), err)
	}
}

// checkScopes checks that the file contains each resource once in each form, with its
// names.
func (w *world) checkScopes() {
	w.t.Helper()
	kinds := map[schema.GroupVersionResource]string{pods: "Pod", configMaps: "ConfigMap"}
	want := map[string]schema.GroupVersionKind{}
	for _, gvr := range resources {
		for _, form := range forms {
			s := store.Scope{Resource: gvr.GroupResource().String(), Form: form}
			switch {
			case form != store.Typed:
				want[s.String()] = gvr.GroupVersion().WithKind("")
			case gvr != widgets:
				want[s.String()] = gvr.GroupVersion().WithKind(kinds[gvr])
			}
		}
	}
	got := map[string]schema.GroupVersionKind{}
	infos := bolttest.Scopes(w.t, w.path())
	for _, info := range infos {
		got[info.Scope.String()] = info.Scope.Kind
		if !strings.HasPrefix(info.Scope.Cluster, "kube-system/") || !info.Complete || info.Checkpoint.RV == "" || info.Objects == 0 {
			w.t.Errorf("%s: cluster %q, complete %t, RV %q, %d objects", info.Scope, info.Scope.Cluster, info.Complete, info.Checkpoint.RV, info.Objects)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(infos) != len(want) {
		w.t.Errorf("%d scopes (-want +got):\n%s", len(infos), diff)
	}
}

// testSecrets checks that no Secret reaches the disk, although the factories' informers
// do not know the kind. The same holds for its annotations, where kubectl keeps a copy of
// the content.
func (w *world) testSecrets() {
	w.create(secrets, "hush-content")
	w.annotate(secrets, "hush-content", "hush-annotation")
	r := w.open()
	r.hold(store.Unstructured, secrets)
	r.hold(store.Metadata, secrets)
	r.start()
	w.create(secrets, "hush-later")
	for _, h := range r.held {
		h.view.await(w.t, "hush-later")
	}
	r.checkEqual()
	r.end()
	if got := r.lists(); len(got) != len(r.held) {
		w.t.Errorf("%d lists, want %d: %s", len(got), len(r.held), strings.Join(got, "; "))
	}
	for _, info := range bolttest.Scopes(w.t, w.path()) {
		w.t.Errorf("stored: %s", info.Scope)
	}
	b, err := os.ReadFile(w.path())
	if err != nil {
		w.t.Fatal(err)
	}
	if bytes.Contains(b, []byte("hush")) {
		w.t.Error("the file has a Secret's content")
	}
}
