package factories_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// state is an object as the tests compare it.
type state struct {
	Type     string
	UID, RV  string
	Deleting bool
	Hash     string // of its JSON without the kind, which lists leave out
}

func stateOf(obj runtime.Object) state {
	s := state{Type: fmt.Sprintf("%T", obj)}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		s.Hash = err.Error()
		return s
	}
	s.UID, s.RV, s.Deleting = string(accessor.GetUID()), accessor.GetResourceVersion(), accessor.GetDeletionTimestamp() != nil
	obj = obj.DeepCopyObject()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		delete(u.Object, "kind")
		delete(u.Object, "apiVersion")
	} else {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	b, err := json.Marshal(obj)
	if err != nil {
		s.Hash = err.Error()
		return s
	}
	sum := sha256.Sum256(b)
	s.Hash = hex.EncodeToString(sum[:8])
	return s
}

// view is a handler: what it was told, folded and as it came.
type view struct {
	mu      sync.Mutex
	changed chan struct{} // closed with the next call
	objects map[string]state
	last    map[string]state // before the deletion, of what is gone
	calls   map[string][]string
	faults  []string // what broke a guarantee
}

func newView() *view {
	return &view{
		changed: make(chan struct{}),
		objects: map[string]state{}, last: map[string]state{}, calls: map[string][]string{},
	}
}

func (v *view) fold(call string, obj any, f func(key string, s state)) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	o, ok := obj.(runtime.Object)
	if err != nil || !ok || o == nil {
		v.faults = append(v.faults, fmt.Sprintf("%s %q: no object", call, key))
		return
	}
	s := stateOf(o)
	// That an API server marks a pod before it deletes it is the server's affair.
	if call != "update" || !s.Deleting {
		v.calls[key] = append(v.calls[key], call)
	}
	if call != "delete" && !s.Deleting {
		v.last[key] = s
	}
	f(key, s)
	close(v.changed)
	v.changed = make(chan struct{})
}

// OnAdd, OnUpdate and OnDelete check the named guarantees as they fold: one add
// per object and start, no update before it, old is what was last delivered.
func (v *view) OnAdd(obj any, isInInitialList bool) {
	call := "add"
	if isInInitialList {
		call = "initial"
	}
	v.fold(call, obj, func(key string, s state) {
		if _, there := v.objects[key]; there {
			v.faults = append(v.faults, key+": added twice")
		}
		v.objects[key] = s
	})
}

func (v *view) OnUpdate(old, obj any) {
	was := stateOf(old.(runtime.Object))
	v.fold("update", obj, func(key string, s state) {
		if v.objects[key] != was {
			v.faults = append(v.faults, fmt.Sprintf("%s: update from %v, last delivered was %v", key, was, v.objects[key]))
		}
		v.objects[key] = s
	})
}

func (v *view) OnDelete(obj any) {
	v.fold("delete", obj, func(key string, s state) {
		if v.objects[key].UID != s.UID {
			v.faults = append(v.faults, key+": deletion of what was not delivered")
		}
		delete(v.objects, key)
	})
}

// await blocks until is holds of what was told.
func (v *view) await(t *testing.T, what string, is func(objects map[string]state) bool) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		v.mu.Lock()
		ok, changed := is(v.objects), v.changed
		v.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("not within half a minute: %s", what)
		}
	}
}

// told returns the calls for one object, in order.
func (v *view) told(key string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[key]
}

// snapshot returns what is there by the handler's account, and what was wrong.
func (v *view) snapshot() (objects map[string]state, faults []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.objects), v.faults
}

// lastKnown returns the state that was told last before a deletion.
func (v *view) lastKnown(key string) state {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last[key]
}
