package informer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	fakesource "k8s.io/client-go/tools/cache/testing"

	"github.com/informctl/informctl/internal/guarantees"
)

// These tests run on client-go's fake source, which controllers' tests put under an
// informer. It sends no bookmarks, answers no streamed list, and may hide a change from
// its watches.

// onEachSource runs a rule on each informer, on a fake source.
func onEachSource(t *testing.T, resync time.Duration, rule func(s *subjectOf, source *fakesource.FakeControllerSource)) {
	t.Helper()
	var source *fakesource.FakeControllerSource
	from := func(*world) cache.ListerWatcher {
		source = fakesource.NewFakeControllerSource()
		return pagedSource{source}
	}
	onEachFrom(t, resync, from, func(s *subjectOf) {
		rule(s, source)
		if s.stop != nil {
			s.end()
		}
		source.Shutdown()
	})
}

// pagedSource reports that the source does not stream lists. Otherwise client-go's
// reflector would wait forever for the end of a streamed list.
type pagedSource struct {
	*fakesource.FakeControllerSource
}

func (pagedSource) IsWatchListSemanticsUnSupported() bool { return true }

func valued(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}
}

// TestHiddenChanges checks that handlers do not receive a hidden change, and receive all
// of them after the watch broke.
func TestHiddenChanges(t *testing.T) {
	onEachSource(t, 10*time.Second, func(s *subjectOf, source *fakesource.FakeControllerSource) {
		source.Add(valued("a", "1"))
		source.Add(valued("b", "1"))
		source.Add(valued("c", "1"))
		l, resynced := &log{}, &log{}
		s.handleEvery(l, 0)
		s.handleEvery(resynced, 10*time.Second)
		s.start().sync()
		s.told(l, "initial a@1=1", "initial b@2=1", "initial c@3=1")
		resynced.take()
		source.ModifyDropWatch(valued("b", "2"))
		source.DeleteDropWatch(valued("c", "1"))
		source.AddDropWatch(valued("d", "1"))
		waitFor(15 * time.Second)
		s.told(l)
		if told := resynced.take(); contains(told, "=2") || contains(told, "d@") || !contains(told, "a@1=1 a@1=1") {
			s.Errorf("the resynced handler was told %q", told)
		}
		source.ResetWatch()
		waitFor(settling)
		want := []string{"update b@2=1 b@4=2", "delete tombstone c@3=1", "add d@6=1"}
		s.told(l, want...)
		s.told(resynced, want...)
	})
}

// TestDeletionOfWhatTheProgramWrote checks that a handler that has received an object
// that the program has written receives its deletion, too, although the program has
// removed it.
func TestDeletionOfWhatTheProgramWrote(t *testing.T) {
	onEachSource(t, 0, func(s *subjectOf, source *fakesource.FakeControllerSource) {
		source.Add(valued("b", "1"))
		s.start().sync()
		if err := s.inf.GetIndexer().Add(cm("a", "11", "1")); err != nil {
			s.Error(err)
		}
		l := &log{}
		s.handle(l)
		waitFor(settling)
		s.told(l, "initial a@11=1", "initial b@1=1")
		if err := s.inf.GetIndexer().Delete(cm("a", "11", "1")); err != nil {
			s.Error(err)
		}
		source.AddDropWatch(valued("a", "1"))
		source.Delete(valued("a", "1"))
		waitFor(settling)
		s.told(l, "delete a@3=1")
	})
}

// TestUnreadableDeletion checks a server that deletes an object that it cannot read, and
// sends an error instead of the deletion.
func TestUnreadableDeletion(t *testing.T) {
	onEachSource(t, 0, func(s *subjectOf, source *fakesource.FakeControllerSource) {
		source.Add(valued("a", "1"))
		l := &log{}
		s.handle(l)
		s.start().sync()
		source.Add(valued("corrupt", "1"))
		s.told(l, "initial a@1=1", "add corrupt@2=1")
		waitFor(2 * time.Second)
		source.DeleteDropWatch(valued("corrupt", "1"))
		if err := source.Broadcaster.Action(watch.Error, &metav1.Status{
			Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonStoreReadError, Message: "cannot be read, was deleted",
		}); err != nil {
			s.Fatal(err)
		}
		waitFor(settling)
		s.told(l, "delete tombstone corrupt@2=1")
		if keys := s.inf.GetStore().ListKeys(); !slices.Equal(keys, []string{"default/a"}) {
			s.Errorf("keys %q", keys)
		}
	})
}

// TestManyWriters has several goroutines write objects to the source, in any order. In
// the end the store and the handler's notifications match the source.
func TestManyWriters(t *testing.T) {
	onEachSource(t, time.Second, func(s *subjectOf, source *fakesource.FakeControllerSource) {
		recorder := guarantees.New(nil)
		recorder.Repeats = !s.ours
		recorder.Registered(s.handleEvery(recorder, 0))
		s.start().sync()
		var writers sync.WaitGroup
		for w := range 3 {
			writers.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(w)))
				there := map[string]bool{}
				for i := range 200 {
					name := fmt.Sprintf("o-%d-%d", w, random.IntN(20))
					obj := valued(name, fmt.Sprint(i))
					switch {
					case !there[name]:
						source.Add(obj)
					case random.IntN(2) == 0:
						source.Modify(obj)
						continue
					default:
						source.Delete(obj)
					}
					there[name] = !there[name]
				}
			})
		}
		writers.Wait()
		waitFor(time.Minute)
		list, err := source.List(metav1.ListOptions{})
		if err != nil {
			s.Fatal(err)
		}
		var items []any
		for _, item := range list.(*corev1.List).Items {
			items = append(items, item.Object)
		}
		want, err := guarantees.States(items)
		if err != nil {
			s.Fatal(err)
		}
		got, err := guarantees.States(s.inf.GetStore().List())
		if err != nil {
			s.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.Errorf("store (-source +store):\n%s", diff)
		}
		recorder.AtRest(want)
		for _, violation := range recorder.Violations() {
			s.Error(violation)
		}
	})
}

// TestNewListIsTold checks what handlers receive from a list with differences, and what
// they find in the store then.
func TestNewListIsTold(t *testing.T) {
	for _, row := range []struct {
		name   string
		before []string
		change func(s *subjectOf)
		want   []string
	}{
		{
			name:   "of nothing",
			change: func(s *subjectOf) { s.put("a", "1") },
			want:   []string{"add a@2=1, held a@2=1"},
		},
		{
			name: "nothing is left", before: []string{"a", "b"},
			change: func(s *subjectOf) { s.drop("a"); s.drop("b") },
			want:   []string{"delete tombstone a@2=1, not held", "delete tombstone b@3=1, not held"},
		},
		{
			name: "of each kind", before: []string{"a", "b", "c"},
			change: func(s *subjectOf) { s.put("a", "2"); s.put("b", "2"); s.drop("c"); s.put("d", "1") },
			want: []string{
				"delete tombstone c@4=1, not held", "add d@8=1, held d@8=1",
				"update a@2=1 a@5=2, held a@5=2", "update b@3=1 b@6=2, held b@6=2",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			onEach(t, 0, nil, func(s *subjectOf) {
				var lines []string
				note := func(kind string, obj any, text string) {
					key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
					if err != nil {
						s.Error(err)
					}
					held, there, err := s.inf.GetStore().GetByKey(key)
					switch {
					case err != nil:
						s.Error(err)
					case there:
						text += ", held " + describe(held)
					default:
						text += ", not held"
					}
					lines = append(lines, kind+" "+text)
				}
				for _, name := range row.before {
					s.put(name, "1")
				}
				s.handle(cache.ResourceEventHandlerDetailedFuncs{
					AddFunc:    func(obj any, _ bool) { note("add", obj, describe(obj)) },
					UpdateFunc: func(old, obj any) { note("update", obj, describe(old)+" "+describe(obj)) },
					DeleteFunc: func(obj any) { note("delete", obj, describe(obj)) },
				})
				s.start().sync()
				synctest.Wait()
				lines = nil
				s.losesHistory(func() { row.change(s) })
				deletions := 0
				for deletions < len(lines) && lines[deletions][:6] == "delete" {
					deletions++
				}
				// Neither the deletions nor the others are ordered.
				slices.Sort(lines[:deletions])
				slices.Sort(lines[deletions:])
				if diff := cmp.Diff(row.want, lines); diff != "" {
					s.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
