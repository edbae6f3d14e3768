package informer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store"
)

// encodes returns how many objects the process has encoded.
func (r *run) encodes() int64 {
	r.w.Helper()
	synctest.Wait()
	return int64(r.inf.Status().Reads.Encodes)
}

// TestTakesEncoded checks that objects that come in protobuf are stored as they came, and
// that handlers and readers receive them as they would otherwise.
func TestTakesEncoded(t *testing.T) {
	for _, content := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		for _, byOwner := range []bool{false, true} {
			t.Run(fmt.Sprint(content, byOwner), func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.overWire(content, nil)
					opts := informer.Options{Indexes: []index.Index{index.Namespace()}}
					if byOwner { // its function needs the whole object
						opts.Indexers = cache.Indexers{"v": func(obj any) ([]string, error) {
							return []string{obj.(*corev1.ConfigMap).Data["v"]}, nil
						}}
					}
					w.put("listed", "1")
					told := guarantees.New(nil)
					r := w.run(opts, handle(w, told)).sync()
					w.put("listed", "2")
					w.put("watched", "1")
					w.put("watched", "2")
					w.put("gone", "1")
					w.drop("gone")
					r.atRest(told)
					w.sameAsServer(r.inf.GetStore().List())
					if got := r.encodes(); (got == 0) != (content == runtime.ContentTypeProtobuf) {
						t.Errorf("encoded %d objects that came as %s", got, content)
					}
					if byOwner {
						found, err := r.inf.GetIndexer().ByIndex("v", "2")
						if err != nil || len(found) != 2 {
							t.Errorf("found %d objects, %v", len(found), err)
						}
					}
					r.end()
					told = guarantees.New(nil)
					r = w.run(opts, handle(w, told)).sync()
					w.put("watched", "3")
					r.atRest(told)
					w.sameAsServer(r.inf.GetStore().List())
					r.end()
				})
			})
		}
	}
}

// unstructuredMaps returns what lists and watches ConfigMaps with client-go's dynamic
// client.
func unstructuredMaps(t *testing.T, cfg *rest.Config) cache.ListerWatcher {
	t.Helper()
	informer.TakeEncoded(cfg)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return maps.List(ctx, opts)
		},
		WatchFuncWithContext: maps.Watch,
	}
}

// unstructuredMap is an example of what they are.
func unstructuredMap() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
}

// TestTakesAfterStreamedProbe checks that a watch brings encoded objects after a probe
// whose streamed list was not compared, or was compared and differs.
func TestTakesAfterStreamedProbe(t *testing.T) {
	for _, isUnstructured := range []bool{false, true} {
		for _, while := range []string{"nothing", "a revision", "a change"} {
			inBubble(t, func(w *world) {
				begin := func() *run {
					cfg, example := w.server.Config(runtime.ContentTypeProtobuf), runtime.Object(&corev1.ConfigMap{})
					if isUnstructured {
						cfg, example = w.server.Config(runtime.ContentTypeJSON), unstructuredMap()
					}
					// Its lists would wait for hours.
					cfg.QPS, cfg.RateLimiter = 0, flowcontrol.NewTokenBucketRateLimiter(1e-4, 1)
					cfg.RateLimiter.Accept()
					if isUnstructured {
						w.lw = unstructuredMaps(t, cfg)
					} else {
						w.lw = overConfig(t, cfg)
					}
					return w.runOf(example, informer.Options{}).sync()
				}
				w.put("a", "1")
				w.put("b", "1")
				begin().end()
				switch while {
				case "a revision":
					w.server.Advance()
				case "a change":
					w.put("b", "2")
				}
				before := len(w.server.Requests())
				r := begin()
				w.put("a", "2")
				waitFor(time.Second)
				w.put("c", "1")
				waitFor(time.Minute)
				for _, request := range w.server.Requests()[before:] {
					if request.Verb == "list" {
						t.Errorf("unstructured %t, after %s: a list", isUnstructured, while)
					}
				}
				if n, keys := r.encodes(), len(r.inf.GetStore().ListKeys()); n > 0 || keys != 3 {
					t.Errorf("unstructured %t, after %s: encoded %d objects, %d keys", isUnstructured, while, n, keys)
				}
				r.end()
			})
		}
	}
}

// putManaged is like put, with managedFields and a label.
func (w *world) putManaged(name, value string) {
	w.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{"v": value},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test", FieldsV1: metav1.NewFieldsV1("{}")}},
		},
		Data: map[string]string{"v": value},
	}
	create := w.server.Create
	if value != "1" {
		create = w.server.Update
	}
	if _, err := create(cm); err != nil {
		w.Fatal(err)
	}
}

// TestTakesUnstructured checks that unstructured objects are stored as the server's JSON
// has them, that handlers and readers receive what they receive from client-go, and that
// the list of a warm start is compared without decoding it.
func TestTakesUnstructured(t *testing.T) {
	for _, strip := range []bool{false, true} {
		inBubble(t, func(w *world) {
			opts := informer.Options{Indexers: cache.Indexers{"v": func(obj any) ([]string, error) {
				v, _, err := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "data", "v")
				return []string{v}, err
			}}}
			example := unstructuredMap()
			if strip { // dynamic informers know only the resource
				example = &unstructured.Unstructured{}
				opts.Scope = store.Scope{Resource: "configmaps.example.com", Kind: corev1.SchemeGroupVersion.WithKind("")}
			}
			told := guarantees.New(nil)
			begin := func() *run {
				w.lw, told = unstructuredMaps(t, w.server.Config(runtime.ContentTypeJSON)), guarantees.New(nil)
				return w.runOf(example, opts, handle(w, told), func(inf *informer.Informer) {
					if !strip {
						return
					}
					if err := inf.SetTransform(informer.StripManagedFields); err != nil {
						t.Fatal(err)
					}
				}).sync()
			}
			check := func(r *run) {
				t.Helper()
				synctest.Wait()
				lw := cache.ToListerWatcherWithContext(unstructuredMaps(t, w.server.Config(runtime.ContentTypeJSON)))
				list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				var want []runtime.Object
				for _, u := range list.(*unstructured.UnstructuredList).Items {
					if strip {
						u.SetManagedFields(nil)
					}
					want = append(want, &u)
					got, exists, err := r.inf.GetStore().GetByKey("default/" + u.GetName())
					if err != nil || !exists {
						t.Fatalf("%s: exists %t, %v", u.GetName(), exists, err)
					}
					if diff := cmp.Diff(&u, got); diff != "" {
						t.Errorf("not as client-go has it (-client-go +got):\n%s", diff)
					}
				}
				server, err := guarantees.States(want)
				if err != nil {
					t.Fatal(err)
				}
				told.AtRest(server)
				for _, violation := range told.Violations() {
					t.Error(violation)
				}
				if n := len(r.inf.GetStore().List()); n != len(want) {
					t.Errorf("%d objects, want %d", n, len(want))
				}
				if n := r.encodes(); n > 0 {
					t.Errorf("encoded %d objects", n)
				}
			}
			for i := range 20 {
				w.putManaged(fmt.Sprint("o", i), "1")
			}
			r := begin()
			w.putManaged("o1", "2")
			w.putManaged("new", "1")
			w.putManaged("gone", "1")
			w.drop("gone")
			check(r)
			if found, err := r.inf.GetIndexer().ByIndex("v", "2"); err != nil || len(found) != 1 {
				t.Errorf("found %d objects, %v", len(found), err)
			}
			r.end()
			r = begin() // the probe's list is what is stored
			check(r)
			r.end()
			w.putManaged("o3", "2")
			r = begin()
			w.putManaged("o4", "2")
			check(r)
			r.end()
		})
	}
}

// sameAsServer checks that objects are equal to the server's in every field.
func (w *world) sameAsServer(objects []any) {
	w.Helper()
	list, err := w.server.ListWithContext(w.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		w.Fatal(err)
	}
	held := map[string]*corev1.ConfigMap{}
	for _, obj := range objects {
		cm := obj.(*corev1.ConfigMap)
		held[cm.Name] = cm
	}
	if n := len(list.(*corev1.ConfigMapList).Items); n != len(objects) {
		w.Errorf("%d objects, the server has %d", len(objects), n)
	}
	for _, want := range list.(*corev1.ConfigMapList).Items {
		if got := held[want.Name]; got == nil || !apiequality.Semantic.DeepEqual(&want, got) {
			w.Errorf("not as at the server:\n%s", cmp.Diff(&want, got))
		}
	}
}

// TestOneObjectForAll checks that handlers and readers share one decoded object.
func TestOneObjectForAll(t *testing.T) {
	inBubble(t, func(w *world) {
		w.overWire(runtime.ContentTypeProtobuf, nil)
		var mu sync.Mutex // protects told
		var told []any
		keep := cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, obj)
		}}
		r := w.run(informer.Options{}, handle(w, keep), handle(w, keep)).sync()
		w.put("a", "1")
		synctest.Wait()
		obj, _, err := r.inf.GetStore().GetByKey("default/a")
		if err != nil || len(told) != 2 || told[0] != told[1] || told[0] != obj {
			t.Errorf("told %d objects, %p, read %p, %v", len(told), told, obj, err)
		}
		r.end()
	})
}

// TestChangingListerWatcher checks ListerWatchers that change what the server sends: it
// is noticed, and everything is listed again, with the changes.
func TestChangingListerWatcher(t *testing.T) {
	changes := map[string]func(*corev1.ConfigMap){
		"data":   func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"changed": "yes"} },
		"labels": func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"changed": "yes"} },
		"all": func(cm *corev1.ConfigMap) {
			*cm = corev1.ConfigMap{ObjectMeta: cm.ObjectMeta, Data: map[string]string{"changed": "yes"}}
			cm.SetSelfLink("")
		},
	}
	for what, change := range changes {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(w *world) {
				later := false
				w.overWire(runtime.ContentTypeProtobuf, func(obj runtime.Object) {
					if later || what != "labels" {
						change(obj.(*corev1.ConfigMap))
					}
				})
				for i := range 20 {
					w.put(fmt.Sprint("o", i), "1")
				}
				r := w.run(informer.Options{}).sync()
				later = true // from here on, of slim objects, too
				w.put("o1", "2")
				w.put("o2", "2")
				waitFor(time.Minute)
				if what == "labels" {
					later = false
				}
				for _, obj := range r.inf.GetStore().List() {
					cm := obj.(*corev1.ConfigMap)
					if cm.GetSelfLink() != "" {
						t.Errorf("%s has a selfLink", cm.Name)
					}
					if want := cm.DeepCopy(); what != "labels" || cm.Name == "o2" {
						change(want)
						if diff := cmp.Diff(want, cm); diff != "" {
							t.Errorf("%s is not as the ListerWatcher has made it:\n%s", cm.Name, diff)
						}
					}
				}
				r.end()
			})
		})
	}
}

// TestStripManagedFields checks that managedFields are removed without encoding or
// decoding anything, and that the next start is warm without a transform version.
func TestStripManagedFields(t *testing.T) {
	for _, content := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		inBubble(t, func(w *world) {
			w.overWire(content, nil)
			strip := func(inf *informer.Informer) {
				if err := inf.SetTransform(informer.StripManagedFields); err != nil {
					t.Fatal(err)
				}
			}
			check := func(r *run) {
				t.Helper()
				for _, obj := range r.inf.GetStore().List() {
					if cm := obj.(*corev1.ConfigMap); cm.ManagedFields != nil || cm.Labels["v"] == "" || cm.Data["v"] != cm.Labels["v"] {
						t.Errorf("%s: %v", content, cm)
					}
				}
				if n := len(r.inf.GetStore().List()); n != 20 {
					t.Errorf("%d objects", n)
				}
			}
			for i := range 20 {
				w.putManaged(fmt.Sprint("o", i), "1")
			}
			r := w.run(informer.Options{}, strip).sync()
			for i := range 10 {
				w.putManaged(fmt.Sprint("o", i), "2")
			}
			waitFor(time.Minute)
			check(r)
			if got := r.encodes(); (got == 0) != (content == runtime.ContentTypeProtobuf) {
				t.Errorf("encoded %d objects that came as %s", got, content)
			}
			r.end()
			before := len(w.server.Requests())
			r = w.run(informer.Options{}, strip).sync()
			check(r)
			if lists := w.lists(before); len(lists) > 0 {
				t.Errorf("a warm start listed: %v", lists)
			}
			r.end()
		})
	}
}

// TestOmittingListerWatcher checks a ListerWatcher that omits objects because of their
// content, which slim objects do not have.
func TestOmittingListerWatcher(t *testing.T) {
	for _, content := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(content, func(t *testing.T) {
			inBubble(t, func(w *world) {
				inner := cache.ToListerWatcherWithContext(overHTTP(t, w.server, content))
				keep := func(obj runtime.Object) bool { return obj.(*corev1.ConfigMap).Labels["app"] == "1" }
				w.lw = &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
						list, err := inner.ListWithContext(ctx, opts)
						if err != nil {
							return nil, err
						}
						l := list.(*corev1.ConfigMapList)
						var items []corev1.ConfigMap
						_ = meta.EachListItem(list, func(obj runtime.Object) error {
							if keep(obj) {
								items = append(items, *obj.(*corev1.ConfigMap))
							}
							return nil
						})
						l.Items = items
						return l, nil
					},
					WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						events, err := inner.WatchWithContext(ctx, opts)
						if err != nil {
							return nil, err
						}
						return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
							return e, e.Type == watch.Bookmark || e.Type == watch.Error || keep(e.Object)
						}), nil
					},
				}
				for i := range 20 {
					w.put(fmt.Sprint("o", i), fmt.Sprint(i%2))
				}
				r := w.run(informer.Options{}).sync()
				w.put("late", "1")
				waitFor(time.Hour)
				if n := len(r.inf.GetStore().List()); n != 11 {
					t.Errorf("%d objects, want 11", n)
				}
				r.end()
			})
		})
	}
}
