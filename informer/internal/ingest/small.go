package ingest

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// small compares small collections with the server's, so that a warm start of one needs
// no watch to catch up. Only the reflector's goroutine uses it.
type small struct {
	store     store.Store
	wire      *wire
	transform *transform
	other     func() // the store is found to be of another history
}

// A collection of at most smallObjects objects and smallBytes bytes is small: the first
// probe of a warm start asks for all of it. Where nothing has changed, the informer is
// synced at once, else after a bookmark, which the server sends about a second later.
const (
	smallObjects = reflector.WholeLimit - 50 // some may be new
	smallBytes   = 1 << 20
)

// isSmall reports whether the stored collection is small and of the resource version of
// its checkpoint. If an object is newer, as after an object that could not be stored, the
// watch brings again what was told before, and catching up ends behind that.
func (w *small) isSmall() bool {
	if w.store.Len() > smallObjects {
		return false
	}
	size, complete := int64(0), w.store.Checkpoint().RV
	for h, err := range store.HeadersOfAll(w.store) {
		if err != nil {
			return false
		}
		order, err := resourceversion.CompareResourceVersion(h.RV, complete)
		if size += h.Bytes; err != nil || order > 0 || size > smallBytes {
			return false
		}
	}
	return true
}

// compare reports whether a whole list is what is stored, for reflector.Options.Compare.
func (w *small) compare(_ context.Context, list runtime.Object) (same bool, relist string, err error) {
	same = true
	other := false
	listed := sets.New[string]()
	complete := w.store.Checkpoint().RV
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		// Nothing of this process was stored: no list is due if the ListerWatcher changes
		// objects.
		obj, err := w.wire.tap.Take(obj, false)
		if err != nil {
			return err
		}
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		rv := accessor.GetResourceVersion()
		if obj, err = w.transform.apply(obj); err != nil {
			return err
		}
		key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
		if err != nil {
			return err
		}
		listed.Insert(key)
		held, equal, err := w.same(obj)
		if err != nil || equal {
			return err
		}
		same = false
		order, err := resourceversion.CompareResourceVersion(rv, complete)
		switch {
		case err != nil || order > 0: // changed since
		case held.RV == rv && held.UID == string(accessor.GetUID()):
			relist = "an object has other content at its resource version"
		default:
			relist, other = "an object that was not changed since is not as it was stored: it has another history", true
		}
		return nil
	})
	if err != nil {
		return false, "", err
	}
	if relist != "" {
		if other {
			w.other()
		}
		return false, relist, nil
	}
	return same && listed.Len() == w.store.Len(), "", nil
}

// same compares an object with the stored one. If only their encodings differ, it
// compares the decoded object: one with a Go type may have been stored with its kind.
func (w *small) same(obj runtime.Object) (held store.Header, equal bool, err error) {
	held, equal, err = w.store.Compare(obj)
	o, isEncoded := obj.(*store.EncodedObject)
	if err != nil || equal || !isEncoded || held.RV != o.ResourceVersion {
		return held, equal, err
	}
	if obj, err = w.wire.decode(obj); err != nil {
		return held, false, err
	}
	return w.store.Compare(obj)
}
