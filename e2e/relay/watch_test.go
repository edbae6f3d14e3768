package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	watched     = "watched" // the name of the objects that change
	protoStream = "application/vnd.kubernetes.protobuf;stream=watch"
)

// testWatches changes objects and compares the events of watches, while it happens and
// afterwards.
func (w *world) testWatches(t *testing.T) {
	podRVs := w.change(t, pods, "v1", "pods", podChanges())
	gadgetRVs := w.change(t, "/apis/test.informctl.example/v1/gadgets", "test.informctl.example/v1", "gadgets", gadgetChanges())
	var all, bookmarked []request
	add := func(path, query, rv string, forms ...string) {
		seconds, to := "10", &all // for a hundred at once
		if strings.Contains(query, "allowWatchBookmarks") {
			// They end before the servers send another bookmark, each at its time.
			seconds, to = "2", &bookmarked
		}
		for _, form := range forms {
			*to = append(*to, request{path: path + "?watch=1&timeoutSeconds=" + seconds + "&resourceVersion=" + rv + query, accept: form})
		}
	}
	forms := []string{"", asYAML, asProtobuf, protoStream, asTable, partial, protoPartial, partialList, asTable + "," + asJSON, "application/json;stream=watch", asCBOR}
	add(pods, "", podRVs[0], forms...)
	add("/apis/test.informctl.example/v1/gadgets", "", gadgetRVs[0], forms...)
	for _, include := range []string{"None", "Metadata", "Object", "Other"} {
		add(pods, "&includeObject="+include, podRVs[0], asTable)
	}
	for _, rv := range podRVs {
		add(pods, "", rv, "")
	}
	for _, rv := range gadgetRVs {
		add(ofCustom, "", rv, "")
	}
	for _, s := range []string{"app=watched", "app!=watched", "app in (watched,other)", "!app"} {
		add(pods, "&labelSelector="+url.QueryEscape(s), podRVs[0], "", asProtobuf)
	}
	for _, s := range []string{
		"metadata.name=watched", "metadata.name!=watched", "metadata.namespace=default", "metadata.namespace!=default", "spec.nodeName=n-1", "spec.nodeName!=n-1",
		"status.phase=Running", "status.phase!=Running", "metadata.name=watched,status.phase=Pending", "metadata.name=a,metadata.name=watched", "spec.other=1",
	} {
		add(pods, "&fieldSelector="+url.QueryEscape(s), podRVs[0], "", asTable)
	}
	for _, s := range []string{"spec.color=red", "spec.color!=red", "spec.color=", "spec.ratio=1"} {
		add(ofCustom, "&fieldSelector="+url.QueryEscape(s), gadgetRVs[0], "", partial)
	}
	add("/api/v1/namespaces/default/pods", "", podRVs[0], "")
	add("/api/v1/namespaces/none/pods", "", podRVs[0], "")
	add("/api/v1/namespaces/default/pods/watched", "", podRVs[0], "")
	for _, rv := range []string{"1", "x", "-1", "99999999"} {
		add(pods, "", rv, "", asProtobuf, asTable)
	}
	add(pods, "&sendInitialEvents=true", "", "")
	add(pods, "&sendInitialEvents=true&allowWatchBookmarks=true", "", "")
	add(pods, "&resourceVersionMatch=NotOlderThan", "", "")
	add(pods, "&sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true", "", "")
	add(pods, "&limit=1", podRVs[0], "")
	add(pods, "&fieldSelector=metadata.name%3Dselected", "0", "", asProtobuf, asTable)
	add(pods, "&fieldSelector=metadata.name%3Dselected", "", "", asProtobuf, asTable)
	initial := "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	for _, rv := range []string{"", "0", podRVs[0]} {
		add(pods, initial+"&labelSelector=app%3Dselected", rv, "", asProtobuf, asTable, partial, protoPartial)
	}
	add(ofCustom, initial, "", "", asTable, partial, protoPartial)
	add(pods, initial, "", "")
	t.Run("initial events", func(t *testing.T) { w.testInitialEvents(t, bookmarked) })
	t.Run("afterwards", func(t *testing.T) {
		t.Parallel()
		w.sameAtOnce(t, 100, all)
	})
	t.Run("bookmark at the end", w.testLastBookmark)
	t.Run("websocket", func(t *testing.T) { w.testWebSocket(t, podRVs[0]) })
}

// step is a change of an object.
type step func(ctx context.Context, o objects) error

// objects are those of a resource in the namespace of the test.
type objects interface {
	Create(ctx context.Context, obj *unstructured.Unstructured, o metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions, sub ...string) error
}

func creates(obj map[string]any) step {
	return func(ctx context.Context, o objects) error {
		_, err := o.Create(ctx, &unstructured.Unstructured{Object: obj}, metav1.CreateOptions{})
		return err
	}
}

func patches(patch string, sub ...string) step {
	return func(ctx context.Context, o objects) error {
		_, err := o.Patch(ctx, watched, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
		return err
	}
}

func deletes(ctx context.Context, o objects) error {
	now := int64(0)
	return o.Delete(ctx, watched, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

func podChanges() []step {
	pod := func(node string) map[string]any {
		return map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			// Without a finalizer a deletion would be two changes at once.
			"metadata": map[string]any{"name": watched, "labels": map[string]any{"app": "watched"}, "finalizers": []any{"test/keep"}},
			"spec":     map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "c", "image": "i"}}},
		}
	}
	return []step{
		creates(pod("n-1")), patches(`{"metadata":{"labels":{"app":"other"}}}`), patches(`{"metadata":{"labels":{"app":"watched"}}}`),
		patches(`{"status":{"phase":"Running"}}`, "status"), patches(`{"metadata":{"labels":null}}`), patches(`{"status":{"phase":"Succeeded"}}`, "status"),
		deletes, patches(`{"metadata":{"finalizers":null}}`), creates(pod("")), patches(`{"metadata":{"annotations":{"a":"b"}}}`),
		deletes, patches(`{"metadata":{"finalizers":null}}`),
	}
}

func gadgetChanges() []step {
	return []step{
		creates(gadget(watched, map[string]any{"color": "red"}).Object), patches(`{"spec":{"color":"blue"}}`), patches(`{"spec":{"color":null}}`),
		patches(`{"spec":{"color":"red","size":7}}`), patches(`{"status":{"a":1}}`, "status"), patches(`{"metadata":{"labels":{"app":"watched"}}}`), deletes,
	}
}

// change makes changes one by one, each when both have told of the one before, and
// returns the resource versions before and after each. What both tell has to be equal.
func (w *world) change(t *testing.T, path, version, resource string, steps []step) []string {
	t.Helper()
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	client := w.client.Resource(gv.WithResource(resource)).Namespace(metav1.NamespaceDefault)
	rvs := []string{w.settle(t, path)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var lines [2]*bufio.Reader
	for i, p := range []peer{w.server, w.relay} {
		res, err := p.send(ctx, request{path: path + "?watch=1&resourceVersion=" + rvs[0]})
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines[i] = bufio.NewReader(res.Body)
	}
	for i, step := range steps {
		if err := step(ctx, client); err != nil {
			t.Fatalf("%s, change %d: %v", path, i, err)
		}
		var told [2][]byte
		for k, r := range lines {
			if told[k], err = r.ReadBytes('\n'); err != nil {
				t.Fatalf("%s, change %d: %v", path, i, err)
			}
		}
		if diff := diffBytes(told[0], told[1]); diff != "" {
			t.Errorf("%s, change %d: %s", path, i, diff)
		}
		rvs = append(rvs, versionOf(t, told[0]))
	}
	return rvs
}

// versionOf returns the resource version of an event.
func versionOf(t *testing.T, line []byte) string {
	t.Helper()
	var event struct{ Object metav1.PartialObjectMetadata }
	if err := json.Unmarshal(line, &event); err != nil {
		t.Fatal(err)
	}
	return event.Object.ResourceVersion
}

// testInitialEvents compares watches that begin with the present objects and a bookmark.
// The server sends the bookmark at its next tick, which may be 1.4 s after the begin of
// the watch. If an answer ends before, the request is sent again.
func (w *world) testInitialEvents(t *testing.T, requests []request) {
	isWhole := func(a answer) bool { return bytes.Contains(a.body, []byte(metav1.InitialEventsAnnotationKey)) }
	var g errgroup.Group
	g.SetLimit(4) // with more of them at once on few cores, some would be late each time
	for _, r := range requests {
		g.Go(func() error {
			var diff string
			for range 5 {
				server, relay, err := w.ask(t, r)
				if err != nil {
					return err
				}
				if diff = unknown(r, server, relay); diff == "" || isWhole(server) && isWhole(relay) {
					break
				}
			}
			if diff != "" {
				t.Errorf("%s:\n%s", r, diff)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// testLastBookmark checks that a watch with a timeout is told before its end how far it
// has come. The server does not promise that, though it mostly does it.
func (w *world) testLastBookmark(t *testing.T) {
	t.Parallel()
	for _, path := range []string{pods, ofCustom} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var a answer
			for range 3 { // a process that does not run for 2 s misses the bookmark
				var err error
				a, err = w.relay.ask(t.Context(), request{path: path + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=10&resourceVersion=" + w.settle(t, path)})
				if err != nil {
					t.Fatal(err)
				}
				if len(a.body) > 0 {
					break
				}
			}
			if a.code != http.StatusOK || !bytes.HasPrefix(a.body, []byte(`{"type":"BOOKMARK"`)) {
				t.Error(a)
			}
		})
	}
}

// testWebSocket compares watches over WebSockets.
func (w *world) testWebSocket(t *testing.T, rv string) {
	t.Parallel()
	for _, query := range []string{"", "&labelSelector=app%3Dwatched"} {
		var told [2][]string
		for i, p := range []peer{w.server, w.relay} {
			told[i] = p.messages(t, pods+"?watch=1&timeoutSeconds=10&resourceVersion="+rv+query)
		}
		if len(told[0]) == 0 || !slices.Equal(told[0], told[1]) {
			t.Errorf("%s: the server tells\n%q\ninformctl\n%q", query, told[0], told[1])
		}
	}
}

// messages returns what comes over a WebSocket until its end.
func (p peer) messages(t *testing.T, path string) (out []string) {
	t.Helper()
	config, err := rest.TLSConfigFor(p.config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &websocket.Dialer{TLSClientConfig: config}
	header := http.Header{"Authorization": {"Bearer " + p.config.BearerToken}, "Origin": {p.url}}
	conn, res, err := dialer.DialContext(t.Context(), strings.Replace(p.url, "https://", "wss://", 1)+path, header)
	if err != nil {
		t.Fatalf("%s: %v %v", p.name, err, res)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return append(out, fmt.Sprint(websocket.IsUnexpectedCloseError(err)))
		}
		out = append(out, fmt.Sprint(kind, string(message)))
	}
}
