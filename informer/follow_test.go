package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// followed collects the events of Follow until all goroutines wait.
type followed struct {
	t      *testing.T
	events []string
	ended  bool
	stop   context.CancelFunc
}

func startFollowing(t *testing.T, inf *informer.Informer, opts informer.FollowOptions) *followed {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	events, err := inf.Follow(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{t: t, stop: stop}
	go func() {
		for e, err := range events {
			f.events = append(f.events, eventLine(t, e, err))
		}
		f.ended = true
	}()
	return f
}

func eventLine(t *testing.T, e informer.Event, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case e.Type == informer.Current:
		return "CURRENT"
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		t.Error(err)
		return ""
	}
	return fmt.Sprintf("%s %s@%s", e.Type, m.GetName(), m.GetResourceVersion())
}

func (f *followed) want(events ...string) {
	f.t.Helper()
	synctest.Wait()
	if !slices.Equal(f.events, events) {
		f.t.Errorf("got  %s\nwant %s", strings.Join(f.events, ", "), strings.Join(events, ", "))
	}
	f.events = nil
}

// wantOneOf is want for events whose order depends on which goroutine is faster.
func (f *followed) wantOneOf(orders ...[]string) {
	f.t.Helper()
	synctest.Wait()
	if !slices.ContainsFunc(orders, func(order []string) bool { return slices.Equal(f.events, order) }) {
		f.t.Errorf("got  %s\nwant %s, or another order", strings.Join(f.events, ", "), strings.Join(orders[0], ", "))
	}
	f.events = nil
}

func TestFollow(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		var inf *informer.Informer
		r := w.run(informer.Options{}, func(i *informer.Informer) {
			inf = i
		}).sync()
		now := startFollowing(w.T, inf, informer.FollowOptions{})
		all := startFollowing(w.T, inf, informer.FollowOptions{Initial: true})
		now.want("CURRENT")
		all.want("INITIAL a@2", "CURRENT")
		w.put("b", "1") // 3
		w.put("a", "2") // 4
		w.drop("b")     // 5
		changes := []string{"ADDED b@3", "MODIFIED a@4", "DELETED b@5"}
		now.want(changes...)
		all.want(changes...)
		all.stop()
		synctest.Wait()
		if !all.ended {
			w.Error("Follow goes on after its context")
		}
		w.put("c", "1") // 6
		now.want("ADDED c@6")
		r.end()
		now.want("the informer has stopped")
		if _, err := inf.Follow(w.Context(), informer.FollowOptions{}); !errors.Is(err, informer.ErrStopped) {
			w.Errorf("after the end: %v", err)
		}
	})
}

// TestFollowBreaks checks a consumer that stops and one that is too slow.
func TestFollowBreaks(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		r := w.run(informer.Options{}).sync()
		events, err := r.inf.Follow(w.Context(), informer.FollowOptions{Initial: true})
		if err != nil {
			w.Fatal(err)
		}
		for _, err := range events {
			if err != nil {
				w.Error(err)
			}
			break
		}
		synctest.Wait()
		if n := len(r.inf.Status().Handlers); n != 0 {
			w.Errorf("%d handlers are left", n)
		}
		events, err = r.inf.Follow(w.Context(), informer.FollowOptions{})
		if err != nil {
			w.Fatal(err)
		}
		err = nil
		for e, failed := range events {
			if err = failed; e.Type == informer.Current {
				for range 2000 {
					w.put("a", "2")
				}
				synctest.Wait()
			}
		}
		if !errors.Is(err, informer.ErrSlow) {
			w.Errorf("error %v", err)
		}
		r.end()
	})
}

// selection is what a follower with a selector holds.
type selection struct {
	holds map[string]bool
	lines []string
}

// selecting follows an informer and selects the objects whose label app is "1".
func selecting(w *world, inf *informer.Informer) *selection {
	w.Helper()
	events, err := inf.Follow(w.Context(), informer.FollowOptions{Initial: true})
	if err != nil {
		w.Fatal(err)
	}
	s := &selection{holds: map[string]bool{}}
	go func() {
		for e, err := range events {
			if err != nil || e.Type == informer.Current {
				continue
			}
			if e.Type == informer.Modified && e.Old != nil && describe(e.Old) == describe(e.Object) {
				w.Errorf("the state before %s is the same", describe(e.Object))
			}
			out, ok, err := e.Selected(func(obj runtime.Object) (bool, error) {
				m, err := meta.Accessor(obj)
				return err == nil && m.GetLabels()["app"] == "1", err
			})
			if err != nil {
				w.Error(err)
			}
			if !ok {
				continue
			}
			s.lines = append(s.lines, fmt.Sprint(out.Type, " ", describe(out.Object)))
			if m, err := meta.Accessor(out.Object); err == nil {
				s.holds[m.GetName()] = out.Type != informer.Deleted
			}
		}
	}()
	synctest.Wait()
	s.lines = nil
	return s
}

func (s *selection) want(w *world, holds map[string]bool, lines ...string) {
	w.Helper()
	synctest.Wait()
	if diff := cmp.Diff(holds, s.holds); diff != "" {
		w.Errorf("what the follower holds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lines, s.lines); diff != "" {
		w.Errorf("what the follower has received (-want +got):\n%s", diff)
	}
}

// TestFollowLost checks a follower with a selector when the states before are lost: they
// count as ones that matched.
func TestFollowLost(t *testing.T) {
	for name, wire := range map[string]string{"decoded": "", "encoded": "application/vnd.kubernetes.protobuf"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				if wire != "" {
					w.overWire(wire, nil)
				}
				w.put("a", "1") // 2
				w.put("b", "1") // 3
				w.put("c", "1") // 4
				w.put("d", "0") // 5
				r := w.run(informer.Options{}).sync()
				waitFor(2 * time.Second)
				s := selecting(w, r.inf)
				w.server.Down()
				w.drop("b")     // 6
				w.put("a", "2") // 7
				if _, err := r.db.Wipe(nil); err != nil {
					t.Fatal(err)
				}
				w.server.Up()
				waitFor(5 * time.Minute)
				s.want(w, map[string]bool{"a": false, "b": false, "c": true, "d": false},
					"DELETED a@7=2", "MODIFIED c@4=1", "DELETED d@5=0", "DELETED b@=")
				r.end()
			})
		})
	}
}

// TestFollowRefused checks a follower with a selector when an object is deleted in a
// state that could not be stored: the follower holds the one before, or none.
func TestFollowRefused(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("leaves", "1") // 2
		w.put("enters", "0") // 3
		w.put("stays", "1")  // 4
		r := w.run(informer.Options{Indexers: cache.Indexers{"x": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Data["v"] == "bad" {
				return nil, errors.New("no index")
			}
			return nil, nil
		}}}).sync()
		waitFor(2 * time.Second)
		s := selecting(w, r.inf)
		for name, label := range map[string]string{"leaves": "0", "enters": "1", "stays": "1"} {
			bad := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": label}},
				Data:       map[string]string{"v": "bad"},
			}
			if _, err := w.server.Update(bad); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(time.Minute)
		w.drop("leaves") // 8
		w.drop("enters") // 9
		w.drop("stays")  // 10
		waitFor(time.Minute)
		s.want(w, map[string]bool{"leaves": false, "stays": false}, "DELETED leaves@8=1", "DELETED stays@10=1")
		r.end()
	})
}

// TestFollowUnchanged checks that a follower receives nothing of a list that has changed
// nothing, although handlers are resynced after it.
func TestFollowUnchanged(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 2000 { // more than the buffer of a follower
			w.put(fmt.Sprintf("o%04d", i), "1")
		}
		l := &log{}
		r := w.run(informer.Options{NotifyUnchanged: true}, handle(w, l)).sync()
		f := startFollowing(w.T, r.inf, informer.FollowOptions{})
		f.want("CURRENT")
		l.take()
		w.server.Advance()
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		w.server.Advance()
		w.server.CloseWatches()
		waitFor(2 * time.Minute)
		f.want()
		if n := len(l.take()); n != 2000 {
			t.Errorf("the handler is resynced with %d objects, want 2000", n)
		}
		r.end()
	})
}

// TestFollowBeforeOpened checks followers that come before the informer has opened its
// scope: from now on they receive what has changed since the process before, and of a
// scope that held nothing every object.
func TestFollowBeforeOpened(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		var now, all *followed
		follow := func(inf *informer.Informer) {
			now = startFollowing(w.T, inf, informer.FollowOptions{})
			all = startFollowing(w.T, inf, informer.FollowOptions{Initial: true})
			synctest.Wait()
		}
		r := w.run(informer.Options{}, follow).sync()
		now.want("CURRENT", "ADDED a@2", "ADDED b@3")
		all.want("INITIAL a@2", "INITIAL b@3", "CURRENT")
		waitFor(2 * time.Second)
		r.end()
		w.put("a", "2") // 4
		w.put("c", "1") // 5
		r = w.run(informer.Options{}, follow).sync()
		now.want("CURRENT", "MODIFIED a@4", "ADDED c@5")
		// A change may come before the initial objects of others.
		all.wantOneOf(
			[]string{"INITIAL a@2", "INITIAL b@3", "MODIFIED a@4", "INITIAL c@5", "CURRENT"},
			[]string{"INITIAL a@2", "MODIFIED a@4", "INITIAL b@3", "INITIAL c@5", "CURRENT"},
			[]string{"INITIAL a@2", "MODIFIED a@4", "INITIAL c@5", "INITIAL b@3", "CURRENT"},
		)
		r.end()
	})
}
