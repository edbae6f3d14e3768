package ingest

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/fifo"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

func object(name, uid, rv string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: rv}}
}

// newPipeline returns a Pipeline of an empty store in memory, whose watch is applied
// while the test runs. The test plays the reflector.
func newPipeline(t *testing.T, transform cache.TransformFunc) *Pipeline {
	t.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	scope := store.Scope{Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Form: store.Typed}
	s, err := mem.New().Open(scope, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	hub := delivery.New(delivery.Env{
		Failed: func(err error) { t.Error(err) }, Handed: func(runtime.Object) {},
		Blank: func(string) runtime.Object { return &corev1.ConfigMap{} },
		Dir:   t.TempDir, Name: t.Name,
	}, 0)
	state := heal.New(hub.Urge)
	p := New(Options{
		Store: s, Hub: hub, State: state, ListerWatcher: &cache.ListWatch{}, Scope: scope, Codec: c,
		Example: &corev1.ConfigMap{}, Transform: transform, Applied: func(string) {},
	})
	state.Claim()
	state.Open(t.Context(), heal.Opened{
		Show: func() {}, Relist: func(reason string) { t.Errorf("a list is requested: %s", reason) },
	})
	hub.Begin()
	p.Open(hub.Open(s, false))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.applyWatch(t.Context())
	}()
	t.Cleanup(func() {
		p.queue.Close()
		<-ended
		hub.End()
		hub.Wait()
	})
	return p
}

// list plays a list.
func list(t *testing.T, p *Pipeline, rv string, objects ...runtime.Object) {
	t.Helper()
	l, err := p.Relist(t.Context(), "a test")
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		if err := l.Add(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Finish(t.Context(), rv), l.Close()); err != nil {
		t.Fatal(err)
	}
}

func wantStored(t *testing.T, p *Pipeline, rv string, keys ...string) {
	t.Helper()
	got, err := p.store.Keys(store.Query{})
	if diff := cmp.Diff(keys, got); err != nil || diff != "" {
		t.Errorf("%v, stored (-want +got):\n%s", err, diff)
	}
	if got := p.store.Checkpoint().RV; got != rv {
		t.Errorf("stored at %q, want %q", got, rv)
	}
}

// TestListAndWatch is the way of a list and of the events of a watch.
func TestListAndWatch(t *testing.T) {
	p := newPipeline(t, nil)
	list(t, p, "5", object("a", "1", "3"), object("b", "2", "4"))
	wantStored(t, p, "5", "a", "b")
	err := errors.Join(
		p.Push(t.Context(), cache.Deleted, object("a", "1", "6"), "6"),
		p.Push(t.Context(), cache.Added, object("c", "3", "7"), "7"),
		p.Bookmark(t.Context(), "9"), p.CaughtUp(t.Context()))
	if err != nil || !p.state.Life().IsCaughtUp() {
		t.Error("it has not caught up:", err)
	}
	wantStored(t, p, "9", "b", "c")
}

// TestRejected is an object that the transform does not take: it keeps the stored
// resource version back until it is deleted.
func TestRejected(t *testing.T) {
	p := newPipeline(t, func(obj any) (any, error) {
		if obj.(*corev1.ConfigMap).Name == "bad" {
			return nil, errors.New("malformed")
		}
		return obj, nil
	})
	list(t, p, "5", object("a", "1", "3"))
	bad := object("bad", "2", "6")
	err := p.Push(t.Context(), cache.Added, bad, "6")
	var of *store.ObjectError
	if !errors.As(err, &of) || of.Key != "bad" {
		t.Fatalf("got error %v", err)
	}
	p.Reject(t.Context(), bad, err)
	push := func(d cache.DeltaType, obj runtime.Object, rv string) {
		t.Helper()
		if err := errors.Join(p.Push(t.Context(), d, obj, rv), p.queue.Idle(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	push(cache.Added, object("c", "3", "7"), "7")
	wantStored(t, p, "5", "a", "c")
	push(cache.Deleted, bad, "8")
	wantStored(t, p, "8", "a", "c")
}

// indexing is a store to which an index is added after it has prepared a batch.
type indexing struct {
	store.Store
	add func()
}

func (s *indexing) Prepare(b *store.Batch) error {
	err := s.Store.Prepare(b)
	if len(b.Changes) > 0 {
		s.add()
	}
	return err
}

// TestRejectedByNewIndex is an object that an index refuses which is added while the
// batch of the object waits: the others of the batch are stored.
func TestRejectedByNewIndex(t *testing.T) {
	p := newPipeline(t, nil)
	list(t, p, "5", object("a", "1", "3"))
	add := sync.OnceFunc(func() {
		err := p.store.AddIndexes(cache.Indexers{"fails": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Name == "bad" {
				return nil, errors.New("malformed")
			}
			return nil, nil
		}})
		if err != nil {
			t.Error(err)
		}
	})
	p.store = &indexing{p.store, add}
	changes := []change{{Change: delivery.Change{Key: "bad"}}, {Change: delivery.Change{Key: "c"}}}
	batch := store.Batch{RV: "7"}
	for i, obj := range []*corev1.ConfigMap{object("bad", "2", "6"), object("c", "3", "7")} {
		changes[i].Is = store.Entry{Key: obj.Name, Object: obj}
		batch.Changes = append(batch.Changes, store.Change{Key: obj.Name, Object: obj})
	}
	if err := p.apply(t.Context(), batch, changes, p.before(t.Context(), changes, false)); err != nil {
		t.Fatal(err)
	}
	wantStored(t, p, "5", "a", "c")
	if rejected := p.state.Report().Rejected; len(rejected) != 1 || rejected[0] != "bad" {
		t.Errorf("%q are rejected", rejected)
	}
}

// TestRejectedInList is an object that is refused in a list and taken at a newer state in
// the same one, as servers send changes while they stream a list.
func TestRejectedInList(t *testing.T) {
	p := newPipeline(t, func(obj any) (any, error) {
		if obj.(*corev1.ConfigMap).ResourceVersion == "4" {
			return nil, errors.New("malformed")
		}
		return obj, nil
	})
	for _, rv := range []string{"8", "9"} { // the second one finds the object stored
		l, err := p.Relist(t.Context(), "a test")
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []string{"4", "6"} {
			obj := object("a", "1", state)
			if err := l.Add(t.Context(), obj); err != nil {
				p.Reject(t.Context(), obj, err)
			}
		}
		if err := errors.Join(l.Finish(t.Context(), rv), l.Close()); err != nil {
			t.Fatal(err)
		}
		wantStored(t, p, rv, "a")
	}
	if rejected := p.state.Report().Rejected; len(rejected) > 0 {
		t.Errorf("%q are rejected", rejected)
	}
}

func TestTransform(t *testing.T) {
	tests := map[string]cache.TransformFunc{
		"panics":       func(any) (any, error) { panic("oh") },
		"fails":        func(any) (any, error) { return nil, errors.New("no") },
		"another type": func(any) (any, error) { return &corev1.Secret{}, nil },
		"nil":          func(any) (any, error) { return (*corev1.ConfigMap)(nil), nil },
		"no name":      func(any) (any, error) { return &corev1.ConfigMap{}, nil },
	}
	for name, fn := range tests {
		t.Run(name, func(t *testing.T) {
			tr := &transform{fn: fn, example: &corev1.ConfigMap{}}
			_, err := tr.apply(object("a", "1", "1"))
			var bad *store.ObjectError
			if !errors.As(err, &bad) || bad.Key != "a" {
				t.Errorf("got error %v, want one of the object", err)
			}
		})
	}
}

// TestReplays is a watch that resumes before what an earlier process has stored.
func TestReplays(t *testing.T) {
	r := replays{state: heal.New(nil), resumedAt: "5"}
	stored := map[string]store.Held{"old": {RV: "4"}, "newer": {RV: "8"}}
	steps := []struct {
		key, rv string
		want    fate
	}{
		{"old", "6", toTell},
		{"newer", "7", isReplay},
		{"newer", "8", isReplay},
		{"newer", "9", toTell},
		{"newer", "8", toTell}, // it has changed in this process
		{"unknown", "6", toTell},
	}
	for i, s := range steps {
		told := []change{{}}
		r.mark([]fifo.Keyed{{Key: s.key, Delta: cache.Delta{Type: cache.Updated, Object: object(s.key, "1", s.rv)}}}, told, stored)
		if told[0].fate != s.want {
			t.Errorf("step %d: %s at %s has fate %d, want %d", i, s.key, s.rv, told[0].fate, s.want)
		}
	}
}

// refusing is a store that cannot begin a list.
type refusing struct {
	store.Store
	applied []store.Batch
	refuses bool
}

func (s *refusing) Apply(b store.Batch) error {
	s.applied = append(s.applied, b)
	return s.Store.Apply(b)
}

func (s *refusing) Relist() (store.Relist, error) {
	if s.refuses {
		return nil, errors.New("the disk fails")
	}
	return s.Store.Relist()
}

// TestOtherHistoryIsKept checks that a list that cannot begin does not make another
// history forgotten, which an audit has found: the next list begins a new lineage, too.
func TestOtherHistoryIsKept(t *testing.T) {
	p := newPipeline(t, nil)
	list(t, p, "10", object("a", "1", "9"))
	s := &refusing{Store: p.store, refuses: true}
	p.store = s
	p.OtherHistory()
	if _, err := p.Relist(t.Context(), "an audit"); err == nil {
		t.Fatal("the list begins")
	}
	s.refuses, s.applied = false, nil
	list(t, p, "20", object("a", "1", "9"))
	rewound := func(b store.Batch) bool { return b.Rewound }
	if !slices.ContainsFunc(s.applied, rewound) {
		t.Error("the next list is of the same history")
	}
	s.applied = nil
	list(t, p, "30", object("a", "1", "9"))
	if slices.ContainsFunc(s.applied, rewound) {
		t.Error("the list after it is of another history again")
	}
}

// unreadable is a store one of whose objects has a header and no record that can be read,
// and another a record and no header.
type unreadable struct{ store.Store }

func (s unreadable) Before([]string) (store.Before, error) {
	return store.Before{Held: map[string]store.Held{
		"record": {UID: "u", RV: "8", Err: store.ErrCorrupt},
		"header": {Entry: store.Entry{Key: "header", Raw: []byte("x")}, Err: store.ErrCorrupt},
	}}, nil
}

// TestUnreadableBefore checks that what can be read of a damaged object is used, and that
// a list is requested where the rest is needed.
func TestUnreadableBefore(t *testing.T) {
	for name, test := range map[string]struct {
		change change
		all    bool
		lists  bool
	}{
		"record":                    {change{Change: delivery.Change{Key: "record"}}, false, true},
		"header":                    {change{Change: delivery.Change{Key: "header"}}, false, false},
		"header, of a deletion":     {change{Change: delivery.Change{Key: "header", Last: object("header", "1", "9")}}, false, true},
		"header, while catching up": {change{Change: delivery.Change{Key: "header"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipeline(t, nil)
			lists := false
			p.state = heal.New(func() func() { return func() {} })
			p.state.Claim()
			p.state.Open(t.Context(), heal.Opened{Show: func() {}, Relist: func(string) { lists = true }})
			p.store = only{unreadable{p.store}, test.change.Key}
			b := p.before(t.Context(), []change{test.change}, test.all)
			if lists != test.lists {
				t.Errorf("a list is requested: %t", lists)
			}
			if held := b.Held["record"]; name == "record" && (held.UID != "u" || held.RV != "8") {
				t.Errorf("what can be read is lost: %+v", held)
			}
			if held := b.Held["header"]; name != "record" && held.Entry.Raw == nil {
				t.Errorf("the entry is lost: %+v", held)
			}
		})
	}
}

// only is a store that knows of one of its objects.
type only struct {
	store.Store
	key string
}

func (s only) Before(keys []string) (store.Before, error) {
	b, err := s.Store.Before(keys)
	return store.Before{Held: map[string]store.Held{s.key: b.Held[s.key]}}, err
}
