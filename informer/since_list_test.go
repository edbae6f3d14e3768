package informer_test

import (
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// cutLists is a backend whose lists end with an error after the first change, while cut
// is set.
type cutLists struct {
	store.Backend
	cut atomic.Bool
}

func (b *cutLists) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	return &cutListsStore{s, b}, err
}

type cutListsStore struct {
	store.Store
	backend *cutLists
}

func (s *cutListsStore) Relist() (store.Relist, error) {
	r, err := s.Store.Relist()
	return &cutList{r, s.backend}, err
}

type cutList struct {
	store.Relist
	backend *cutLists
}

func (r *cutList) Parts(rv string) iter.Seq2[store.Batch, error] {
	if !r.backend.cut.CompareAndSwap(true, false) {
		return r.Relist.Parts(rv)
	}
	return func(yield func(store.Batch, error) bool) {
		for b, err := range r.Relist.Parts(rv) {
			if err == nil {
				b.RV, b.Changes = "", b.Changes[:1]
				if yield(b, nil) {
					yield(store.Batch{}, errors.New("the list was cut"))
				}
				return
			}
		}
	}
}

// TestEndpointOfCutList checks that a client that has received a part of an unfinished
// list does not take its resource version for a place.
func TestEndpointOfCutList(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		db := w.open()
		backend := &cutLists{Backend: db}
		r := w.run(informer.Options{Backend: backend})
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		r.sync()
		s := client.open("/v1/changes?since=now")
		backend.cut.Store(true)
		w.server.Down()
		w.put("b", "2") // 4
		w.put("a", "2") // 5
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		w.server.Up()
		if line := s.next(); summary(line) != "MODIFIED a=2" || !strings.Contains(line, `"listed":true`) {
			t.Errorf("told %s of a list that is cut, want MODIFIED and listed", line)
		}
		s.close()
		waitFor(5 * time.Minute)
		if backend.cut.Load() {
			t.Error("no list was cut: the test proves nothing")
		}
		client.end()
		r.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestEndpointSinceOfMended checks that a client cannot go on from before a list that
// brings what could not be stored before.
func TestEndpointSinceOfMended(t *testing.T) {
	inBubble(t, func(w *world) {
		var fails atomic.Bool
		fails.Store(true)
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		r := w.run(informer.Options{}, func(inf *informer.Informer) {
			err := inf.SetTransform(func(obj any) (any, error) {
				if cm := obj.(*corev1.ConfigMap); cm.Name == "b" && cm.Data["v"] == "2" && fails.Load() {
					return nil, errors.New("cannot transform it")
				}
				return obj, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		r.sync()
		s := client.open("/v1/changes?since=now")
		w.put("b", "2") // 4
		waitFor(5 * time.Minute)
		w.put("a", "2") // 5
		if line := s.next(); summary(line) != "MODIFIED a=2" || !strings.Contains(line, `"listed":true`) {
			t.Errorf("told %s while an object cannot be stored, want MODIFIED and listed", line)
		}
		s.close()
		synctest.Wait()
		fails.Store(false)
		if _, err := r.db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		waitFor(5 * time.Minute)
		wantRefused(t, h, "3", 410, "known from resource version 5 on")
		w.put("c", "1") // 6
		synctest.Wait()
		wantLogged(t, h, "5", "ADDED c=1")
		client.end()
		r.end()
	})
}
