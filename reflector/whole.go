package reflector

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// whole compares the list of the first probe, if it is whole, with what the sink holds.
// If nothing differs, the sink is complete up to the resource version of the list, and no
// bookmark is waited for, and whole returns true.
//
// If something differs, the watch catches up as that of a large collection does. It has
// not caught up as soon as it has brought the objects that differ: between the stored
// resource version and the list's, it may still bring an object that was created and
// deleted in the meantime, and readers would see it after HasSynced.
func (r *Reflector) whole(ctx context.Context, list runtime.Object, now string) (same bool, err error) {
	accessor, err := meta.ListAccessor(list)
	if err != nil || accessor.GetContinue() != "" {
		return false, nil //nolint:nilerr // it is not compared
	}
	same, relist, err := r.opts.Compare(ctx, list)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("The list of the probe was not compared", "because", err.Error())
		return false, nil
	case relist != "":
		r.relistFor(ctx, relist)
		return false, nil
	case !same:
		return false, nil
	}
	if err := r.opts.Sink.Bookmark(ctx, now); err != nil {
		return false, err
	}
	r.hold(now)
	return true, nil
}
