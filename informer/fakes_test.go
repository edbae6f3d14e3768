package informer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgodynamicinformer "k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clientgometadatainformer "k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/dynamicinformer"
	"github.com/informctl/informctl/informer/metadatainformer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// These tests cover programs that replace client-go's informer by ours and have unit
// tests on fakes. They do what authors of unit tests do with fakes, on client-go's
// informer, and on ours on a file and in memory. Handlers must receive the same and the
// lister must contain the same, before the patience of an author ends.

// These are the informers on which each row runs.
const (
	isClientGo = "client-go"
	isBolt     = "bolt"
	isMem      = "memory"
)

// authorsPatience is how much later than client-go's informer ours may send a
// notification: most unit tests wait for at least five seconds.
const authorsPatience = 4 * time.Second

// call is one notification of a handler.
type call struct {
	What     string
	Initial  bool
	Old, Obj any
}

// seenByAuthor is the compared state.
type seenByAuthor struct {
	Synced bool
	Told   []call
	Late   []call // notifications of a handler that was added at the end
	Held   []any  // from the lister
	Notes  []string
}

// author represents the author of a unit test, with one of the informers.
type author struct {
	*testing.T
	which   string
	backend store.Backend // nil: no backend

	actions func() []clienttesting.Action // requests that the fake received; may be nil

	mu      sync.Mutex
	since   time.Time // time of the author's last action
	slowest time.Duration
	told    []call
	notes   []string
}

// requests returns the lists and watches that the fake received.
func (a *author) requests() (lines []string) {
	if a.actions == nil {
		return nil
	}
	for _, action := range a.actions() {
		var o metav1.ListOptions
		switch action := action.(type) {
		case clienttesting.ListActionImpl:
			o = action.ListOptions
		case clienttesting.WatchActionImpl:
			o = action.ListOptions
		default:
			continue
		}
		line := fmt.Sprintf("%s at %q", action.GetVerb(), o.ResourceVersion)
		if o.Limit > 0 {
			line += fmt.Sprintf(" limit %d", o.Limit)
		}
		if o.Continue != "" {
			line += " continued"
		}
		if o.SendInitialEvents != nil {
			line += " streamed"
		}
		lines = append(lines, line)
	}
	return lines
}

func (a *author) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

func (a *author) must(_ any, err error) {
	a.Helper()
	if err != nil {
		a.Error(err)
	}
}

// recorder returns a handler made of functions, like those of authors.
func (a *author) recorder(to *[]call) cache.ResourceEventHandler {
	record := func(c call) {
		c.Old, c.Obj = copied(c.Old), copied(c.Obj)
		a.mu.Lock()
		defer a.mu.Unlock()
		*to = append(*to, c)
		a.slowest = max(a.slowest, time.Since(a.since))
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { record(call{What: "add", Initial: initial, Obj: obj}) },
		UpdateFunc: func(old, obj any) { record(call{What: "update", Old: old, Obj: obj}) },
		DeleteFunc: func(obj any) { record(call{What: "delete", Obj: obj}) },
	}
}

// copied returns a copy of an object: fakes change the objects that they return.
func copied(obj any) any {
	switch o := obj.(type) {
	case cache.DeletedFinalStateUnknown:
		o.Obj = copied(o.Obj)
		return o
	case runtime.Object:
		return o.DeepCopyObject()
	}
	return obj
}

// act is one run of a row: an informer on a fake, and the author's later steps.
type act struct {
	inf   cache.SharedIndexInformer
	start func(ctx context.Context) (wait func()) // nil: inf.Run is called
	steps []func()
	end   func() // ends the fake; may be nil
}

// on returns the act of an informer on a ListerWatcher.
func (a *author) on(lw cache.ListerWatcher, example runtime.Object, steps ...func()) act {
	return act{inf: a.informer(lw, example), steps: steps}
}

func (a *author) informer(lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if a.which == isClientGo {
		return cache.NewSharedIndexInformer(lw, example, 0, indexers)
	}
	inf, err := informer.New(lw, example, informer.Options{Backend: a.backend, Indexers: indexers})
	if err != nil {
		a.Fatal(err)
	}
	return inf
}

// notOfFactory is a part of the reason why the informers of a factory with a fake are in
// memory.
const notOfFactory = "its ListerWatcher's client was not made from the rest.Config"

// factory returns our Factory. A fake does not use its transport.
func (a *author) factory() *informer.Factory {
	backend := a.backend
	if backend == nil {
		backend = mem.New()
	}
	f, err := informer.NewFactory(backend, &rest.Config{Host: "http://localhost:1"}, informer.FactoryOptions{})
	if err != nil {
		a.Fatal(err)
	}
	return f
}

// fakeRow describes the author's use of a fake.
type fakeRow struct {
	name     string
	inMemory string // part of the reason why ours is in memory
	anyOrder bool   // the fake has no order across objects
	// client-go's informer sends the unchanged objects of a relist, ours does not.
	relists bool
	// client-go's informer sends the deletion of an unknown object, ours does not.
	unheld bool
	// Objects contain values that no server sends, and that are lost in the file.
	asSent bool
	make   func(a *author) act
}

// run runs a row on one of the informers. The author waits after each step, or continues
// at once.
func (r fakeRow) run(t *testing.T, which string, waits bool) (o seenByAuthor, slowest time.Duration, requests []string) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		a := &author{T: t, which: which, since: time.Now()}
		if which == isBolt {
			db, err := bolt.Open(path, bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			a.backend = db
		}
		p := r.make(a)
		// client-go's default handler sleeps for decades in a bubble.
		quiet := func(context.Context, *cache.Reflector, error) {}
		a.must(nil, p.inf.SetWatchErrorHandlerWithContext(quiet))
		handle, err := p.inf.AddEventHandler(a.recorder(&a.told))
		a.must(handle, err)
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		if p.start == nil {
			p.start = func(ctx context.Context) func() {
				done := make(chan struct{})
				go func() {
					defer close(done)
					p.inf.RunWithContext(ctx)
				}()
				return func() { <-done }
			}
		}
		wait := p.start(ctx)
		select {
		case <-p.inf.HasSyncedChecker().Done():
			<-handle.HasSyncedChecker().Done()
			o.Synced = p.inf.HasSynced() && handle.HasSynced()
		case <-time.After(10 * time.Minute):
		}
		synctest.Wait()
		for _, step := range p.steps {
			a.mu.Lock()
			a.since = time.Now()
			a.mu.Unlock()
			if step(); waits {
				waitFor(10 * time.Second)
			}
		}
		waitFor(time.Minute)
		requests = a.requests()
		if ours, ok := p.inf.(*informer.Informer); ok && which == isBolt {
			if why := ours.Status().Memory; (why == "") != (r.inMemory == "") || !strings.Contains(why, r.inMemory) {
				a.Errorf("not on the file because %q, want %q", why, r.inMemory)
			}
		}
		a.mu.Lock()
		slowest, o.Told = a.slowest, sortedCalls(a.told, r.anyOrder)
		if r.unheld && which == isClientGo {
			held := map[string]bool{}
			o.Told = slices.DeleteFunc(o.Told, func(c call) bool {
				was := held[keyIn(c.Obj)]
				held[keyIn(c.Obj)] = c.What != "delete"
				return c.What == "delete" && !was
			})
		}
		if r.relists {
			o.Told = slices.DeleteFunc(o.Told, func(c call) bool { return c.What == "update" && cmp.Equal(c.Old, c.Obj) })
		}
		a.mu.Unlock()
		var late []call
		_, err = p.inf.AddEventHandler(a.recorder(&late))
		a.must(nil, err)
		synctest.Wait()
		a.mu.Lock()
		o.Late = sortedCalls(late, true)
		a.mu.Unlock()
		o.Held = a.listed(p.inf.GetIndexer())
		a.since = time.Now()
		stop()
		wait()
		slowest = max(slowest, time.Since(a.since))
		if p.end != nil {
			p.end()
		}
		o.Notes = a.notes
	})
	return o, slowest, requests
}

// sortedCalls sorts the calls that have no order by key: the initial adds, or all.
func sortedCalls(told []call, anyOrder bool) []call {
	told = slices.Clone(told)
	sorted := told
	if n := slices.IndexFunc(told, func(c call) bool { return !c.Initial }); n >= 0 && !anyOrder {
		sorted = told[:n]
	}
	slices.SortStableFunc(sorted, func(x, y call) int { return strings.Compare(keyIn(x.Obj), keyIn(y.Obj)) })
	return told
}

func keyIn(obj any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return err.Error()
	}
	return key
}

// listed returns the objects of a lister, read in each possible way.
func (a *author) listed(indexer cache.Indexer) (held []any) {
	lister := cache.NewGenericLister(indexer, schema.GroupResource{Resource: "things"})
	all, err := lister.List(labels.Everything())
	a.must(all, err)
	for _, obj := range all {
		held = append(held, obj)
	}
	slices.SortFunc(held, func(x, y any) int { return strings.Compare(keyIn(x), keyIn(y)) })
	for _, obj := range held {
		namespace, name, err := cache.SplitMetaNamespaceKey(keyIn(obj))
		a.must(name, err)
		get := lister.Get
		if namespace != "" {
			get = lister.ByNamespace(namespace).Get
		}
		one, err := get(name)
		a.must(one, err)
		if diff := cmp.Diff(obj, any(one)); diff != "" {
			a.Errorf("the lister lists and gets different objects (-list +get):\n%s", diff)
		}
	}
	return held
}

// TestFakes checks that our informer behaves on a fake like client-go's.
func TestFakes(t *testing.T) {
	quietErrors(t)
	for _, row := range slices.Concat(clientsetRows(), watchRows(), listRows(), listWatchRows(), sourceRows(), otherClientRows(), factoryRows()) {
		t.Run(row.name, func(t *testing.T) {
			for pace, waits := range map[string]bool{"waiting": true, "at once": false} {
				t.Run(pace, func(t *testing.T) {
					want, usual, _ := row.run(t, isClientGo, waits)
					if !want.Synced {
						t.Error("client-go's informer has not synced")
					}
					for _, which := range []string{isBolt, isMem} {
						got, slowest, _ := row.run(t, which, waits)
						want := want
						if row.asSent && which == isBolt {
							want, got = asSent(t, want), asSent(t, got)
						}
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("%s (-client-go +ours):\n%s", which, diff)
						}
						if later := slowest - usual; later > authorsPatience {
							t.Errorf("%s: %v later than client-go's", which, later)
						} else if later > 0 {
							t.Logf("%s: %v later than client-go's", which, later)
						}
					}
				})
			}
		})
	}
}

// asSent changes ConfigMaps to what a server would have sent: without fractions of
// seconds and empty values.
func asSent(t *testing.T, o seenByAuthor) seenByAuthor {
	sent := func(obj any) any {
		was, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return obj
		}
		is := &corev1.ConfigMap{}
		b, err := was.Marshal()
		if err == nil {
			err = is.Unmarshal(b)
		}
		if err != nil {
			t.Error(err)
		}
		is.TypeMeta = was.TypeMeta
		return is
	}
	for _, calls := range []*[]call{&o.Told, &o.Late} {
		*calls = slices.Clone(*calls)
		for i, c := range *calls {
			(*calls)[i].Old, (*calls)[i].Obj = sent(c.Old), sent(c.Obj)
		}
	}
	o.Held = slices.Clone(o.Held)
	for i, obj := range o.Held {
		o.Held[i] = sent(obj)
	}
	return o
}

// cm returns an object like authors write them.
func cm(name, rv, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: rv},
		Data:       map[string]string{"v": value},
	}
}

func ofUID(uid types.UID, obj *corev1.ConfigMap) *corev1.ConfigMap {
	obj.UID = uid
	return obj
}

func cms(items ...*corev1.ConfigMap) *corev1.ConfigMapList {
	list := &corev1.ConfigMapList{}
	for _, item := range items {
		list.Items = append(list.Items, *item)
	}
	return list
}

// ofClient lists and watches the ConfigMaps of a client like generated informers do.
func ofClient(client kubernetes.Interface, namespace string) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().ConfigMaps(namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().ConfigMaps(namespace).Watch(ctx, o)
		},
	}, client)
}

// scriptedFake is a clientset and the steps that are done through it.
type scriptedFake struct {
	*author
	*fake.Clientset
}

func (s scriptedFake) create(obj *corev1.ConfigMap) func() {
	return func() {
		s.must(s.CoreV1().ConfigMaps(obj.Namespace).Create(s.Context(), obj, metav1.CreateOptions{}))
	}
}

func (s scriptedFake) update(obj *corev1.ConfigMap) func() {
	return func() {
		s.must(s.CoreV1().ConfigMaps(obj.Namespace).Update(s.Context(), obj, metav1.UpdateOptions{}))
	}
}

func (s scriptedFake) remove(name string) func() {
	return func() {
		s.must(nil, s.CoreV1().ConfigMaps("default").Delete(s.Context(), name, metav1.DeleteOptions{}))
	}
}

func (s scriptedFake) play(steps ...func()) act {
	return s.on(ofClient(s.Clientset, ""), &corev1.ConfigMap{}, steps...)
}

func simple(a *author, objects ...runtime.Object) scriptedFake {
	client := fake.NewSimpleClientset(objects...)
	a.actions = client.Actions
	return scriptedFake{a, client}
}

func managed(a *author, objects ...runtime.Object) scriptedFake {
	client := fake.NewClientset(objects...)
	a.actions = client.Actions
	return scriptedFake{a, client}
}

// clientsetRows returns the rows for fake clientsets.
func clientsetRows() (rows []fakeRow) {
	type clientset func(a *author, objects ...runtime.Object) scriptedFake
	for name, with := range map[string]func(clientset, *author) act{
		"nothing": func(client clientset, a *author) act {
			s := client(a)
			return s.play(s.create(cm("a", "", "1")), s.remove("a"), s.create(cm("a", "", "2")))
		},
		"no resource versions": func(client clientset, a *author) act {
			s := client(a, cm("b", "", "1"), cm("a", "", "1"))
			return s.play(s.create(cm("c", "", "1")), s.update(cm("a", "", "2")), s.remove("b"), s.create(cm("b", "", "3")), s.update(cm("b", "", "4")))
		},
		"resource versions in any order": func(client clientset, a *author) act {
			s := client(a, cm("c", "30", "1"), cm("a", "7", "1"), cm("b", "100", "1"))
			return s.play(
				s.create(cm("d", "5", "1")), s.update(cm("a", "6", "2")), s.update(cm("a", "6", "3")), s.update(cm("a", "", "4")),
				s.remove("c"), s.create(cm("c", "1", "2")), s.update(cm("c", "200", "3")), s.create(cm("e", "150", "1")), s.remove("e"))
		},
		"a high resource version, then low ones": func(client clientset, a *author) act {
			s := client(a)
			return s.play(s.create(cm("a", "5000", "1")), s.create(cm("b", "1", "1")), s.create(cm("c", "2", "1")), s.remove("c"), s.remove("a"), s.update(cm("b", "3", "2")))
		},
		"small resource versions": func(client clientset, a *author) act {
			s := client(a, cm("a", "1", "1"), cm("b", "1", "1"), cm("c", "1", "1"), cm("d", "1", "1"))
			return s.play(s.update(cm("a", "2", "2")), s.update(cm("b", "2", "2")), s.update(cm("a", "3", "3")), s.remove("a"),
				s.remove("b"), s.create(cm("b", "1", "3")))
		},
		"resource versions that fall": func(client clientset, a *author) act {
			s := client(a)
			return s.play(s.create(cm("a", "1000", "1")), s.update(cm("a", "999", "2")), s.remove("a"), s.create(cm("a", "1", "3")),
				s.create(cm("b", "2000", "1")), s.update(cm("a", "2", "4")), s.remove("b"), s.update(cm("a", "3", "5")), s.create(cm("b", "3", "2")))
		},
		"equal resource versions": func(client clientset, a *author) act {
			s := client(a, cm("b", "1", "1"), cm("a", "1", "1"))
			return s.play(s.update(cm("a", "1", "2")), s.update(cm("a", "1", "2")), s.remove("b"), s.create(cm("b", "1", "2")), s.create(cm("c", "1", "1")))
		},
		"resource versions that are no numbers": func(client clientset, a *author) act {
			s := client(a, cm("b", "z", "1"), cm("a", "old", "1"))
			return s.play(s.update(cm("a", "new", "2")), s.update(cm("a", "0", "3")), s.remove("b"), s.create(cm("b", "007", "2")), s.create(cm("c", "-1", "1")))
		},
		"objects of all sorts": func(client clientset, a *author) act {
			strange := cm("strange", "", "1")
			strange.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
			strange.Labels, strange.Annotations, strange.Finalizers = map[string]string{}, map[string]string{}, []string{}
			strange.Data, strange.BinaryData = map[string]string{}, map[string][]byte{"empty": {}}
			strange.UID, strange.CreationTimestamp = types.UID("1"), metav1.NewTime(time.Unix(1700000000, 123456789))
			again := strange.DeepCopy()
			again.DeletionTimestamp, again.Immutable = &metav1.Time{Time: time.Unix(1700000001, 5)}, new(bool)
			s := client(a, strange)
			return s.play(s.update(again), s.create(cm("other", "", "1")), s.remove("other"))
		},
		"what changes nothing": func(client clientset, a *author) act {
			s := client(a, cm("a", "", "1"), cm("b", "3", "1"))
			return s.play(s.update(cm("a", "", "1")), s.update(cm("b", "3", "1")), s.update(cm("b", "3", "1")))
		},
		"patches": func(client clientset, a *author) act {
			s := client(a, cm("a", "", "1"))
			patch := func(body string) func() {
				return func() {
					s.must(s.CoreV1().ConfigMaps("default").Patch(a.Context(), "a", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}))
				}
			}
			return s.play(patch(`{"data":{"v":"2"}}`), patch(`{"metadata":{"labels":{"x":"y"}}}`))
		},
		// The fakes ignore it.
		"delete collection": func(client clientset, a *author) act {
			s := client(a, cm("a", "", "1"), cm("b", "", "1"))
			return s.play(func() {
				a.must(nil, s.CoreV1().ConfigMaps("default").DeleteCollection(a.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			}, s.remove("a"))
		},
		"delete collection, by a reactor": func(client clientset, a *author) act {
			s := client(a, cm("a", "1", "1"), cm("b", "5", "1"), cm("c", "3", "1"))
			configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
			s.PrependReactor("delete-collection", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				for _, name := range []string{"a", "b", "c"} {
					a.must(nil, s.Tracker().Delete(configMaps, "default", name))
				}
				return true, nil, nil
			})
			return s.play(func() {
				a.must(nil, s.CoreV1().ConfigMaps("default").DeleteCollection(a.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			})
		},
		"one namespace": func(client clientset, a *author) act {
			other := cm("b", "", "1")
			other.Namespace = "other"
			s := client(a, cm("a", "", "1"), other)
			changed := other.DeepCopy()
			changed.Data["v"] = "2"
			return s.on(ofClient(s.Clientset, "default"), &corev1.ConfigMap{}, s.update(changed), s.update(cm("a", "", "2")))
		},
		"more than a page": func(client clientset, a *author) act {
			var objects []runtime.Object
			for i := range 600 {
				objects = append(objects, cm(fmt.Sprintf("o-%03d", i), fmt.Sprint(600-i), "1"))
			}
			s := client(a, objects...)
			return s.play(s.update(cm("o-001", "1", "2")), s.remove("o-599"))
		},
		"as much as a watch of the fake holds": func(client clientset, a *author) act {
			s := client(a)
			return s.play(func() {
				for i := range 100 {
					s.create(cm(fmt.Sprintf("o-%03d", i), fmt.Sprint(100-i), "1"))()
				}
			})
		},
	} {
		for kind, client := range map[string]clientset{"NewSimpleClientset": simple, "NewClientset": managed} {
			if kind == "NewClientset" && name == "more than a page" {
				continue // its setup takes seconds
			}
			rows = append(rows, fakeRow{
				name: kind + "/" + name, asSent: name == "objects of all sorts",
				make: func(a *author) act { return with(client, a) },
			})
		}
	}
	return append(
		rows,
		fakeRow{name: "clientset/Secrets", inMemory: "without a key", make: func(a *author) act {
			secret := func(v string) *corev1.Secret {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, StringData: map[string]string{"v": v}}
			}
			s := simple(a, secret("1"))
			lw := cache.ToListWatcherWithWatchListSemantics(withoutContext(
				func(o metav1.ListOptions) (runtime.Object, error) {
					return s.CoreV1().Secrets("").List(a.Context(), o)
				},
				func(o metav1.ListOptions) (watch.Interface, error) {
					return s.CoreV1().Secrets("").Watch(a.Context(), o)
				},
			), s.Clientset)
			return a.on(lw, &corev1.Secret{}, func() {
				a.must(s.CoreV1().Secrets("default").Update(a.Context(), secret("2"), metav1.UpdateOptions{}))
			})
		}},
		fakeRow{name: "clientset/removed through the indexer, too", make: func(a *author) act {
			s := simple(a, cm("a", "1", "1"), cm("b", "1", "1"))
			p := s.play()
			remove := func(name string) func() {
				return func() { a.must(nil, p.inf.GetIndexer().Delete(cm(name, "1", "1"))) }
			}
			p.steps = []func(){remove("a"), s.remove("a"), remove("b"), s.create(cm("c", "2", "1")), s.remove("b"), s.create(cm("a", "3", "1"))}
			return p
		}},
		// As in client-go's examples/fake-client.
		fakeRow{name: "clientset/started watch", make: func(a *author) act {
			s := simple(a)
			started := make(chan struct{})
			s.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
				select {
				case <-started:
					a.note("a second watch, at which the author closes a closed channel")
				default:
					close(started)
				}
				w, err := s.Tracker().Watch(action.GetResource(), action.GetNamespace())
				return true, w, err
			})
			return s.play(func() { <-started }, s.create(cm("a", "1", "1")), s.update(cm("a", "2", "2")), s.create(cm("b", "1", "1")), s.update(cm("b", "2", "1")), s.remove("a"))
		}},
		fakeRow{name: "clientset/started watch, falling resource versions", make: func(a *author) act {
			s := simple(a)
			watches := 0
			s.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
				if watches++; watches == 2 {
					a.note("a second watch, at which the author closes a closed channel")
				}
				w, err := s.Tracker().Watch(action.GetResource(), action.GetNamespace())
				return true, w, err
			})
			return s.play(s.create(cm("a", "500", "1")), s.create(cm("b", "1", "1")), s.remove("a"), s.update(cm("b", "2", "2")))
		}},
	)
}

// handFed is a watch whose events the author sends.
type handFed interface {
	watch.Interface
	Action(watch.EventType, runtime.Object)
	IsStopped() bool
}

// feed sends an event to a watch. If that fails, it fails the author's test.
func (a *author) feed(w handFed, t watch.EventType, obj runtime.Object) func() {
	return func() {
		if w.IsStopped() {
			a.note("%s of %s: the watch was stopped, an unbuffered one panics", t, keyIn(obj))
			return
		}
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			defer func() {
				if recover() != nil {
					a.note("%s of %s: the watch was stopped meanwhile", t, keyIn(obj))
				}
			}()
			w.Action(t, obj)
		}()
		select {
		case <-taken:
		case <-time.After(time.Minute):
			a.note("%s of %s: nobody takes it", t, keyIn(obj))
			for {
				select {
				case <-taken:
					return
				case <-w.ResultChan():
				}
			}
		}
	}
}

// fed returns a clientset whose watches the author feeds: the first request gets the
// first watch, requests after the last watch get the last one.
func fed(a *author, watches []handFed, objects ...runtime.Object) scriptedFake {
	s := simple(a, objects...)
	n := 0
	s.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watches[min(n, len(watches)-1)]
		n++
		return true, w, nil
	})
	return s
}

// keepsOn is a watch whose Stop does nothing; some authors write such watches.
type keepsOn struct{ *watch.FakeWatcher }

func (keepsOn) Stop() {}

// watchRows returns the rows for watch reactors.
func watchRows() []fakeRow {
	type event struct {
		t   watch.EventType
		obj runtime.Object
	}
	var (
		added    = func(name, rv, v string) event { return event{watch.Added, cm(name, rv, v)} }
		modified = func(name, rv, v string) event { return event{watch.Modified, cm(name, rv, v)} }
		deleted  = func(name, rv, v string) event { return event{watch.Deleted, cm(name, rv, v)} }
	)
	var rows []fakeRow
	for name, script := range map[string]struct {
		objects []runtime.Object
		events  []event
	}{
		"rising":       {nil, []event{added("a", "10", "1"), modified("a", "11", "2"), added("b", "12", "1"), deleted("a", "13", "2"), added("a", "14", "3")}},
		"no versions":  {[]runtime.Object{cm("z", "", "1")}, []event{added("a", "", "1"), modified("a", "", "2"), deleted("z", "", "1"), deleted("a", "", "2"), added("a", "", "3")}},
		"falling":      {[]runtime.Object{cm("z", "50", "1")}, []event{added("a", "100", "1"), modified("a", "20", "2"), added("b", "3", "1"), modified("b", "1", "2"), deleted("a", "1", "2")}},
		"lower twice":  {nil, []event{added("a", "200", "1"), added("b", "100", "1"), modified("a", "300", "2"), modified("b", "150", "2"), deleted("a", "5", "2")}},
		"equal":        {[]runtime.Object{cm("z", "1", "1")}, []event{added("a", "1", "1"), modified("a", "1", "2"), deleted("z", "1", "1"), modified("a", "1", "3")}},
		"no numbers":   {nil, []event{added("a", "x", "1"), modified("a", "y", "2"), added("b", "5", "1"), deleted("a", "z", "2")}},
		"mixed":        {nil, []event{added("a", "", "1"), modified("a", "7", "2"), added("b", "", "1"), modified("b", "2", "2"), modified("a", "x", "3"), deleted("b", "3", "2")}},
		"added twice":  {[]runtime.Object{cm("z", "1", "1")}, []event{added("a", "10", "1"), added("a", "11", "2"), added("z", "12", "2")}},
		"not there":    {nil, []event{modified("a", "10", "1"), deleted("a", "11", "1")}},
		"never there":  {nil, []event{deleted("a", "10", "1"), added("b", "11", "1")}},
		"other last":   {[]runtime.Object{cm("a", "1", "1")}, []event{deleted("a", "9", "last words")}},
		"another UID":  {[]runtime.Object{ofUID("1", cm("a", "1", "1"))}, []event{{watch.Deleted, ofUID("2", cm("a", "9", "2"))}}},
		"bookmarks":    {nil, []event{{watch.Bookmark, cm("", "20", "")}, added("a", "21", "1"), {watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "30"}}}, modified("a", "31", "2")}},
		"another type": {nil, []event{added("a", "10", "1"), {watch.Added, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", ResourceVersion: "11"}}}, added("b", "12", "1")}},
		"unknown type": {nil, []event{added("a", "10", "1"), {"STRANGE", cm("a", "11", "1")}, added("b", "12", "1")}},
		"no name":      {nil, []event{added("a", "10", "1"), added("", "11", "1"), added("b", "12", "1")}},
		"no namespace": {nil, []event{{watch.Added, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, {watch.Modified, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"v": "2"}}}}},
	} {
		for kind, w := range map[string]func() handFed{
			"NewFake":         func() handFed { return watch.NewFake() },
			"NewRaceFreeFake": func() handFed { return watch.NewRaceFreeFake() },
		} {
			rows = append(rows, fakeRow{name: "watch/" + kind + "/" + name, unheld: name == "never there", make: func(a *author) act {
				fw := w()
				s := fed(a, []handFed{fw}, script.objects...)
				var steps []func()
				for _, e := range script.events {
					steps = append(steps, a.feed(fw, e.t, e.obj.DeepCopyObject()))
				}
				return s.play(steps...)
			}})
		}
	}
	failing := func(name string, times int, err error) fakeRow {
		return fakeRow{name: "watch/reactor/" + name, relists: true, make: func(a *author) act {
			s := simple(a, cm("a", "1", "1"))
			s.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
				times--
				return times >= 0, nil, err
			})
			return s.play(func() { waitFor(time.Minute) }, s.create(cm("b", "7", "1")), s.update(cm("a", "8", "2")))
		}}
	}
	return append(
		rows,
		failing("fails once", 1, errOnPurpose),
		failing("fails three times", 3, apierrors.NewInternalError(errOnPurpose)),
		failing("too many requests", 2, apierrors.NewTooManyRequestsError("on purpose")),
		failing("expired", 1, apierrors.NewResourceExpired("on purpose")),
		fakeRow{name: "watch/closed after events", relists: true, make: func(a *author) act {
			first, second := watch.NewFake(), watch.NewRaceFreeFake()
			s := fed(a, []handFed{first, second})
			return s.play(a.feed(first, watch.Added, cm("a", "5", "1")), first.Stop,
				a.feed(second, watch.Modified, cm("a", "6", "2")), a.feed(second, watch.Added, cm("b", "7", "1")))
		}},
		fakeRow{name: "watch/closed after events, no resource versions", relists: true, make: func(a *author) act {
			first, second := watch.NewFake(), watch.NewRaceFreeFake()
			s := fed(a, []handFed{first, second})
			return s.play(a.feed(first, watch.Added, cm("a", "", "1")), first.Stop, a.feed(second, watch.Modified, cm("a", "", "2")))
		}},
		fakeRow{name: "watch/closed at once", relists: true, make: func(a *author) act {
			first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
			first.Stop()
			s := fed(a, []handFed{first, second}, cm("a", "1", "1"))
			return s.play(a.feed(second, watch.Modified, cm("a", "6", "2")), a.feed(second, watch.Deleted, cm("a", "6", "2")))
		}},
		fakeRow{name: "watch/closed three times", relists: true, make: func(a *author) act {
			var watches []handFed
			for range 4 {
				watches = append(watches, watch.NewRaceFreeFake())
			}
			s := fed(a, watches)
			var steps []func()
			for i, w := range watches {
				steps = append(steps, a.feed(w, watch.Added, cm(fmt.Sprint("o-", i), fmt.Sprint(10+i), "1")), w.Stop)
			}
			return s.play(steps[:len(steps)-1]...)
		}},
		fakeRow{name: "watch/closed before objects change", relists: true, make: func(a *author) act {
			s := simple(a, cm("a", "1", "1"), cm("b", "1", "1"))
			var watches []watch.Interface
			s.PrependWatchReactor("configmaps", func(action clienttesting.Action) (bool, watch.Interface, error) {
				w, err := s.Tracker().Watch(action.GetResource(), "", action.(clienttesting.WatchActionImpl).ListOptions)
				watches = append(watches, w)
				return true, w, err
			})
			// The fake numbers like this.
			return s.play(s.update(cm("a", "4", "2")), func() {
				watches[len(watches)-1].Stop()
				synctest.Wait() // wait for the next watch: the fake replays nothing
				s.create(cm("c", "5", "1"))()
			}, s.update(cm("c", "6", "2")))
		}},
		fakeRow{name: "watch/closed in silence before objects change", relists: true, make: func(a *author) act {
			s := simple(a, cm("a", "1", "1"))
			var last watch.Interface
			s.PrependWatchReactor("configmaps", func(action clienttesting.Action) (bool, watch.Interface, error) {
				var err error
				last, err = s.Tracker().Watch(action.GetResource(), "", action.(clienttesting.WatchActionImpl).ListOptions)
				return true, last, err
			})
			return s.play(func() {
				waitFor(2 * time.Second)
				last.Stop()
				synctest.Wait() // wait for the next watch: the fake replays no deletion
				s.remove("a")()
			})
		}},
		// The same, of watches that a list follows.
		fakeRow{name: "watch/fails before objects change", relists: true, make: func(a *author) act {
			s := simple(a, cm("a", "1", "1"))
			failed := false
			s.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
				defer func() { failed = true }()
				return !failed, nil, errOnPurpose
			})
			return s.play(func() {
				s.remove("a")()
				s.create(cm("b", "5", "1"))()
			})
		}},
		fakeRow{name: "watch/closed at once before objects change", relists: true, make: func(a *author) act {
			first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
			first.Stop()
			s := fed(a, []handFed{first, second}, cm("a", "1", "1"))
			return s.play(s.remove("a"))
		}},
		fakeRow{name: "watch/error event before objects change", relists: true, make: func(a *author) act {
			first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
			s := fed(a, []handFed{first, second}, cm("a", "1", "1"))
			status := apierrors.NewInternalError(errOnPurpose).Status()
			return s.play(func() {
				first.Error(&status)
				synctest.Wait()
				s.remove("a")()
			})
		}},
		fakeRow{name: "watch/error event, expired", relists: true, make: func(a *author) act {
			first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
			s := fed(a, []handFed{first, second}, cm("a", "1", "1"), cm("b", "1", "1"))
			status := apierrors.NewResourceExpired("on purpose").Status()
			return s.play(a.feed(first, watch.Added, cm("a", "5", "2")), s.remove("b"), func() { first.Error(&status) },
				func() { waitFor(10 * time.Second) }, a.feed(second, watch.Added, cm("c", "9", "1")))
		}},
		fakeRow{name: "watch/error event, internal", relists: true, make: func(a *author) act {
			first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
			s := fed(a, []handFed{first, second}, cm("a", "1", "1"))
			status := apierrors.NewInternalError(errOnPurpose).Status()
			return s.play(func() { first.Error(&status) }, func() { waitFor(10 * time.Second) }, a.feed(second, watch.Modified, cm("a", "9", "2")))
		}},
		fakeRow{name: "watch/error event, then the same watch", relists: true, make: func(a *author) act {
			w := keepsOn{watch.NewFake()}
			s := fed(a, []handFed{w}, cm("a", "1", "1"))
			status := apierrors.NewInternalError(errOnPurpose).Status()
			return s.play(func() { w.Error(&status) }, func() { waitFor(10 * time.Second) }, a.feed(w, watch.Modified, cm("a", "9", "2")))
		}},
		fakeRow{name: "watch/never stopped", make: func(a *author) act {
			w := keepsOn{watch.NewFake()}
			s := fed(a, []handFed{w}, cm("a", "1", "1"))
			return s.play(a.feed(w, watch.Modified, cm("a", "9", "2")))
		}},
		fakeRow{name: "watch/silent for an hour", make: func(a *author) act {
			w := watch.NewFake()
			s := fed(a, []handFed{w}, cm("a", "1", "1"))
			return s.play(func() { waitFor(time.Hour) }, a.feed(w, watch.Modified, cm("a", "9", "2")))
		}},
		fakeRow{name: "watch/tracker silent for an hour", make: func(a *author) act {
			s := simple(a, cm("a", "1", "1"), cm("b", "1", "1"))
			return s.play(func() { waitFor(time.Hour) }, s.update(cm("a", "9", "2")), s.remove("b"))
		}},
	)
}

// listRows returns the rows for list reactors.
func listRows() []fakeRow {
	type answer struct {
		list runtime.Object
		err  error
	}
	listing := func(name string, answers []answer, steps func(s scriptedFake, w handFed) []func()) fakeRow {
		return fakeRow{name: "list/" + name, make: func(a *author) act {
			w := watch.NewRaceFreeFake()
			s := fed(a, []handFed{w})
			n := 0
			s.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				now := answers[min(n, len(answers)-1)]
				n++
				return true, now.list, now.err
			})
			return s.play(steps(s, w)...)
		}}
	}
	some := func(s scriptedFake, w handFed) []func() {
		return []func(){
			s.feed(w, watch.Added, cm("c", "20", "1")), s.feed(w, watch.Modified, cm("a", "21", "2")), s.feed(w, watch.Deleted, cm("a", "22", "2")),
		}
	}
	lower := func(s scriptedFake, w handFed) []func() {
		return []func(){
			s.feed(w, watch.Added, cm("c", "3", "1")), s.feed(w, watch.Modified, cm("a", "4", "2")), s.feed(w, watch.Deleted, cm("b", "5", "1")),
		}
	}
	between := func(s scriptedFake, w handFed) []func() {
		return []func(){
			s.feed(w, watch.Added, cm("c", "20", "1")), s.feed(w, watch.Modified, cm("a", "4", "2")), s.feed(w, watch.Deleted, cm("c", "20", "1")),
		}
	}
	at := func(rv string) *corev1.ConfigMapList {
		list := cms(cm("b", "2", "1"), cm("a", "1", "1"))
		list.ResourceVersion = rv
		return list
	}
	broken := apierrors.NewInternalError(errOnPurpose)
	return []fakeRow{
		listing("fixed", []answer{{list: at("10")}}, some),
		listing("fixed, without a resource version", []answer{{list: at("")}}, some),
		listing("fixed, at 0", []answer{{list: at("0")}}, some),
		listing("fixed, at no number", []answer{{list: at("x")}}, some),
		listing("fixed, above its watch", []answer{{list: at("10")}}, lower),
		listing("fixed, between what its watch brings", []answer{{list: at("10")}}, between),
		listing("fixed, far above its watch", []answer{{list: at("99999")}}, lower),
		listing("nothing", []answer{{}}, some),
		listing("empty", []answer{{list: &corev1.ConfigMapList{}}}, some),
		listing("fails twice", []answer{{err: broken}, {err: broken}, {list: at("10")}}, some),
		listing("fails once, in no way that a server does", []answer{{err: errors.New("boom")}, {list: at("10")}}, some),
		listing("too many requests", []answer{{err: apierrors.NewTooManyRequests("on purpose", 1)}, {list: at("10")}}, some),
		listing("expired", []answer{{err: apierrors.NewResourceExpired("on purpose")}, {list: at("10")}}, some),
		listing("changes later", []answer{{list: at("10")}, {list: cms(cm("z", "9", "9"))}}, lower),
		listing("fails later", []answer{{list: at("10")}, {err: broken}}, lower),
		listing("a name is missing", []answer{{list: cms(cm("a", "1", "1"), cm("", "2", "2"))}}, some),
	}
}

// withoutContext returns a ListWatch in the style from before client-go had contexts.
func withoutContext(
	list func(metav1.ListOptions) (runtime.Object, error), w func(metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	//nolint:staticcheck // many fakes have these fields still
	return &cache.ListWatch{ListFunc: list, WatchFunc: w}
}

// pointerList is a list whose items are pointers.
type pointerList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*corev1.ConfigMap
}

func (l *pointerList) DeepCopyObject() runtime.Object {
	out := &pointerList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for _, item := range l.Items {
		out.Items = append(out.Items, item.DeepCopy())
	}
	return out
}

// tellTale reports that its fake does not stream lists.
type tellTale struct{}

func (tellTale) IsWatchListSemanticsUnSupported() bool { return true }

// listWatchRows returns the rows for ListWatches that are written by hand.
func listWatchRows() []fakeRow {
	// on takes a list function and a watch that the author feeds. If marked is false, the
	// ListWatch refuses to stream.
	on := func(name string, marked bool, example runtime.Object, list func(metav1.ListOptions) (runtime.Object, error)) fakeRow {
		return fakeRow{name: "ListWatch/" + name, make: func(a *author) act {
			w := watch.NewRaceFreeFake()
			listWatch := withoutContext(list, func(o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil {
					return nil, apierrors.NewBadRequest("sendInitialEvents")
				}
				return w, nil
			})
			var lw cache.ListerWatcher = listWatch
			if marked {
				lw = cache.ToListWatcherWithWatchListSemantics(listWatch, tellTale{})
			}
			return a.on(lw, example, a.feed(w, watch.Added, cm("c", "20", "1")), a.feed(w, watch.Modified, cm("a", "21", "2")),
				a.feed(w, watch.Deleted, cm("a", "22", "2")), a.feed(w, watch.Modified, cm("c", "23", "2")))
		}}
	}
	items := func() []*corev1.ConfigMap { return []*corev1.ConfigMap{cm("b", "2", "1"), cm("a", "1", "1")} }
	returning := func(list runtime.Object) func(metav1.ListOptions) (runtime.Object, error) {
		return func(metav1.ListOptions) (runtime.Object, error) { return list.DeepCopyObject(), nil }
	}
	at := func(rv string) *corev1.ConfigMapList {
		list := cms(items()...)
		list.ResourceVersion = rv
		return list
	}
	kept := at("10")
	raw := &corev1.List{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
	for _, item := range items() {
		raw.Items = append(raw.Items, runtime.RawExtension{Object: item})
	}
	streaming := func(name string, end *corev1.ConfigMap) fakeRow {
		return fakeRow{name: "ListWatch/" + name, make: func(a *author) act {
			w := watch.NewRaceFreeFake()
			lw := withoutContext(returning(at("10")), func(o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil && *o.SendInitialEvents {
					for _, item := range items() {
						w.Add(item)
					}
					w.Action(watch.Bookmark, end)
				}
				return w, nil
			})
			return a.on(lw, &corev1.ConfigMap{}, a.feed(w, watch.Modified, cm("a", "21", "2")), a.feed(w, watch.Deleted, cm("b", "22", "1")))
		}}
	}
	ended := cm("", "10", "")
	ended.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	unnumbered := ended.DeepCopy()
	unnumbered.ResourceVersion = ""
	return []fakeRow{
		on("functions without a context", true, &corev1.ConfigMap{}, returning(at("10"))),
		on("refuses to stream", false, &corev1.ConfigMap{}, returning(at("10"))),
		on("no resource version", false, &corev1.ConfigMap{}, returning(at(""))),
		on("the same list each time", true, &corev1.ConfigMap{}, func(metav1.ListOptions) (runtime.Object, error) { return kept, nil }),
		on("items that are pointers", true, &corev1.ConfigMap{}, returning(&pointerList{Items: items(), ListMeta: metav1.ListMeta{ResourceVersion: "10"}})),
		on("a list of any objects", true, &corev1.ConfigMap{}, returning(raw)),
		on("an example that is nil", true, (*corev1.ConfigMap)(nil), returning(at("10"))),
		on("an example with a kind", true, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}, returning(at("10"))),
		on("no items", true, &corev1.ConfigMap{}, returning(&corev1.ConfigMapList{})),
		streaming("streams", ended),
		streaming("streams without a resource version", unnumbered),
	}
}

// sourceRows returns the rows for client-go's FakeControllerSources.
func sourceRows() []fakeRow {
	type source interface {
		cache.ListerWatcher
		Add(runtime.Object)
		Modify(runtime.Object)
		Delete(runtime.Object)
		AddDropWatch(runtime.Object)
		DeleteDropWatch(runtime.Object)
		ResetWatch()
		Shutdown()
	}
	on := func(name string, make func() source, obj func(name, v string) runtime.Object, drops bool) fakeRow {
		return fakeRow{name: name, anyOrder: true, relists: drops, make: func(a *author) act {
			s := make()
			s.Add(obj("b", "1"))
			s.Add(obj("a", "1"))
			s.Modify(obj("b", "2"))
			steps := []func(){
				func() { s.Add(obj("c", "1")) }, func() { s.Modify(obj("a", "2")) }, func() { s.Delete(obj("b", "2")) }, func() { s.Add(obj("b", "3")) },
			}
			if drops {
				steps = append(steps, func() { waitFor(2 * time.Second) }, func() {
					s.AddDropWatch(obj("d", "1"))
					s.DeleteDropWatch(obj("a", "2"))
					s.ResetWatch()
				}, func() { waitFor(time.Minute) }, func() { s.Modify(obj("d", "2")) })
			}
			p := a.on(s, obj("", ""), steps...)
			p.end = s.Shutdown
			return p
		}}
	}
	configMap := func(name, v string) runtime.Object { return cm(name, "", v) }
	volume := func(name, v string) runtime.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"v": v}}}
	}
	claim := func(name, v string) runtime.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"v": v}}}
	}
	return []fakeRow{
		on("FakeControllerSource", func() source { return cachetesting.NewFakeControllerSource() }, configMap, false),
		on("FakeControllerSource/reset", func() source { return cachetesting.NewFakeControllerSource() }, configMap, true),
		on("FakePVControllerSource", func() source { return cachetesting.NewFakePVControllerSource() }, volume, false),
		on("FakePVControllerSource/reset", func() source { return cachetesting.NewFakePVControllerSource() }, volume, true),
		on("FakePVCControllerSource/reset", func() source { return cachetesting.NewFakePVCControllerSource() }, claim, true),
	}
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(name, rv, value string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"v": value, "n": int64(1), "list": []any{}}}}
	u.SetAPIVersion("example.com/v1")
	u.SetKind("Widget")
	u.SetNamespace("default")
	u.SetName(name)
	if rv != "" {
		u.SetResourceVersion(rv)
	}
	return u
}

func partial(name, rv, value string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: rv, Labels: map[string]string{"v": value}},
	}
}

// generic is the common interface of the factories of the dynamic and the metadata
// client.
type generic interface {
	ForResource(schema.GroupVersionResource) informers.GenericInformer
	Start(stop <-chan struct{})
	Shutdown()
}

func started(f generic, steps []func()) act {
	return act{inf: f.ForResource(widgets).Informer(), steps: steps, start: func(ctx context.Context) func() {
		f.Start(ctx.Done())
		return f.Shutdown
	}}
}

// otherClientRows returns the rows for the fake dynamic and metadata clients.
func otherClientRows() []fakeRow {
	dynamicClient := func(a *author, rvs ...string) (*dynamicfake.FakeDynamicClient, []func()) {
		kinds := map[schema.GroupVersionResource]string{widgets: "WidgetList"}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, widget("b", rvs[0], "1"), widget("a", rvs[1], "1"))
		c := client.Resource(widgets).Namespace("default")
		return client, []func(){
			func() { a.must(c.Create(a.Context(), widget("c", rvs[2], "1"), metav1.CreateOptions{})) },
			func() { a.must(c.Update(a.Context(), widget("a", rvs[3], "2"), metav1.UpdateOptions{})) },
			func() { a.must(nil, c.Delete(a.Context(), "b", metav1.DeleteOptions{})) },
			func() { a.must(c.Create(a.Context(), widget("b", rvs[4], "3"), metav1.CreateOptions{})) },
			func() { a.must(c.Update(a.Context(), widget("b", rvs[5], "4"), metav1.UpdateOptions{})) },
		}
	}
	metadataClient := func(a *author, rvs ...string) (*metadatafake.FakeMetadataClient, []func()) {
		known := metadatafake.NewTestScheme()
		a.must(nil, metav1.AddMetaToScheme(known))
		client := metadatafake.NewSimpleMetadataClient(known, partial("b", rvs[0], "1"), partial("a", rvs[1], "1"))
		c := client.Resource(widgets).Namespace("default")
		fakes := c.(metadatafake.MetadataClient)
		return client, []func(){
			func() { a.must(fakes.CreateFake(partial("c", rvs[2], "1"), metav1.CreateOptions{})) },
			func() { a.must(fakes.UpdateFake(partial("a", rvs[3], "2"), metav1.UpdateOptions{})) },
			func() { a.must(nil, c.Delete(a.Context(), "b", metav1.DeleteOptions{})) },
			func() { a.must(fakes.CreateFake(partial("b", rvs[4], "3"), metav1.CreateOptions{})) },
			func() { a.must(fakes.UpdateFake(partial("b", rvs[5], "4"), metav1.UpdateOptions{})) },
		}
	}
	versions := map[string][]string{
		"none":       {"", "", "", "", "", ""},
		"rising":     {"1", "2", "3", "4", "5", "6"},
		"falling":    {"100", "90", "80", "70", "60", "50"},
		"equal":      {"1", "1", "1", "1", "1", "1"},
		"no numbers": {"x", "y", "z", "x", "z", "y"},
	}
	var rows []fakeRow
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		rvs := versions[name]
		rows = append(
			rows,
			fakeRow{name: "dynamicinformer/" + name, inMemory: notOfFactory, make: func(a *author) act {
				client, steps := dynamicClient(a, rvs...)
				if a.which == isClientGo {
					return started(clientgodynamicinformer.NewDynamicSharedInformerFactory(client, 0), steps)
				}
				return started(dynamicinformer.NewFactory(a.factory(), client, dynamicinformer.Options{}), steps)
			}},
			fakeRow{name: "dynamic/" + name, make: func(a *author) act {
				client, steps := dynamicClient(a, rvs...)
				lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						return client.Resource(widgets).List(ctx, o)
					},
					WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
						return client.Resource(widgets).Watch(ctx, o)
					},
				}, client)
				example := &unstructured.Unstructured{}
				example.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
				return a.on(lw, example, steps...)
			}},
			fakeRow{name: "metadatainformer/" + name, inMemory: notOfFactory, make: func(a *author) act {
				client, steps := metadataClient(a, rvs...)
				if a.which == isClientGo {
					return started(clientgometadatainformer.NewSharedInformerFactory(client, 0), steps)
				}
				return started(metadatainformer.NewFactory(a.factory(), client, metadatainformer.Options{}), steps)
			}},
			fakeRow{name: "metadata/" + name, make: func(a *author) act {
				client, steps := metadataClient(a, rvs...)
				lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						return client.Resource(widgets).List(ctx, o)
					},
					WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
						return client.Resource(widgets).Watch(ctx, o)
					},
				}, client)
				return a.on(lw, partial("", "", "").DeepCopy(), steps...)
			}},
		)
	}
	return append(rows, fakeRow{name: "dynamic/typed objects", inMemory: "is not known", make: func(a *author) act {
		client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, cm("b", "5", "1"), cm("a", "9", "1"))
		configMaps := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		lw := cache.ToListWatcherWithWatchListSemantics(withoutContext(
			func(o metav1.ListOptions) (runtime.Object, error) { return configMaps.List(a.Context(), o) },
			func(o metav1.ListOptions) (watch.Interface, error) { return configMaps.Watch(a.Context(), o) },
		), client)
		return a.on(lw, &unstructured.Unstructured{}, func() {
			a.must(nil, configMaps.Namespace("default").Delete(a.Context(), "a", metav1.DeleteOptions{}))
		})
	}})
}

// factoryRows returns the rows for factories of typed informers.
func factoryRows() (rows []fakeRow) {
	for name, make := range map[string]func(a *author, lw cache.ListerWatcher, resync time.Duration) cache.SharedIndexInformer{
		"New": func(a *author, lw cache.ListerWatcher, _ time.Duration) cache.SharedIndexInformer {
			return a.informer(lw, &corev1.ConfigMap{})
		},
		"Factory": func(a *author, lw cache.ListerWatcher, resync time.Duration) cache.SharedIndexInformer {
			indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
			if a.which == isClientGo {
				return cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, resync, indexers)
			}
			return a.factory().NewInformer(lw, &corev1.ConfigMap{}, resync, indexers)
		},
	} {
		inMemory := ""
		if name == "Factory" {
			inMemory = notOfFactory
		}
		rows = append(rows, fakeRow{name: "SharedInformerFactory/" + name, inMemory: inMemory, make: func(a *author) act {
			s := managed(a, cm("b", "7", "1"), cm("a", "", "1"))
			f := informers.NewSharedInformerFactory(s.Clientset, 0)
			f.InformerFor(&corev1.ConfigMap{}, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
				return make(a, ofClient(c, ""), resync)
			})
			return act{
				inf: f.Core().V1().ConfigMaps().Informer(),
				start: func(ctx context.Context) func() {
					f.StartWithContext(ctx)
					if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
						a.Error(err)
					}
					return f.Shutdown
				},
				steps: []func(){
					s.create(cm("c", "3", "1")), s.update(cm("a", "2", "2")), s.remove("b"), s.create(cm("b", "", "2")),
					func() {
						list, err := f.Core().V1().ConfigMaps().Lister().ConfigMaps("default").List(labels.Everything())
						a.must(list, err)
					},
				},
			}
		}})
	}
	return rows
}

// TestFakesRequests checks the requests that a fake receives. Ours lists at "",
// client-go's informer at "0" and later at the resource version that it holds. Ours opens
// a watch that failed or brought nothing again, client-go's lists. Ours resumes state of
// an earlier process after the probe, a list with limit 1.
func TestFakesRequests(t *testing.T) {
	quietErrors(t)
	const (
		clientGoLists = `list at "0" limit 500`
		oursLists     = `list at "" limit 500`
		probe         = `list at "" limit 1`
	)
	failing := func(times int, err error) func(*author) act {
		return func(a *author) act {
			s, left := simple(a), times
			s.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
				left--
				return left >= 0, nil, err
			})
			return s.play()
		}
	}
	for _, test := range []struct {
		name     string
		clientGo []string
		ours     []string
		onBolt   []string // nil: ours
		inMemory string
		make     func(a *author) act
	}{
		{
			name:     "start",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			make:     func(a *author) act { return simple(a, cm("a", "1", "1")).play() },
		},
		{
			name:     "start, NewClientset",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			make:     func(a *author) act { return managed(a, cm("a", "1", "1")).play() },
		},
		{
			name:     "start, a ListWatch that refuses to stream",
			clientGo: []string{`watch at "" streamed`, clientGoLists, `watch at "7"`},
			ours:     []string{`watch at "" streamed`, oursLists, `watch at "7"`},
			make: func(a *author) act {
				var actions []clienttesting.Action
				a.actions = func() []clienttesting.Action { return actions }
				things := schema.GroupVersionResource{Resource: "things"}
				list := func(o metav1.ListOptions) (runtime.Object, error) {
					action := clienttesting.NewRootListActionWithOptions(things, schema.GroupVersionKind{}, o)
					action.ListOptions = o // all of them
					actions = append(actions, action)
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
				}
				refuse := func(o metav1.ListOptions) (watch.Interface, error) {
					action := clienttesting.NewRootWatchActionWithOptions(things, o)
					action.ListOptions = o
					actions = append(actions, action)
					if o.SendInitialEvents != nil {
						return nil, apierrors.NewBadRequest("sendInitialEvents")
					}
					return watch.NewFake(), nil
				}
				return a.on(withoutContext(list, refuse), &corev1.ConfigMap{})
			},
		},
		{
			name:     "start from a file",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			onBolt:   []string{probe, `watch at "2"`},
			make: func(a *author) act {
				s := simple(a, cm("a", "1", "1"))
				before := a.informer(ofClient(s.Clientset, ""), &corev1.ConfigMap{})
				ctx, stop := context.WithCancel(klog.NewContext(a.Context(), klog.Logger{}))
				done := make(chan struct{})
				go func() {
					defer close(done)
					before.RunWithContext(ctx)
				}()
				<-before.HasSyncedChecker().Done()
				synctest.Wait()
				stop()
				<-done
				s.ClearActions()
				return s.play()
			},
		},
		{
			name:     "no resource versions",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			make: func(a *author) act {
				s := simple(a, cm("a", "", "1"))
				return s.play(s.create(cm("b", "", "1")), s.update(cm("a", "", "2")), s.remove("a"))
			},
		},
		{
			name:     "rising resource versions",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			make: func(a *author) act {
				s := simple(a, cm("a", "1", "1"))
				return s.play(s.create(cm("b", "10", "1")), s.update(cm("a", "11", "2")), s.update(cm("b", "12", "2")), s.remove("b"))
			},
		},
		{
			name:     "a deletion, which the fakes do not number",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			make: func(a *author) act {
				s := simple(a, cm("a", "1", "1"))
				return s.play(s.remove("a"))
			},
		},
		{
			name:     "resource versions below the number of objects",
			clientGo: []string{clientGoLists, `watch at "4"`},
			ours:     []string{oursLists, `watch at "4"`},
			make: func(a *author) act {
				s := simple(a, cm("a", "1", "1"), cm("b", "1", "1"), cm("c", "1", "1"))
				return s.play(s.update(cm("a", "2", "2")), s.update(cm("b", "2", "2")), s.update(cm("c", "2", "2")), s.update(cm("c", "3", "2")))
			},
		},
		{
			name:     "resource versions that fall, far above the fake's own",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			make: func(a *author) act {
				s := simple(a, cm("a", "100", "1"))
				return s.play(s.update(cm("a", "101", "2")), s.create(cm("b", "50", "1")), s.update(cm("b", "40", "1")))
			},
		},
		{
			name:     "resource versions that fall below the fake's own",
			clientGo: []string{clientGoLists, `watch at "2"`},
			ours:     []string{oursLists, `watch at "2"`},
			make: func(a *author) act {
				s := simple(a, cm("a", "100", "1"))
				return s.play(s.update(cm("a", "101", "2")), s.create(cm("b", "1", "1")), s.update(cm("b", "2", "1")))
			},
		},
		{
			name:     "a watch that is closed after events",
			clientGo: []string{clientGoLists, `watch at "1"`, `watch at "5"`},
			ours:     []string{oursLists, `watch at "1"`, `watch at "5"`},
			make: func(a *author) act {
				first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
				s := fed(a, []handFed{first, second})
				return s.play(a.feed(first, watch.Added, cm("a", "5", "1")), first.Stop)
			},
		},
		{
			name:     "a watch that is closed at once",
			clientGo: []string{clientGoLists, `watch at "1"`, `list at "1"`, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`, oursLists, `watch at "1"`},
			make: func(a *author) act {
				first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
				first.Stop()
				return fed(a, []handFed{first, second}).play()
			},
		},
		{
			name:     "a watch that is closed in silence",
			clientGo: []string{clientGoLists, `watch at "1"`, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`, `watch at "1"`},
			make: func(a *author) act {
				first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
				return fed(a, []handFed{first, second}).play(func() { waitFor(2 * time.Second) }, first.Stop)
			},
		},
		{
			name:     "a watch that is closed after a bookmark",
			clientGo: []string{clientGoLists, `watch at "1"`, `watch at "5"`},
			ours:     []string{oursLists, `watch at "1"`, `watch at "5"`},
			make: func(a *author) act {
				first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
				first.Action(watch.Bookmark, cm("", "5", ""))
				first.Stop()
				return fed(a, []handFed{first, second}).play()
			},
		},
		{
			name:     "a watch that fails three times",
			clientGo: []string{clientGoLists, `watch at "1"`, `list at "1"`, `watch at "1"`, `list at "1"`, `watch at "1"`, `list at "1"`, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`, oursLists, `watch at "1"`, oursLists, `watch at "1"`, oursLists, `watch at "1"`},
			make:     failing(3, errOnPurpose),
		},
		{
			name:     "a watch that is forbidden",
			clientGo: []string{clientGoLists, `watch at "1"`, `list at "1"`, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`, oursLists, `watch at "1"`},
			make:     failing(1, apierrors.NewForbidden(schema.GroupResource{}, "", errOnPurpose)),
		},
		{
			name:     "too many requests",
			clientGo: []string{clientGoLists, `watch at "1"`, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`, `watch at "1"`},
			make:     failing(1, apierrors.NewTooManyRequestsError("on purpose")),
		},
		{
			name:     "a refused connection",
			clientGo: []string{clientGoLists, `watch at "1"`, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`, `watch at "1"`},
			make:     failing(1, syscall.ECONNREFUSED),
		},
		{
			name:     "too many requests, as an event",
			clientGo: []string{clientGoLists, `watch at "1"`, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`, `watch at "1"`},
			make: func(a *author) act {
				first, second := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
				status := apierrors.NewTooManyRequestsError("on purpose").Status()
				first.Error(&status)
				return fed(a, []handFed{first, second}).play()
			},
		},
		{
			name:     "a list that fails twice",
			clientGo: []string{clientGoLists, clientGoLists, clientGoLists, `watch at "1"`},
			ours:     []string{oursLists, oursLists, oursLists, `watch at "1"`},
			make: func(a *author) act {
				s := simple(a)
				n := 0
				s.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					n++
					return n <= 2, nil, apierrors.NewInternalError(errOnPurpose)
				})
				return s.play()
			},
		},
		{
			name:     "silence for eleven minutes", // a watch of an API server would end
			clientGo: []string{clientGoLists, `watch at "1"`},
			ours:     []string{oursLists, `watch at "1"`},
			make: func(a *author) act {
				// 70 more seconds pass at the end.
				return simple(a).play(func() { waitFor(575 * time.Second) })
			},
		},
		{
			name:     "Factory, which asks the ListerWatcher for its scope",
			clientGo: []string{clientGoLists, `watch at "1"`},
			ours:     []string{`list at "" limit 1 continued`, oursLists, `watch at "1"`},
			inMemory: notOfFactory,
			make: func(a *author) act {
				s := simple(a)
				if a.which == isClientGo {
					return s.play()
				}
				return act{inf: a.factory().NewInformer(ofClient(s.Clientset, ""), &corev1.ConfigMap{}, 0, nil)}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			wants := map[string][]string{isClientGo: test.clientGo, isMem: test.ours, isBolt: test.onBolt}
			if test.onBolt == nil {
				wants[isBolt] = test.ours
			}
			for which, want := range wants {
				_, _, got := fakeRow{make: test.make, inMemory: test.inMemory}.run(t, which, true)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", which, diff)
				}
			}
		})
	}
}

// TestExampleStaysTheCallers checks that an informer keeps nothing of an unstructured
// example but its kind: the caller may write to it while the informer runs.
func TestExampleStaysTheCallers(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"k": "v"}}}
	lw := fakeapi.New(&unstructured.Unstructured{}, &unstructured.UnstructuredList{}, fakeapi.Options{})
	inf, err := informer.New(lw, u, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u.Object["kind"] = "Secret"
	want := map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}
	if diff := cmp.Diff(want, informer.HeldExample(inf).(*unstructured.Unstructured).Object); diff != "" {
		t.Errorf("the example (-want +got):\n%s", diff)
	}
}
