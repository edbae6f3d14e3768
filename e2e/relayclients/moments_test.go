package relayclients_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/internal/testobjects"
)

// momentResources are what is compared. Of those but the last one, objects are changed.
var momentResources = []schema.GroupVersionResource{
	podResource, appsv1.SchemeGroupVersion.WithResource("deployments"), testobjects.WidgetResource,
	corev1.SchemeGroupVersion.WithResource("configmaps"),
}

// moment is the state of the server at a resource version.
type moment struct {
	rv    string
	time  time.Time
	kinds map[string]map[string]string // by resource
}

// stateOf lists a resource. It returns the resource version and UID of each object by
// name, and the resource version of the list.
func stateOf(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, o metav1.ListOptions) (map[string]string, string, error) {
	list, err := client.Resource(gvr).List(ctx, o)
	if err != nil {
		return nil, "", err
	}
	out := map[string]string{}
	for _, item := range list.Items {
		out[item.GetNamespace()+"/"+item.GetName()] = item.GetResourceVersion() + " " + string(item.GetUID())
	}
	return out, list.GetResourceVersion(), nil
}

// stateAt returns the state of the server at a resource version.
func (w *world) stateAt(gvr schema.GroupVersionResource, rv string) map[string]string {
	w.Helper()
	state, _, err := stateOf(w.Context(), w.custom, gvr, metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil {
		w.Fatal(err)
	}
	return state
}

// record returns the present state of the server.
func (w *world) record() moment {
	w.Helper()
	now := time.Now()
	_, rv, err := stateOf(w.Context(), w.custom, podResource, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	m := moment{rv: rv, time: now, kinds: map[string]map[string]string{}}
	for _, gvr := range momentResources {
		m.kinds[gvr.Resource] = w.stateAt(gvr, rv)
	}
	return m
}

// changeAtRandom creates, changes and deletes objects, some thirty times a second, with a
// rest every other second: then a commit ends before the next change.
func (w *world) changeAtRandom(ctx context.Context) error {
	r := rand.New(rand.NewPCG(1, 2))
	tick := time.NewTicker(time.Second / 60)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if n/90%2 == 1 {
			continue
		}
		gvr := momentResources[r.IntN(len(momentResources)-1)]
		client, name := w.custom.Resource(gvr).Namespace(shop), fmt.Sprint("random-", r.IntN(12))
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, n)
		_, err := client.Patch(w.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(w.Context(), newObject(gvr, name), metav1.CreateOptions{})
		case err == nil && r.IntN(4) == 0:
			now := int64(0)
			err = client.Delete(w.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		if err != nil {
			return err
		}
	}
}

// newObject returns an object to be created.
func newObject(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	pod := map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a:1"}}}
	labels := map[string]any{"app": name}
	u := &unstructured.Unstructured{}
	switch gvr.Resource {
	case "pods":
		u.Object = map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": pod}
	case "deployments":
		u.Object = map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod},
		}}
	default:
		u = testobjects.Widget(1000, 1)
		delete(u.Object, "status")
	}
	testobjects.ClearServerFields(u)
	u.SetNamespace(shop)
	u.SetName(name)
	return u
}

// testMoments compares what informctl serve --at lists with what the server had.
func testMoments(w *world) {
	before := w.record()
	w.label("changing", "first")
	k := w.keep("--history", "1h")
	k.caughtUp()
	w.run(k.kubeconfig(), "get", "pods,deployments,widgets", "-A") // writes the lists

	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	var changing sync.WaitGroup
	changed := make(chan error, 1)
	changing.Go(func() { changed <- w.changeAtRandom(ctx) })
	var moments []moment
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		moments = append(moments, w.record())
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	changing.Wait()
	if err := <-changed; err != nil {
		w.Fatal(err)
	}

	const want = 20
	moved := 0
	for i := range want {
		if i == 3 { // another process holds the file until then
			k.process.stop()
		}
		m := moments[i*(len(moments)-1)/(want-1)]
		moved += k.checkRV(m, i == want/2)
	}
	for _, i := range []int{len(moments) / 3, len(moments) / 2} {
		k.checkTime(moments, i)
	}
	for _, at := range []string{before.rv, before.time.UTC().Format(time.RFC3339Nano)} {
		a := result(k.informctl("serve", "--at", at))
		if a.code != 1 || !strings.Contains(a.errs, "the log begins at") {
			w.Errorf("serve --at %s, before the log: %v", at, a)
		}
	}
	w.Logf("%d moments, of %d of %d resources an earlier state", want, moved, want*len(momentResources))
}

// served is an informctl serve --at.
type served struct {
	*process
	kubeconfig string
	client     dynamic.Interface
	end        func()
}

func (k *keeper) serveAt(at string) *served {
	k.Helper()
	s := &served{process: k.start(k.informctl("serve", "--log-format", "json", "--at", at)), kubeconfig: k.db + ".serve.kubeconfig"}
	s.awaitText(`"Serving"`)
	config := k.configOf(s.kubeconfig)
	config.WarningHandler = rest.NoWarnings{}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		k.Fatal(err)
	}
	if s.client, err = dynamic.NewForConfigAndClient(config, http); err != nil {
		k.Fatal(err)
	}
	s.end = func() {
		utilnet.CloseIdleConnectionsFor(http.Transport)
		s.stop()
	}
	return s
}

// checkRV compares the state at a resource version with what was recorded. It returns the
// number of resources that are of an earlier one, which the command has to say.
func (k *keeper) checkRV(m moment, quiet bool) (moved int) {
	k.Helper()
	s := k.serveAt(m.rv)
	defer s.end()
	for _, gvr := range momentResources {
		got, told, err := stateOf(k.Context(), s.client, gvr, metav1.ListOptions{})
		if err != nil {
			k.Fatal(err)
		}
		want := m.kinds[gvr.Resource]
		if told != m.rv {
			moved++
			if number(told) > number(m.rv) || !strings.Contains(s.output(), gvr.GroupResource().String()+" of "+told) && !strings.Contains(s.output(), " more") {
				k.Errorf("at %s: %s are of %s, and it is not said\n%s", m.rv, gvr.Resource, told, s.output())
			}
			want = k.stateAt(gvr, told)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			k.Errorf("at %s: %s of %s (-server +informctl):\n%s\n%s", m.rv, gvr.Resource, told, diff, s.output())
		}
		if gvr == podResource {
			names := strings.Fields(k.run(s.kubeconfig, "get", "pods", "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}`).out)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), names); diff != "" {
				k.Errorf("at %s: kubectl get pods -A (-server +informctl):\n%s", m.rv, diff)
			}
			if quiet {
				k.checkWatch(s.client, told)
			}
		}
	}
	return moved
}

func number(rv string) int {
	n, _ := strconv.Atoi(rv)
	return n
}

// checkWatch checks that a watch at a moment of the past hears nothing but a bookmark.
func (k *keeper) checkWatch(client dynamic.Interface, rv string) {
	k.Helper()
	var got []string
	for range 3 { // a process that does not run for 2 s misses the moment of the bookmark
		if got = k.heard(client, rv); len(got) > 0 {
			break
		}
	}
	if want := []string{string(watch.Bookmark) + " " + rv}; !slices.Equal(got, want) {
		k.Errorf("a watch at %s got %q, want %q", rv, got, want)
	}
}

// heard returns what a watch of a few seconds is sent.
func (k *keeper) heard(client dynamic.Interface, rv string) (got []string) {
	k.Helper()
	seconds := int64(3)
	watching, err := client.Resource(podResource).Watch(k.Context(), metav1.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		k.Fatal(err)
	}
	defer watching.Stop()
	for e := range watching.ResultChan() {
		text := string(e.Type)
		if u, ok := e.Object.(*unstructured.Unstructured); ok {
			text += " " + u.GetResourceVersion()
		}
		got = append(got, text)
	}
	return got
}

// checkTime compares the state at a time with that of the server: each resource is of one
// resource version, which is nearly that of the time. The log has the time of commits,
// which may wait for the disk.
func (k *keeper) checkTime(moments []moment, i int) {
	k.Helper()
	at := moments[i].time.Truncate(time.Second)
	s := k.serveAt(at.UTC().Format(time.RFC3339))
	defer s.end()
	before, most := moment{}, 0
	for _, m := range moments {
		if m.time.Before(at.Add(-8 * time.Second)) {
			before = m
		}
		if most == 0 && m.time.After(at.Add(time.Second)) {
			most = number(m.rv)
		}
	}
	for _, gvr := range momentResources {
		got, told, err := stateOf(k.Context(), s.client, gvr, metav1.ListOptions{})
		if err != nil {
			k.Fatal(err)
		}
		least := 0 // a log has only what changes its resource
		for _, is := range before.kinds[gvr.Resource] {
			rv, _, _ := strings.Cut(is, " ")
			least = max(least, number(rv))
		}
		if n := number(told); n < least || n > most {
			k.Errorf("at %v: %s are of resource version %s, want %d to %d", at, gvr.Resource, told, least, most)
		}
		if diff := cmp.Diff(k.stateAt(gvr, told), got); diff != "" {
			k.Errorf("at %v: %s of %s (-server +informctl):\n%s", at, gvr.Resource, told, diff)
		}
	}
	pod, err := k.custom.Resource(podResource).Namespace(shop).Get(k.Context(), "web-0", metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	row := strings.Fields(k.run(s.kubeconfig, "get", "pod", "web-0", "-n", shop, "--no-headers").out)
	if want := duration.HumanDuration(at.Sub(pod.GetCreationTimestamp().Time)); len(row) == 0 || row[len(row)-1] != want {
		k.Errorf("at %v: got %q, want age %s", at, row, want)
	}
}
