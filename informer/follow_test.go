package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"

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
