package informer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
)

var errOnPurpose = errors.New("on purpose")

func byValue(fail *bool, panics bool) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		v := obj.(*corev1.ConfigMap).Data["v"]
		if *fail && v == "bad" {
			if panics {
				panic("secret content")
			}
			return nil, errOnPurpose
		}
		return []string{v}, nil
	}
}

// TestBadIndexFunction checks that an object for which an index function fails keeps its
// last good state and freezes the stored RV, until it can be stored (promise 2).
func TestBadIndexFunction(t *testing.T) {
	for _, panics := range []bool{false, true} {
		inBubble(t, func(w *world) {
			w.put("a", "1") // 2
			w.put("b", "1") // 3
			fail := true
			l := &log{}
			r := w.run(informer.Options{Indexers: cache.Indexers{"v": byValue(&fail, panics)}}, handle(w, l)).sync()
			l.take()
			w.put("a", "bad") // 4
			w.put("b", "2")   // 5
			w.want(l, "update b@3=1 b@5=2")
			waitFor(5 * time.Second)
			if objects, cp := w.stored(copyOf(w)); cp.RV != "3" || !slices.Equal(objects, []string{"a@2=1", "b@5=2"}) {
				t.Errorf("stored: %v at RV %q", objects, cp.RV)
			}
			if got := r.inf.Status().Rejected; !slices.Equal(got, []string{"default/a"}) {
				t.Errorf("rejected: %v", got)
			}
			w.put("a", "3") // 6
			w.want(l, "update a@2=1 a@6=3")
			waitFor(5 * time.Second)
			if _, cp := w.stored(copyOf(w)); cp.RV != "6" {
				t.Errorf("RV %q is stored after the object could be, want 6", cp.RV)
			}
			keys, err := r.inf.GetIndexer().IndexKeys("v", "3")
			if err != nil || !slices.Equal(keys, []string{"default/a"}) {
				t.Errorf("IndexKeys = %v, %v", keys, err)
			}
			r.end()
		})
	}
}

func copyOf(w *world) string {
	path := strings.TrimSuffix(w.path, ".db") + "-copy.db"
	copyFile(w.T, w.path, path)
	return path
}

func TestTransform(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		calls := 0
		transform := func(inf *informer.Informer) {
			err := inf.SetTransform(func(obj any) (any, error) {
				calls++
				cm := obj.(*corev1.ConfigMap)
				if cm.Data["v"] == "bad" {
					return nil, errOnPurpose
				}
				cm.Data["v"] += "!"
				return cm, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		l := &log{}
		r := w.run(informer.Options{TransformVersion: "1"}, transform, handle(w, l)).sync()
		w.want(l, "initial a@2=1!", "initial b@3=1!")
		if calls != 2 {
			t.Errorf("transform ran %d times for 2 objects", calls)
		}
		w.put("a", "2")
		w.want(l, "update a@2=1! a@4=2!")
		w.put("b", "bad")
		w.put("a", "3")
		waitFor(time.Minute)
		if got := l.take(); !contains(got, "a@6=3!") || contains(got, "bad") {
			t.Errorf("handler was told %v", got)
		}
		if err := r.inf.SetTransform(nil); err == nil {
			t.Error("a transform was set on a running informer")
		}
		w.put("b", "3")
		w.want(l, "update b@3=1! b@7=3!")
		r.end()

		// The same version starts warm; another version, or none, starts cold.
		for _, c := range []struct {
			version string
			cold    bool
		}{{"1", false}, {"2", true}, {"", true}, {"", true}} {
			before := len(w.server.Requests())
			r := w.run(informer.Options{TransformVersion: c.version}, transform).sync()
			if cold := len(w.lists(before)) > 0; cold != c.cold {
				t.Errorf("version %q: listed: %v, want %v", c.version, cold, c.cold)
			}
			r.end()
		}
	})
}

// TestIndexesSurvive checks that entries with an identity are not computed again.
func TestIndexesSurvive(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		w.put("b", "y")
		calls := 0
		idx := index.Index{Name: "v", Version: "1", Func: func(obj any) ([]string, error) {
			calls++
			return []string{obj.(*corev1.ConfigMap).Data["v"]}, nil
		}}
		opts := informer.Options{Indexes: []index.Index{idx}, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
		w.run(opts).sync().end()
		calls = 0
		r := w.run(opts).sync()
		if calls != 0 {
			t.Errorf("the index function ran %d times at a warm start", calls)
		}
		keys, err := r.inf.GetIndexer().IndexKeys("v", "x")
		if err != nil || !slices.Equal(keys, []string{"default/a"}) {
			t.Errorf("IndexKeys = %v, %v", keys, err)
		}
		if err := r.inf.AddIndexers(cache.Indexers{"late": byValue(new(bool), false)}); err != nil {
			t.Error(err)
		}
		objs, err := r.inf.GetIndexer().ByIndex("late", "y")
		if err != nil || len(objs) != 1 {
			t.Errorf("ByIndex = %v, %v", objs, err)
		}
		r.end()
		if objs := r.inf.GetStore().List(); objs != nil {
			t.Errorf("List() = %v after the backend was closed", objs)
		}
	})
}

// TestSameScopeTwice checks that the second informer of a scope runs in memory.
func TestSameScopeTwice(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		first := w.run(informer.Options{}).sync()
		second := w.run(informer.Options{Backend: first.db}).sync()
		if first.inf.Status().Memory != "" || !strings.Contains(second.inf.Status().Memory, "in use") {
			t.Errorf("memory: %q and %q", first.inf.Status().Memory, second.inf.Status().Memory)
		}
		if got := len(second.inf.GetStore().List()); got != 1 {
			t.Errorf("the second informer holds %d objects", got)
		}
		second.end()
		first.end()
	})
}

func TestSecretsStayInMemory(t *testing.T) {
	path := t.TempDir() + "/informers.db"
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, path: path, server: fakeapi.New(&corev1.Secret{}, &corev1.SecretList{}, fakeapi.Options{})}
		secret := &corev1.Secret{Data: map[string][]byte{"password": []byte("hunter2")}}
		secret.Name, secret.Namespace = "s", "default"
		if _, err := w.server.Create(secret); err != nil {
			t.Fatal(err)
		}
		db := w.open()
		inf, err := informer.New(w.server, &corev1.Secret{}, informer.Options{Backend: db})
		if err != nil {
			t.Fatal(err)
		}
		r := &run{w: w, inf: inf, db: db, done: make(chan struct{})}
		r.start()
		r.sync()
		if got := len(inf.GetStore().List()); got != 1 {
			t.Errorf("%d Secrets are held", got)
		}
		if !strings.Contains(inf.Status().Memory, "a Secret") {
			t.Errorf("memory: %q", inf.Status().Memory)
		}
		r.end()
		if objects, _ := w.stored(w.path); len(objects) > 0 {
			t.Errorf("stored: %v", objects)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	_, err := informer.New(nil, &corev1.ConfigMap{}, informer.Options{})
	if diff := cmp.Diff("informer: ListerWatcher is nil", errorText(err)); diff != "" {
		t.Error(diff)
	}
	if _, err := informer.New(server, nil, informer.Options{}); !strings.Contains(errorText(err), "example") {
		t.Errorf("nil example: %v", err)
	}
	if _, err := informer.New(server, (*corev1.ConfigMap)(nil), informer.Options{}); err != nil {
		t.Errorf("a typed nil is an example of its type: %v", err)
	}
	opts := informer.Options{}
	opts.Scope.LabelSelector = "a in ("
	if _, err := informer.New(server, &corev1.ConfigMap{}, opts); !strings.Contains(errorText(err), `label selector "a in ("`) {
		t.Errorf("bad selector: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestTransformRemoved checks that a start without a transform does not resume the result
// of a transform without a version.
func TestTransformRemoved(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "whole")
		w.run(informer.Options{}, func(inf *informer.Informer) {
			if err := inf.SetTransform(func(obj any) (any, error) {
				obj.(*corev1.ConfigMap).Data = nil
				return obj, nil
			}); err != nil {
				t.Error(err)
			}
		}).sync().end()
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l)).sync()
		w.want(l, "initial a@2=whole")
		r.end()
	})
}
