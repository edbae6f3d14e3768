package informer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// TestEndpointRecreated checks that a client does not receive the deletion of an object
// alone whose re-creation, in the same commit, it has received.
func TestEndpointRecreated(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		r := w.run(informer.Options{}).sync()
		waitFor(time.Minute)
		w.drop("a")     // 4
		w.put("a", "1") // 5
		w.put("b", "1") // 6
		waitFor(time.Minute)
		h := handlerOf(r.inf)
		for rv, want := range map[string][]string{
			"5": {"MODIFIED b=1"},
			"4": {"DELETED a=1", "ADDED a=1", "MODIFIED b=1"},
			"3": {"DELETED a=1", "ADDED a=1", "MODIFIED b=1"},
		} {
			wantLogged(t, h, rv, want...)
			wantLogged(t, h, rv+"&selector=app=1", want...)
		}
		r.end()
	})
}

// TestEndpointFrozen checks a client with a selector while the resource version in the
// file stays behind: what it is told is no place. After that it goes on from a version
// inside the commit that catches up.
func TestEndpointFrozen(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "0") // 2
		w.put("b", "1") // 3
		r := w.run(informer.Options{Indexers: cache.Indexers{"x": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Data["v"] == "bad" {
				return nil, errors.New("no index")
			}
			return nil, nil
		}}}).sync()
		waitFor(time.Minute)
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		live := client.open("/v1/changes?since=now")
		synctest.Wait()
		w.put("bad", "bad") // 4
		waitFor(2 * time.Second)
		w.put("a", "2") // 5
		if line := live.next(); summary(line) != "MODIFIED a=2" || !strings.Contains(line, `"listed":true`) {
			t.Errorf("told %s, want MODIFIED and listed", line)
		}
		live.close()
		client.end()
		waitFor(2 * time.Second)
		w.put("b", "2") // 6
		waitFor(time.Minute)
		wantLogged(t, h, "3&selector=app=1", "DELETED b=1")
		wantRefused(t, h, "5&selector=app=1", 504, "ahead of what is stored, resource version 3")
		w.put("a", "3") // 7
		waitFor(2 * time.Second)
		w.put("bad", "ok") // 8
		w.put("a", "1")    // 9
		w.put("b", "3")    // 10
		w.put("a", "4")    // 11
		waitFor(time.Minute)
		wantLogged(t, h, "10&selector=app=1", "DELETED a=4")
		r.end()
	})
}

// TestEndpointPartOfList checks a client that has received a part of a list, which has no
// order, when the commit with the list has a later change of the same object.
func TestEndpointPartOfList(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "0") // 2
		w.put("b", "1") // 3
		r := w.run(informer.Options{})
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		r.sync()
		waitFor(time.Minute)
		s := client.open("/v1/changes?selector=app=1")
		synctest.Wait()
		w.put("b", "1") // 4
		s.wantNext(t, "live", "MODIFIED b=1")
		waitFor(time.Minute)
		w.server.Down()
		w.put("a", "1")    // 5
		w.server.Advance() // 6
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		w.server.Up()
		s.wantNext(t, "of a list", "ADDED a=1")
		w.put("a", "0") // 7
		s.close()
		waitFor(time.Minute)
		wantLogged(t, h, "4&selector=app=1", "DELETED a=0")
		client.end()
		r.end()
	})
}

// TestSelectedTwice checks that a client may select once more: where the state before is
// not known to the first selection, it counts as one that matched for the second.
func TestSelectedTwice(t *testing.T) {
	never := func(runtime.Object) (bool, error) { return false, nil }
	always := func(runtime.Object) (bool, error) { return true, nil }
	unknown := informer.Event{Type: informer.Modified, Object: &corev1.ConfigMap{}}
	first, ok, err := unknown.Selected(never)
	if !ok || err != nil || first.Type != informer.Deleted {
		t.Fatalf("%v %v %v", first.Type, ok, err)
	}
	if second, ok, err := first.Selected(never); !ok || err != nil || second.Type != informer.Deleted {
		t.Errorf("the second: %v %v %v", second.Type, ok, err)
	}
	known := informer.Event{Type: informer.Modified, Object: &corev1.ConfigMap{}, Old: &corev1.ConfigMap{}}
	if _, ok, _ := known.Selected(never); ok {
		t.Error("what never matched was selected")
	}
	if e, ok, _ := known.Selected(always); !ok || e.Type != informer.Modified {
		t.Errorf("what always matched is %v", e.Type)
	}
	asked := func(obj runtime.Object) (bool, error) { return false, fmt.Errorf("asked of %v", obj) }
	if e, ok, err := (informer.Event{Type: informer.Current}).Selected(asked); !ok || err != nil || e.Type != informer.Current {
		t.Errorf("Current: %v %v %v", e.Type, ok, err)
	}
}
