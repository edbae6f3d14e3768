package relay

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var (
	rounds = flag.Int("rounds", 25, "histories that TestModel plays")
	seed   = flag.Uint64("seed", 0, "the first of them; 0 means any")
)

var podScope = store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}

// world is an API server, the file of an informer that follows it, and the relay.
type world struct {
	*testing.T
	r *rand.Rand

	// The server.
	rv      int
	now     map[string]*corev1.Pod
	then    map[int]map[string]*corev1.Pod // the state after each change, of this history
	changes []store.Change                 // in their order
	made    int

	// The informer.
	path  string
	files int
	db    *bolt.DB
	store store.Store
	done  int // changes that the informer has received
	start int // the server's resource version when the process began

	server *Server
	served *served

	told    []string // resource versions that the relay has told in this lineage
	log     []string // what happened
	answers map[string]int
}

func (w *world) say(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fail(format string, args ...any) {
	w.Helper()
	w.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(w.log, "\n  "))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.fail("%v", err)
	}
}

func (w *world) open() {
	w.Helper()
	var err error
	w.db, err = bolt.Open(w.path, bolt.Options{})
	w.must(err)
	c, err := codec.For(&corev1.Pod{})
	w.must(err)
	w.store, err = w.db.Open(podScope, store.Options{Codec: c, History: store.History{Bytes: 24 << 10}})
	w.must(err)
	w.server, err = New(Collections{{Scope: podScope, Reader: w.store, Live: true}}, Options{Token: "x"})
	w.must(err)
	w.served = w.server.find("pods")
	w.served.hub.start()
}

func (w *world) close() {
	w.server.Close()
	_ = w.db.Close()
}

// change makes a change at the server.
func (w *world) change() {
	w.rv += 1 + w.r.IntN(3)
	key := fmt.Sprintf("ns%d/p%d", w.r.IntN(2), w.r.IntN(5))
	old := w.now[key]
	kind := w.r.IntN(4)
	if old != nil && kind == 0 {
		delete(w.now, key)
		w.record(store.Change{Key: key, RV: fmt.Sprint(w.rv)})
		if w.r.IntN(2) == 0 {
			return
		}
		w.rv++ // another object takes its place
		old = nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if old != nil {
		p = old.DeepCopy()
	} else {
		w.made++
		p.UID = types.UID(fmt.Sprint("uid", w.made))
	}
	p.ResourceVersion = fmt.Sprint(w.rv)
	p.Labels = map[string]string{"app": string(rune('a' + w.r.IntN(2)))}
	p.Spec.NodeName = fmt.Sprint("n", w.r.IntN(2))
	p.Annotations = map[string]string{"pad": strings.Repeat(fmt.Sprint(w.rv), 40)}
	w.now[key] = p
	w.record(store.Change{Key: key, Object: p})
}

func (w *world) record(c store.Change) {
	w.changes = append(w.changes, c)
	w.then[w.rv] = maps.Clone(w.now)
	w.say("server: %s", describe(c))
}

func describe(c store.Change) string {
	if c.IsDeletion() {
		return fmt.Sprintf("%s deleted at %s", c.Key, c.RV)
	}
	p := c.Object.(*corev1.Pod)
	return fmt.Sprintf("%s %s %s/%s at %s", c.Key, p.UID, p.Labels["app"], p.Spec.NodeName, p.ResourceVersion)
}

func rvOf(c store.Change) int {
	rv := c.RV
	if !c.IsDeletion() {
		rv = c.Object.(*corev1.Pod).ResourceVersion
	}
	n, _ := strconv.Atoi(rv)
	return n
}

// receive applies some of the changes that the informer has not received, as one batch.
func (w *world) receive(n int, freeze bool) {
	n = min(n, len(w.changes)-w.done)
	some := w.changes[w.done : w.done+n]
	w.done += n
	to := w.rv // a bookmark
	if w.done < len(w.changes) && n > 0 {
		to = rvOf(some[n-1])
	} else if n == 0 && w.done < len(w.changes) {
		return
	}
	b := store.Batch{RV: fmt.Sprint(to), CatchUp: to <= w.start}
	last := map[string]int{}
	for _, c := range some {
		if !c.IsDeletion() {
			c.Object = c.Object.DeepCopyObject()
		}
		if i, ok := last[c.Key]; ok {
			b.Changes[i] = c
			continue
		}
		last[c.Key] = len(b.Changes)
		b.Changes = append(b.Changes, c)
	}
	if freeze {
		b.RV = ""
	}
	w.say("informer: %d changes, resource version %q", len(b.Changes), b.RV)
	w.must(w.store.Apply(b))
}

// list has the informer list again.
func (w *world) list(rewound bool) {
	w.say("informer: lists at %d, rewound %v", w.rv, rewound)
	if rewound {
		w.must(w.store.Apply(store.Batch{Reason: "rewound", Rewound: true}))
	} else if w.store.Checkpoint().RV != "" {
		w.must(w.store.Invalidate(w.Context(), "test"))
	}
	r, err := w.store.Relist()
	w.must(err)
	for _, p := range w.now {
		w.must(r.Add(p.DeepCopy()))
	}
	for b, err := range r.Parts(fmt.Sprint(w.rv)) {
		w.must(err)
		w.must(w.store.Apply(b))
		if w.r.IntN(3) == 0 {
			w.must(w.store.Flush(w.Context()))
		}
	}
	w.must(r.Close())
	w.done = len(w.changes)
}

// rewind has the server go back to an earlier state.
func (w *world) rewind() {
	var all []int
	for rv := range w.then {
		all = append(all, rv)
	}
	slices.Sort(all)
	to := all[w.r.IntN(len(all))]
	w.say("server: goes back to %d", to)
	w.now = maps.Clone(w.then[to])
	for rv := range w.then {
		if rv > to {
			delete(w.then, rv)
		}
	}
	w.rv, w.told, w.start = to, nil, 0
	w.changes, w.done = nil, 0
	w.list(true)
	// A kill before would leave the former history, which an informer finds by a probe.
	w.must(w.store.Flush(w.Context()))
}

// kill takes away what was not written, and starts the informer and the relay again.
func (w *world) kill(clean bool) {
	w.say("process: ends, cleanly %v", clean)
	before := w.path
	if !clean {
		b, err := os.ReadFile(w.path)
		w.must(err)
		w.files++
		w.path = filepath.Join(filepath.Dir(before), fmt.Sprint("informers", w.files, ".db"))
		w.must(os.WriteFile(w.path, b, 0o600))
	}
	w.close()
	w.open()
	w.start = w.rv
	rv, err := strconv.Atoi(w.store.Checkpoint().RV)
	if err != nil {
		w.list(false)
		return
	}
	w.done = slices.IndexFunc(w.changes, func(c store.Change) bool { return rvOf(c) > rv })
	if w.done < 0 {
		w.done = len(w.changes)
	}
}

// at returns the state of the server at a resource version, nil if it is not of this
// history.
func (w *world) at(rv string) map[string]*corev1.Pod {
	n, err := strconv.Atoi(rv)
	if err != nil {
		return nil
	}
	best := -1
	for one := range w.then {
		if one <= n && one > best {
			best = one
		}
	}
	return w.then[best]
}

// choice is a selection of a client.
type choice struct {
	namespace string
	options   metainternalversion.ListOptions
	is        func(*corev1.Pod) bool
	text      string
}

func (w *world) choose() choice {
	all := []choice{
		{text: "all", is: func(*corev1.Pod) bool { return true }},
		{text: "ns1", namespace: "ns1", is: func(p *corev1.Pod) bool { return p.Namespace == "ns1" }},
		{text: "app=a", options: metainternalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"app": "a"})}, is: func(p *corev1.Pod) bool { return p.Labels["app"] == "a" }},
		{text: "node n1", options: metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "n1")}, is: func(p *corev1.Pod) bool { return p.Spec.NodeName == "n1" }},
		{text: "one", namespace: "ns0", options: metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "p0")}, is: func(p *corev1.Pod) bool { return p.Namespace == "ns0" && p.Name == "p0" }},
	}
	return all[w.r.IntN(len(all))]
}

func (c choice) of(state map[string]*corev1.Pod) map[string]string {
	out := map[string]string{}
	for key, p := range state {
		if c.is(p) {
			out[key] = string(p.UID) + " " + p.ResourceVersion
		}
	}
	return out
}

func metaOf(obj runtime.Object) metav1.Object {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		return a.GetObjectMeta()
	}
	return obj.(metav1.Object)
}

// checkList compares a list with the server's state at the resource version that it says.
func (w *world) checkList(c choice, rv string, match metav1.ResourceVersionMatch) string {
	o := c.options
	o.ResourceVersion, o.ResourceVersionMatch = rv, match
	obj, err := w.served.List(request.WithNamespace(w.Context(), c.namespace), &o)
	if err != nil {
		w.answers["list refused"]++
		if apierrors.IsResourceExpired(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) {
			return ""
		}
		w.fail("list %s of %s at %q: %v", match, c.text, rv, err)
	}
	l := obj.(*list)
	got := map[string]string{}
	for e, err := range l.entries {
		w.must(err)
		m := metaOf(&object{of: w.served, entry: e})
		got[e.Key] = string(m.GetUID()) + " " + m.GetResourceVersion()
	}
	told := l.meta.ResourceVersion
	w.answers["list"]++
	if want := c.of(w.at(told)); !maps.Equal(got, want) {
		w.fail("list %s of %s at %q says %s:\n got %v\nwant %v", match, c.text, rv, told, got, want)
	}
	return told
}

// follow watches from a resource version until a bookmark, or for a number of events. It
// returns the resource version to go on from, and whether there is one.
func (w *world) follow(c choice, have map[string]string, rv string, until int, strict bool) (next string, ok bool) {
	o := c.options
	o.ResourceVersion, o.AllowWatchBookmarks, o.Watch = rv, true, true
	ctx, cancel := context.WithCancel(request.WithNamespace(w.Context(), c.namespace))
	defer cancel()
	events, err := w.served.Watch(ctx, &o)
	if err != nil {
		w.answers["watch refused"]++
		if !apierrors.IsServiceUnavailable(err) {
			w.fail("watch of %s from %s: %v", c.text, rv, err)
		}
		return "", false
	}
	defer func() {
		events.Stop()
		for range events.ResultChan() {
		}
	}()
	next = rv
	idle := time.After(2 * bookmarkEvery)
	var seen []string
	for n := 0; n < until; n++ {
		var e watch.Event
		select {
		case e, ok = <-events.ResultChan():
		case <-idle: // ahead of everything, so that there is no bookmark
			w.answers["watch silent"]++
			return next, true
		}
		if !ok {
			w.fail("watch of %s from %s ended after %v", c.text, rv, seen)
		}
		if e.Type == watch.Error {
			w.answers["watch expired"]++
			if s := e.Object.(*metav1.Status); s.Reason != metav1.StatusReasonExpired {
				w.fail("watch of %s from %s: %v", c.text, rv, s)
			}
			return "", false
		}
		m := metaOf(e.Object)
		key, state := m.GetNamespace()+"/"+m.GetName(), string(m.GetUID())+" "+m.GetResourceVersion()
		seen = append(seen, fmt.Sprintf("%s %s %s", e.Type, key, state))
		if compareRV(m.GetResourceVersion(), next) < 0 {
			w.fail("watch of %s from %s goes back: %v", c.text, rv, seen)
		}
		next = m.GetResourceVersion()
		was, there := have[key]
		uid, _, _ := strings.Cut(was, " ")
		wrong := ""
		switch e.Type {
		case watch.Bookmark:
			w.answers["watch"]++
			if want := c.of(w.at(next)); !maps.Equal(have, want) {
				w.fail("watch of %s from %s, at the bookmark of %s:\n got %v\nwant %v\nsent %v", c.text, rv, next, have, want, seen)
			}
			if compareRV(next, w.mustTold()) >= 0 {
				return next, true
			}
			continue
		case watch.Added:
			if there {
				wrong = "of an object that is there"
			}
			have[key] = state
		case watch.Modified:
			if !there || uid != string(m.GetUID()) {
				wrong = "of an object that is not there"
			}
			have[key] = state
		case watch.Deleted:
			if !there || uid != string(m.GetUID()) {
				wrong = "of an object that is not there"
			}
			if there && uid == string(m.GetUID()) {
				delete(have, key)
			}
		}
		if wrong != "" && strict {
			w.fail("watch of %s from %s: %s %s, have %q: %v", c.text, rv, e.Type, wrong, was, seen)
		}
	}
	return next, true
}

func (w *world) mustTold() string {
	_, told, err := w.served.present()
	if err != nil {
		return "0"
	}
	return told
}

// check looks at the relay as clients do.
func (w *world) check() {
	w.must(w.store.Flush(w.Context()))
	synctest.Wait()
	c := w.choose()
	if told := w.checkList(c, "", ""); told != "" {
		w.told = append(w.told, told)
	}
	w.checkList(c, "0", "")
	var all []int
	for rv := range w.then {
		all = append(all, rv)
	}
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	for range 3 {
		rv := all[w.r.IntN(len(all))] + w.r.IntN(2)
		w.checkList(c, fmt.Sprint(rv), metav1.ResourceVersionMatchExact)
	}
	for range 4 {
		from := fmt.Sprint(all[w.r.IntN(len(all))])
		isTold := false
		if len(w.told) > 0 && w.r.IntN(2) == 0 {
			from = w.told[w.r.IntN(len(w.told))]
			state, err := w.store.History()
			w.must(err)
			// A watch that is told nothing for too long ends.
			isTold = from == w.mustTold() && !state.Newer
		}
		c := w.choose()
		have := c.of(w.at(from))
		next, ok := w.follow(c, have, from, 1+w.r.IntN(12), c.text != "one")
		if isTold && !ok {
			w.fail("watch of %s from %s, which was told, is refused", c.text, from)
		}
		// The client is cut there, and goes on.
		for n := 0; ok && n < 3; n++ {
			next, ok = w.follow(c, have, next, 1<<20, false)
		}
	}
}

// TestModel plays random histories. What a list says is the server's state at the
// resource version that it tells. What a watch says, from each resource version and over
// cuts, leads to the server's state, or the watch is refused as expired.
func TestModel(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	answers := map[string]int{}
	for i := range *rounds {
		one := first + uint64(i)
		t.Run(fmt.Sprint("seed=", one), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := &world{T: t, r: rand.New(rand.NewPCG(one, 1)), rv: 100, now: map[string]*corev1.Pod{}, then: map[int]map[string]*corev1.Pod{}, answers: answers}
				w.then[w.rv] = map[string]*corev1.Pod{}
				w.path = filepath.Join(dir, "informers.db")
				w.open()
				defer func() { w.close() }()
				for range 3 {
					w.change()
				}
				w.list(false)
				w.play(60)
			})
		})
	}
	t.Logf("answers: %v", answers)
	for _, kind := range []string{"list", "watch", "watch expired"} {
		if answers[kind] == 0 {
			t.Errorf("no %s was answered", kind)
		}
	}
}

func (w *world) play(steps int) {
	for range steps {
		switch n := w.r.IntN(100); {
		case n < 40:
			w.change()
		case n < 60:
			w.receive(1+w.r.IntN(4), false)
		case n < 63:
			w.receive(1+w.r.IntN(2), true)
		case n < 75:
			w.must(w.store.Flush(w.Context()))
			w.say("file: written")
		case n < 80:
			w.list(false)
		case n < 82:
			w.rewind()
		case n < 85:
			w.kill(w.r.IntN(2) == 0)
		case n < 88:
			w.rv += w.r.IntN(5) // of other kinds
			w.receive(0, false)
		default:
			w.check()
		}
	}
	w.receive(1<<20, false)
	w.check()
}
