package reflector

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Goal is what a catch-up has to bring: the resource version of each object that differs
// from the list of the first probe, "" for one that the list does not have. The watch
// that has brought all of it has caught up, and need not wait for a bookmark.
//
// A watch may bring an object at a later resource version, and objects that were created
// and deleted in the meantime are in no list: they change nothing, since catching up
// means that the state is at least as new as the list.
type Goal map[cache.ObjectName]string

// whole compares the list of the first probe, if it is whole, with what the sink holds.
// If there is no difference, the sink is complete up to the resource version of the list.
func (r *Reflector) whole(ctx context.Context, list runtime.Object, now string) error {
	accessor, err := meta.ListAccessor(list)
	if err != nil || accessor.GetContinue() != "" {
		return nil
	}
	goal, relist, err := r.opts.Compare(ctx, list)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("The list of the probe was not compared", "because", err.Error())
		return nil
	case relist != "":
		r.relistFor(ctx, relist)
		return nil
	case len(goal) > 0:
		r.goal = goal
		return nil
	}
	if err := r.opts.Sink.Bookmark(ctx, now); err != nil {
		return err
	}
	r.hold(now)
	return nil
}

// reached takes from the goal what an event has brought, and reports whether that was the
// last of it.
func (g Goal) reached(t watch.EventType, name cache.ObjectName, rv string) bool {
	want, ok := g[name]
	if !ok {
		return false
	}
	if t == watch.Deleted {
		ok = want == ""
	} else {
		order, err := resourceversion.CompareResourceVersion(rv, want)
		ok = want != "" && err == nil && order >= 0
	}
	if ok {
		delete(g, name)
	}
	return ok && len(g) == 0
}
