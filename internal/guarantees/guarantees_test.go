package guarantees_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	. "github.com/informctl/informctl/internal/guarantees"
)

// object returns an object "a" with a UID, a resource version and content.
func object(uid, rv, content string) *corev1.ConfigMap {
	obj := &corev1.ConfigMap{Data: map[string]string{"v": content}}
	obj.Name, obj.UID, obj.ResourceVersion = "a", types.UID(uid), rv
	return obj
}

// Each resource version has one content, except 2, which has two.
var (
	first   = object("u", "1", "1")
	second  = object("u", "2", "2")
	third   = object("u", "3", "3")
	twoToo  = object("u", "2", "a new default")
	another = object("w", "4", "4")
	opaque  = object("u", "v0", "0")
)

func tombstone(obj any) cache.DeletedFinalStateUnknown {
	return cache.DeletedFinalStateUnknown{Key: "a", Obj: obj}
}

func states(objs ...*corev1.ConfigMap) map[string]State {
	out, err := States(objs)
	if err != nil {
		panic(err)
	}
	return out
}

// registration is a registration of a handler that has synced, or not.
type registration struct {
	cache.ResourceEventHandlerRegistration
	synced bool
}

func (r *registration) HasSynced() bool { return r.synced }

// TestGuarantees contains traces that violate each guarantee, with the expected
// violation, and traces that do not.
func TestGuarantees(t *testing.T) {
	type violation struct {
		of              Guarantee
		start, position int
	}
	none := violation{}
	for _, c := range []struct {
		name  string
		want  violation
		trace func(r *Recorder)
	}{
		{"nothing", none, func(*Recorder) {}},
		{"a life", none, func(r *Recorder) {
			r.OnAdd(first, true)
			r.OnUpdate(first, second)
			r.OnDelete(third) // a deletion of a watch has its own resource version
			r.OnAdd(another, false)
			r.OnDelete(tombstone(another))
		}},

		{"goes back", violation{Ordered, 1, 2}, func(r *Recorder) { r.OnAdd(second, true); r.OnUpdate(second, first) }},
		{"deleted as of before", violation{Ordered, 1, 2}, func(r *Recorder) { r.OnAdd(second, true); r.OnDelete(first) }},
		{"added as of before its deletion", violation{Ordered, 1, 3}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.OnDelete(third)
			r.OnAdd(second, false)
		}},
		{"added as of its deletion", violation{Ordered, 1, 3}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.OnDelete(tombstone(first))
			r.OnAdd(first, false)
		}},
		{"told twice", violation{Ordered, 1, 2}, func(r *Recorder) { r.OnAdd(first, true); r.OnUpdate(first, first.DeepCopy()) }},
		{"told twice by client-go's", none, func(r *Recorder) {
			r.Repeats = true
			r.OnAdd(first, true)
			r.OnUpdate(first, first.DeepCopy())
		}},
		{"resynced", none, func(r *Recorder) { r.OnAdd(first, true); r.OnUpdate(first, first) }},
		{"other content at one resource version", none, func(r *Recorder) { r.OnAdd(second, true); r.OnUpdate(second, twoToo) }},
		{"no order", none, func(r *Recorder) { r.OnAdd(second, true); r.OnUpdate(second, opaque) }},
		{"went back with the server", none, func(r *Recorder) {
			r.OnAdd(second, true)
			r.Rewound()
			r.OnUpdate(second, first)
		}},
		{"went back with the server, which has another one", none, func(r *Recorder) {
			r.OnAdd(second, true)
			r.Rewound()
			r.OnDelete(tombstone(second))
			r.OnAdd(first, false)
		}},
		{"goes back after the server did", violation{Ordered, 1, 3}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.Rewound()
			r.OnUpdate(first, third)
			r.OnUpdate(third, second)
		}},

		{"from an older one", violation{OldIsLast, 1, 3}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.OnUpdate(first, second)
			r.OnUpdate(first, third)
		}},
		{"from another content", violation{OldIsLast, 1, 2}, func(r *Recorder) { r.OnAdd(second, true); r.OnUpdate(twoToo, third) }},
		{"from nothing", violation{OldIsLast, 1, 2}, func(r *Recorder) { r.OnAdd(first, true); r.OnUpdate(nil, second) }},
		{"from itself", violation{OldIsLast, 1, 2}, func(r *Recorder) { r.OnAdd(first, true); r.OnUpdate(second, second) }},
		{"another one is deleted", violation{OldIsLast, 1, 2}, func(r *Recorder) { r.OnAdd(first, true); r.OnDelete(another) }},
		{"an older tombstone", violation{OldIsLast, 1, 2}, func(r *Recorder) { r.OnAdd(second, true); r.OnDelete(tombstone(twoToo)) }},
		{"an empty tombstone", violation{OldIsLast, 1, 2}, func(r *Recorder) { r.OnAdd(first, true); r.OnDelete(tombstone(nil)) }},
		{"lost", none, func(r *Recorder) {
			r.OnAdd(first, true)
			r.Damaged()
			r.OnUpdate(first, first.DeepCopy())
			r.OnUpdate(second, second.DeepCopy())
			r.OnDelete(tombstone(object("", "", "")))
		}},
		{"from an older one after a loss", violation{OldIsLast, 1, 2}, func(r *Recorder) {
			r.OnAdd(second, true)
			r.Damaged()
			r.OnUpdate(first, third)
		}},

		{"updated, not added", violation{AddFirst, 1, 1}, func(r *Recorder) { r.OnUpdate(first, second) }},
		{"deleted, not added", violation{AddFirst, 1, 1}, func(r *Recorder) { r.OnDelete(first) }},
		{"updated after its deletion", violation{AddFirst, 1, 3}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.OnDelete(first)
			r.OnUpdate(first, second)
		}},
		{"added by the last start only", violation{AddFirst, 2, 1}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.Start(nil)
			r.OnUpdate(first, second)
		}},

		{"added twice", violation{OneAdd, 1, 2}, func(r *Recorder) { r.OnAdd(first, true); r.OnAdd(second, true) }},
		{"added in each start", none, func(r *Recorder) {
			r.OnAdd(first, true)
			r.End()
			r.Start(r.Held())
			r.OnAdd(first, true)
		}},

		{"synced too early", violation{SyncedAfterAdds, 1, 1}, func(r *Recorder) {
			r.Registered(&registration{synced: true})
			r.OnAdd(first, true)
		}},
		{"synced", none, func(r *Recorder) {
			h := &registration{}
			r.Registered(h)
			r.OnAdd(first, true)
			h.synced = true
			r.OnDelete(first)
			r.OnAdd(another, false)
		}},

		{"nothing told", violation{NothingMissing, 1, 0}, func(r *Recorder) { r.AtRest(states(first)) }},
		{"no update told", violation{NothingMissing, 1, 1}, func(r *Recorder) { r.OnAdd(first, true); r.AtRest(states(second)) }},
		{"other content not told", violation{NothingMissing, 1, 1}, func(r *Recorder) { r.OnAdd(second, true); r.AtRest(states(twoToo)) }},
		{"no deletion told", violation{NothingMissing, 1, 1}, func(r *Recorder) { r.OnAdd(first, true); r.AtRest(nil) }},
		{"all told", none, func(r *Recorder) {
			r.OnAdd(first, true)
			r.OnUpdate(first, second)
			r.AtRest(states(second))
			r.OnDelete(second)
			r.AtRest(nil)
		}},

		{"deleted while down and not told", violation{Resumable, 2, 0}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.Start(r.Held())
			r.AtRest(nil)
		}},
		{"resumed too early", violation{Resumable, 2, 1}, func(r *Recorder) {
			r.OnAdd(second, true)
			r.Start(r.Held())
			r.OnAdd(first, true)
			r.OnUpdate(first, second)
			r.AtRest(states(second))
		}},
		{"resumed with other content", violation{Resumable, 2, 1}, func(r *Recorder) {
			r.OnAdd(second, true)
			r.Start(r.Held())
			r.OnAdd(twoToo, true)
		}},
		{"resumed", none, func(r *Recorder) {
			r.OnAdd(first, true)
			r.End()
			r.Start(r.Held())
			r.OnAdd(first, true)
			r.OnDelete(second)
			r.AtRest(nil)
		}},
		{"killed, and nothing known", none, func(r *Recorder) {
			r.OnAdd(second, true)
			r.Start(nil)
			r.OnAdd(first, true)
			r.OnUpdate(first, second)
			r.AtRest(states(second))
		}},

		{"told after shutdown", violation{NothingAfterShutdown, 1, 2}, func(r *Recorder) {
			r.OnAdd(first, true)
			r.End()
			r.OnUpdate(first, second)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(nil)
			c.trace(r)
			var got []violation
			for _, v := range r.Violations() {
				if v.Key != "a" || v.What == "" || !strings.Contains(v.Error(), string(v.Guarantee)) {
					t.Errorf("violation: %v", v)
				}
				got = append(got, violation{v.Guarantee, v.Start, v.Position})
			}
			want := []violation{c.want}
			if c.want == none {
				want = nil
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(violation{})); diff != "" {
				t.Errorf("violations (-want +got):\n%s\n%v", diff, r.Violations())
			}
		})
	}
}

// TestBounded checks that neither a long trace nor many violations are kept.
func TestBounded(t *testing.T) {
	r := New(nil)
	for n := range 10_000 {
		obj := object("u", fmt.Sprint(n+1), "1")
		r.OnAdd(obj, false)
		r.OnAdd(obj, false)
		r.OnDelete(tombstone(obj))
	}
	if n := len(r.Violations()); n != 100 {
		t.Errorf("%d violations are kept, want 100", n)
	}
	if diff := cmp.Diff(Count{Adds: 20_000, Deletes: 10_000}, r.Count()); diff != "" {
		t.Errorf("count (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]State{}, r.Held(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

func TestAwait(t *testing.T) {
	r := New(nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Await(over, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that of the context", err)
	}
	awaited := make(chan error)
	go func() { awaited <- r.Await(t.Context(), "a") }()
	other := object("u", "1", "1")
	other.Name = "b"
	r.OnAdd(other, true)
	r.OnAdd(first, true)
	if err := <-awaited; err != nil {
		t.Error(err)
	}
}
