package informer_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// pointers is a handler that records the objects that it receives, and blocks until its
// gate opens.
type pointers struct {
	cache.ResourceEventHandlerFuncs
	mu   sync.Mutex
	told []*corev1.ConfigMap
}

func newPointers(gate <-chan struct{}) *pointers {
	p := &pointers{}
	note := func(obj any) {
		if gate != nil {
			<-gate
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.told = append(p.told, obj.(*corev1.ConfigMap))
	}
	p.AddFunc = note
	p.UpdateFunc = func(old, obj any) {
		note(old)
		note(obj)
	}
	p.DeleteFunc = note
	return p
}

// TestBacklogIsEncoded checks that the entries of a slow handler's queue after the first
// thousand are encoded (promise 6): the handler receives its own objects, with the same
// content as those of a fast handler.
func TestBacklogIsEncoded(t *testing.T) {
	inBubble(t, func(w *world) {
		gate := make(chan struct{})
		slow, fast := newPointers(gate), newPointers(nil)
		r := w.run(informer.Options{}, handle(w, slow), handle(w, fast)).sync()
		const n = 3000
		for i := range n {
			// Created, then updated twice.
			w.put(fmt.Sprintf("o-%d", i%1000), fmt.Sprint(i))
			if i%300 == 0 {
				synctest.Wait()
			}
		}
		for i := range 10 {
			w.drop(fmt.Sprintf("o-%d", i))
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if len(slow.told) != len(fast.told) || len(fast.told) != 1000+2*2000+10 {
			t.Fatalf("the slow handler was told of %d objects, the fast one of %d", len(slow.told), len(fast.told))
		}
		shared, own := 0, 0
		for i := range fast.told {
			if describe(slow.told[i]) != describe(fast.told[i]) {
				t.Fatalf("notification %d is of %s, want %s", i, describe(slow.told[i]), describe(fast.told[i]))
			}
			if slow.told[i] == fast.told[i] {
				shared++
			} else {
				own++
			}
		}
		if shared < 1000 || own < 2000 {
			t.Errorf("%d objects are shared, %d were encoded", shared, own)
		}
		r.end()
	})
}
