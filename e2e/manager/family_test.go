package manager_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// editedAnnotation has the text of the last family.edit.
const editedAnnotation = "example.com/edited"

// family is parents with a pod each, their child.
type family struct {
	*testing.T
	*world
	names    []string
	used     int // so many of names were changed
	parents  map[string]client.Object
	children map[string]client.Object
}

// family creates a namespace with parents, the i-th of which parent makes, and their
// children, and deletes them at the end of the test.
func (w *world) family(t *testing.T, namespace string, size int, parent func(i int) client.Object) *family {
	t.Helper()
	f := &family{T: t, world: w, parents: map[string]client.Object{}, children: map[string]client.Object{}}
	if err := w.direct.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests list the whole cluster
		ctx := context.WithoutCancel(t.Context())
		for _, kind := range []client.Object{&corev1.Pod{}, parent(0)} {
			// The server ends a request after a minute, which is too short for 20,000.
			err := retry.OnError(retry.DefaultBackoff, func(error) bool { return true }, func() error {
				return w.direct.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.GracePeriodSeconds(0))
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	for i := range size {
		name := fmt.Sprintf("parent-%05d", i)
		f.names = append(f.names, name)
		f.parents[name] = parent(i)
		f.parents[name].SetNamespace(namespace)
		f.parents[name].SetName(name)
		f.children[name] = pod(namespace, "of-"+name, corev1.RestartPolicyNever)
	}
	f.each(f.names, func(ctx context.Context, name string) error {
		if err := w.direct.Create(ctx, f.parents[name]); err != nil {
			return err
		}
		if err := f.own(name, name); err != nil {
			return err
		}
		return w.direct.Create(ctx, f.children[name])
	})
	return f
}

// each calls do for each name, some of them concurrently.
func (f *family) each(names []string, do func(ctx context.Context, name string) error) {
	f.Helper()
	g, ctx := errgroup.WithContext(f.Context())
	g.SetLimit(16)
	for _, name := range names {
		g.Go(func() error { return do(ctx, name) })
	}
	if err := g.Wait(); err != nil {
		f.Error(err)
	}
}

// own makes a parent the owner of a child, in memory.
func (f *family) own(parent, child string) error {
	kind, err := f.direct.GroupVersionKindFor(f.parents[parent])
	f.children[child].SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(f.parents[parent], kind)})
	return err
}

// edit sets an annotation of parents.
func (f *family) edit(text string, names ...string) {
	f.Helper()
	f.each(names, func(ctx context.Context, name string) error {
		f.parents[name].SetAnnotations(map[string]string{editedAnnotation: text})
		return f.direct.Update(ctx, f.parents[name])
	})
}

// take returns the names of the next parents, which were not changed yet.
func (f *family) take(n int) []string {
	f.used += n
	return f.names[f.used-n : f.used]
}

// change changes some parents, deletes the children of the next ones, deletes the next
// ones, and moves the children of the next ones to others. It returns the names of all of
// them.
func (f *family) change(changed, orphaned, deleted, moved int) []string {
	f.Helper()
	first := f.used
	f.edit("yes", f.take(changed)...)
	f.each(f.take(orphaned), func(ctx context.Context, name string) error {
		return f.direct.Delete(ctx, f.children[name], client.GracePeriodSeconds(0))
	})
	f.each(f.take(deleted), func(ctx context.Context, name string) error {
		return f.direct.Delete(ctx, f.parents[name])
	})
	from, to := f.take(moved), f.take(moved)
	f.each(from, func(ctx context.Context, name string) error {
		if err := f.own(to[slices.Index(from, name)], name); err != nil {
			return err
		}
		return f.direct.Update(ctx, f.children[name])
	})
	return f.names[first:f.used]
}

func newConfigMap(int) client.Object { return &corev1.ConfigMap{} }

// tally counts how often names were reconciled.
type tally struct {
	*testing.T

	mu         sync.Mutex // protects the fields below
	reconciled map[string]int
	last       time.Time // when one was
}

func newTally(t *testing.T) *tally { return &tally{T: t, reconciled: map[string]int{}} }

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reconciled[name]++
	c.last = time.Now()
}

// names returns the names that were reconciled, in order, and when the last one was.
func (c *tally) names() (got []string, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.reconciled {
		got = append(got, name)
	}
	slices.Sort(got)
	return got, c.last
}

// want waits until all of the names are reconciled, and checks that for some time no
// others are.
func (c *tally) want(what string, names ...string) {
	c.Helper()
	const settle, patience = 3 * time.Second, time.Minute
	names = slices.Sorted(slices.Values(names))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); ; <-tick.C {
		got, last := c.names()
		if last.Before(begun) {
			last = begun
		}
		quiet := time.Since(last)
		if slices.Equal(names, got) && quiet > settle {
			return
		}
		if len(got) > len(names) || quiet > patience {
			c.Errorf("%s: reconciled (-want +got):\n%s", what, cmp.Diff(names, got))
			return
		}
	}
}
