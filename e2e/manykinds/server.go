package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// revision returns the resource version of the server. No object changes, but it goes on,
// as leases make that of a cluster do.
func revision() string { return strconv.FormatInt(1_000_000+time.Since(started).Milliseconds(), 10) }

var started = time.Now()

// kindOf returns the kind with a number.
func kindOf(i int) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "many.example.com", Version: "v1", Kind: fmt.Sprintf("Kind%03d", i)}
}

// resourceOf returns the resource of a kind.
func resourceOf(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "many.example.com", Version: "v1", Resource: fmt.Sprintf("kind%03ds", i)}
}

// objectsOf returns the objects of a kind: some 2 KB each.
func objectsOf(i int) (all []map[string]any) {
	for n := range i%100 + 1 {
		gvk := kindOf(i)
		spec := map[string]any{}
		for f := range 20 {
			spec[fmt.Sprintf("field%02d", f)] = fmt.Sprintf("value %d of object %d of kind %d, and some more of it", f, n, i)
		}
		all = append(all, map[string]any{
			"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind,
			"metadata": map[string]any{
				"namespace": "default", "name": fmt.Sprintf("object-%03d", n), "uid": fmt.Sprintf("%03d-%03d", i, n),
				"resourceVersion": strconv.Itoa(1000 + 100*i + n), "creationTimestamp": "2026-01-01T00:00:00Z",
			},
			"spec": spec,
		})
	}
	return all
}

// serve serves all kinds until standard input is closed.
func serve(kinds int) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/namespaces/kube-system", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-system", "uid": "many"}})
	})
	for i := range kinds {
		objects := objectsOf(i)
		gvk := kindOf(i)
		mux.HandleFunc("/apis/many.example.com/v1/"+resourceOf(i).Resource, func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if q.Get("watch") != "" {
				follow(w, r, gvk, objects)
				return
			}
			list := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind + "List"}
			m := map[string]any{"resourceVersion": revision()}
			items := objects
			if limit, err := strconv.Atoi(q.Get("limit")); err == nil && limit > 0 && limit < len(items) {
				m["remainingItemCount"], m["continue"] = len(items)-limit, "more"
				items = items[:limit]
			}
			list["metadata"], list["items"] = m, items
			answer(w, list)
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	err = (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l)
	if err != nil && !strings.Contains(err.Error(), "closed") {
		return err
	}
	return nil
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// follow answers a watch: with the objects if they are asked for, else with a bookmark of
// the present resource version after a second, about as the API server does before the
// timeout of a short watch, and with nothing else.
func follow(w http.ResponseWriter, r *http.Request, gvk schema.GroupVersionKind, objects []map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	q, out := r.URL.Query(), json.NewEncoder(w)
	send := func(t watch.EventType, object any) { _ = out.Encode(map[string]any{"type": t, "object": object}) }
	mark := func(annotations map[string]string) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		u.SetResourceVersion(revision())
		u.SetAnnotations(annotations)
		send(watch.Bookmark, u.Object)
		_ = http.NewResponseController(w).Flush()
	}
	if q.Get("sendInitialEvents") == "true" {
		// No object has a label, and informers ask only for labels that must be there.
		if q.Get("labelSelector") == "" {
			for _, o := range objects {
				send(watch.Added, o)
			}
		}
		mark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	} else {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(time.Second):
			mark(nil)
		case <-r.Context().Done():
		}
	}
	<-r.Context().Done()
}
