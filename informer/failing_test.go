package informer_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// failingLists makes whole lists, and watches, of the world fail with a 500 while these
// are set, as of a server that cannot convert one object.
func (w *world) failingLists() (lists, watches *atomic.Bool) {
	lists, watches = &atomic.Bool{}, &atomic.Bool{}
	err := apierrors.NewInternalError(errors.New("conversion webhook failed"))
	w.lw = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if opts.Limit != 1 && lists.Load() {
				return nil, err
			}
			return w.server.ListWithContext(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if stream := opts.SendInitialEvents != nil; stream && lists.Load() || !stream && watches.Load() {
				return nil, err
			}
			return w.server.WatchWithContext(ctx, opts)
		},
	}
	return lists, watches
}

// TestSmallWhoseListFails checks that a small collection resumes although the server
// fails whole lists.
func TestSmallWhoseListFails(t *testing.T) {
	inBubble(t, func(w *world) {
		lists, _ := w.failingLists()
		w.put("a", "1")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		w.put("b", "2")
		lists.Store(true)
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l))
		waitFor(5 * time.Second)
		if s := r.inf.Status(); !s.Synced {
			t.Errorf("not synced after 5 seconds: %s", s.Behind)
		}
		w.wantUnordered("at the start", l, []string{"initial a@2=1", "initial b@3=1", "update b@3=1 b@4=2"})
		r.end()
		w.wantStored("in the end", "4", "a@2=1", "b@4=2")
	})
}

// TestRejectedWhileListsFail checks that a list that was begun and not applied does not
// make the informer forget that it holds an old state: no resource version is stored.
func TestRejectedWhileListsFail(t *testing.T) {
	inBubble(t, func(w *world) {
		lists, watches := w.failingLists()
		w.put("a", "1")
		r := w.run(informer.Options{TransformVersion: "1"}, func(inf *informer.Informer) {
			if err := inf.SetTransform(func(obj any) (any, error) {
				if cm, ok := obj.(*corev1.ConfigMap); ok && cm.Data["v"] == "bad" {
					return nil, errOnPurpose
				}
				return obj, nil
			}); err != nil {
				t.Fatal(err)
			}
		}).sync()
		w.put("a", "bad")
		waitFor(time.Minute)
		lists.Store(true)
		watches.Store(true)
		w.server.CloseWatches()
		waitFor(10 * time.Minute)
		watches.Store(false)
		waitFor(5 * time.Minute)
		w.put("b", "1")
		waitFor(5 * time.Minute)
		if s := r.inf.Status(); s.Objects != 2 || s.RejectedCount != 1 || s.Checkpoint.RV != "" {
			t.Errorf("%d objects, %d rejected, stored RV %q: %s", s.Objects, s.RejectedCount, s.Checkpoint.RV, s.LastError)
		}
		lists.Store(false)
		w.put("a", "2")
		waitFor(10 * time.Minute)
		r.end()
		w.wantStored("when it is mended", w.server.RV(), "a@5=2", "b@4=1")
	})
}

// TestNextProcessAfterFailedList checks a server that fails whole lists and serves
// watches: a process that ends after it has tried to list does not take the resource
// version along, from which it could still watch.
func TestNextProcessAfterFailedList(t *testing.T) {
	inBubble(t, func(w *world) {
		lists, watches := w.failingLists()
		w.put("a", "1")
		r := w.run(informer.Options{}).sync()
		waitFor(2 * time.Second)
		lists.Store(true)
		watches.Store(true)
		w.server.CloseWatches()
		waitFor(10 * time.Minute)
		watches.Store(false)
		waitFor(5 * time.Minute)
		r.end()
		w.wantStored("in the end of the first process", "2", "a@2=1")

		r = w.run(informer.Options{})
		waitFor(time.Minute)
		rv := w.put("b", "1")
		waitFor(10 * time.Minute)
		s := r.inf.Status()
		if _, there, _ := r.inf.GetStore().GetByKey("default/b"); !there || !s.Synced {
			t.Errorf("synced %t, holds %q, and the server is at %s: start %q, last error %q", s.Synced, r.inf.GetStore().ListKeys(), rv, s.StartReason, s.LastError)
		}
		r.end()
	})
}

// rewinds is a backend that counts the lineages which an informer begins in the log.
type rewinds struct {
	store.Backend
	n atomic.Int32
}

func (b *rewinds) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	return &rewindsStore{s, b}, err
}

type rewindsStore struct {
	store.Store
	b *rewinds
}

func (s *rewindsStore) Apply(b store.Batch) error {
	if b.Rewound {
		s.b.n.Add(1)
	}
	return s.Store.Apply(b)
}

// TestRewoundWhileListsFail checks that one rewind begins one lineage, however often its
// list fails: places in the log that were given out since stay good.
func TestRewoundWhileListsFail(t *testing.T) {
	inBubble(t, func(w *world) {
		lists, _ := w.failingLists()
		w.put("a", "1")
		db := w.open()
		backend := &rewinds{Backend: db}
		r := w.run(informer.Options{Backend: backend}).sync()
		w.put("a", "2")
		w.put("a", "3")
		waitFor(time.Minute)
		for range 2 {
			lists.Store(true)
			if err := w.server.Rewind("3"); err != nil {
				t.Fatal(err)
			}
			w.server.CloseWatches()
			waitFor(10 * time.Minute)
			lists.Store(false)
			waitFor(5 * time.Minute)
			w.put("a", "4")
			waitFor(time.Minute)
		}
		if n := backend.n.Load(); n != 2 || r.inf.Status().Checkpoint.RV != w.server.RV() {
			t.Errorf("%d lineages for two rewinds, stored RV %q, want %s", n, r.inf.Status().Checkpoint.RV, w.server.RV())
		}
		r.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// unlisted is a backend of whose lists only deletions can be applied while broken is set.
type unlisted struct {
	store.Backend
	broken atomic.Bool
}

func (b *unlisted) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	return &unlistedStore{s, b}, err
}

type unlistedStore struct {
	store.Store
	b *unlisted
}

func (s *unlistedStore) Relist() (store.Relist, error) {
	r, err := s.Store.Relist()
	return &unlistedRelist{r, s.b}, err
}

type unlistedRelist struct {
	store.Relist
	b *unlisted
}

func (r *unlistedRelist) Parts(rv string) iter.Seq2[store.Batch, error] {
	if !r.b.broken.Load() {
		return r.Relist.Parts(rv)
	}
	return func(yield func(store.Batch, error) bool) {
		for b, err := range r.Relist.Parts(rv) {
			if err == nil && len(b.Changes) > 0 && !b.Changes[0].IsDeletion() {
				err = errOnPurpose
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// TestRejectedWhileListsAreNotApplied is TestRejectedWhileListsFail for a whole list that
// the store does not take, or takes in part, before one that the server fails: the object
// could be stored by then, and its old state still is what is stored.
func TestRejectedWhileListsAreNotApplied(t *testing.T) {
	t.Run("at all", func(t *testing.T) { testRejectedWhileListsAreNotApplied(t, false) })
	t.Run("but for deletions", func(t *testing.T) { testRejectedWhileListsAreNotApplied(t, true) })
}

func testRejectedWhileListsAreNotApplied(t *testing.T, deletes bool) {
	inBubble(t, func(w *world) {
		lists, watches := w.failingLists()
		w.put("a", "1")
		w.put("b", "1")
		db := w.open()
		backend := &unlisted{Backend: db}
		var refuses atomic.Bool
		refuses.Store(true)
		r := w.run(informer.Options{Backend: backend, TransformVersion: "1"}, func(inf *informer.Informer) {
			if err := inf.SetTransform(func(obj any) (any, error) {
				if obj.(*corev1.ConfigMap).Data["v"] == "bad" && refuses.Load() {
					return nil, errOnPurpose
				}
				return obj, nil
			}); err != nil {
				t.Fatal(err)
			}
		}).sync()
		w.put("a", "bad")
		waitFor(time.Minute)
		refuses.Store(false)
		backend.broken.Store(true)
		watches.Store(true)
		w.server.CloseWatches()
		if deletes {
			w.drop("b")
		}
		for range 1000 {
			waitFor(100 * time.Millisecond)
			if contains(r.heard(), "list: on purpose") {
				break
			}
		}
		lists.Store(true)
		waitFor(10 * time.Minute)
		watches.Store(false)
		waitFor(10 * time.Minute)
		if s := r.inf.Status(); s.RejectedCount != 1 || s.Checkpoint.RV != "" {
			t.Errorf("%d rejected, stored RV %q, and a is %v", s.RejectedCount, s.Checkpoint.RV, r.inf.GetStore().List())
		}
		backend.broken.Store(false)
		lists.Store(false)
		watches.Store(true)
		w.server.CloseWatches()
		waitFor(10 * time.Minute)
		watches.Store(false)
		waitFor(10 * time.Minute)
		r.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		want := []string{"a@4=bad", "b@3=1"}
		if deletes {
			want = want[:1]
		}
		w.wantStored("in the end", w.server.RV(), want...)
	})
}
