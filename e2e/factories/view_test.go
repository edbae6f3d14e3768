package factories_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/guarantees"
)

// view is a handler that checks the guarantees and records the calls for each object.
type view struct {
	*guarantees.Recorder
	mu    sync.Mutex // protects calls
	calls map[string][]string
}

// newView returns a handler that must receive all changes to what the last handler held
// when it ended.
func newView(held map[string]guarantees.State) *view {
	return &view{Recorder: guarantees.New(held), calls: map[string][]string{}}
}

func (v *view) note(call string, obj any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return // the recorder reports it
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls[key] = append(v.calls[key], call)
}

func (v *view) OnAdd(obj any, isInInitialList bool) {
	call := "add"
	if isInInitialList {
		call = "initial"
	}
	v.note(call, obj)
	v.Recorder.OnAdd(obj, isInInitialList)
}

func (v *view) OnUpdate(old, obj any) {
	// The API server may mark a pod before it deletes it, so those updates are not
	// counted.
	if accessor, err := meta.Accessor(obj); err != nil || accessor.GetDeletionTimestamp() == nil {
		v.note("update", obj)
	}
	v.Recorder.OnUpdate(old, obj)
}

func (v *view) OnDelete(obj any) {
	v.note("delete", obj)
	v.Recorder.OnDelete(obj)
}

// await blocks until the handler has received the addition of an object in the namespace
// "default".
func (v *view) await(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := v.Await(ctx, "default/"+name); err != nil {
		t.Fatalf("not told of %s within 2 minutes: %v", name, err)
	}
}

// told returns the calls for one object, in order.
func (v *view) told(key string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[key]
}

// check fails the test if a guarantee to this handler was broken.
func (v *view) check(t *testing.T, name string) {
	t.Helper()
	for _, violation := range v.Violations() {
		t.Errorf("%s: %v", name, violation)
	}
}
