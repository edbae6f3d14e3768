// Package audit compares the content of a store with the server. It detects that the
// store is from another history, which no probe can show if etcd was restored from a
// backup and has since grown past the stored resource version.
//
// # Comparison
//
// The store may be behind the list or ahead of it. C is the resource version that the
// store was complete up to before the list was requested, L is the resource version of
// the list. In one history, and if resource versions can be compared:
//
//   - An object that is listed at C or below has not changed since. The store has the
//     same version of it or, if the store continues to change, a version newer than L.
//   - Two states with equal UID and resource version have equal content, unless their
//     type has got another default since.
//   - An object that was stored at L or below, and is not listed, is deleted in a store
//     that is complete up to L. A store that is not complete up to L may still have it.
//
// Any other difference may be a change during the audit. It is counted, not reported.
//
// # Cost
//
// An audit lists all objects, in pages: it compares the content of objects, and servers
// have no digest of it. It uses memory for one page and for the set of listed keys.
package audit

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// Kind is the kind of a difference.
type Kind string

// The kinds of findings.
const (
	Missing  Kind = "missing" // on the server, not in the store
	Ghost    Kind = "ghost"   // in the store, not on the server
	OtherUID Kind = "uid"     // stored with another UID
	// OtherRV is an object stored at a resource version that it never had or no longer
	// has.
	OtherRV      Kind = "version"
	OtherContent Kind = "content" // stored with other content at the same UID and RV
	Rewound      Kind = "rewound" // the server is behind the store; without a key
)

// Finding is an object that differs.
type Finding struct {
	Kind Kind
	Key  string
}

// String returns the kind and the key.
func (f Finding) String() string {
	if f.Key == "" {
		return string(f.Kind)
	}
	return string(f.Kind) + " " + f.Key
}

// Options specify what is compared. A function that may be nil is documented as such.
type Options struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Store store.Store
	// From is the resource version that the store was complete up to before Run.
	From string
	// Held reports whether the store had a key at From. nil: the store does not change.
	Held func(key string) bool
	// Await blocks until the store is complete up to rv, or will not be soon. nil: the
	// store does not change.
	Await func(ctx context.Context, rv string) error
	// Transform was applied to the stored objects. nil: no transform.
	Transform func(runtime.Object) (runtime.Object, error)
	// Content compares the content, in addition to UID and resource version.
	Content bool
	// Pause is called between two pages. nil: no pause.
	Pause func(context.Context) error
	// Found is called for each finding.
	Found func(Finding) error
}

// Result is the result of a comparison.
type Result struct {
	RV       string // of the list
	Listed   int    // objects of the list
	Same     int    // listed objects that are equal in the store
	Changed  int    // objects that have changed, or may have changed, during the audit
	Gone     int    // stored objects that are not listed and may have been deleted since
	Unjudged int    // objects that cannot be compared
	Findings int
	First    Finding // the first finding
	// Other is the first finding that only another history explains: a new default of a
	// type changes content at an equal resource version.
	Other Finding
}

// PageSize is the number of objects per request.
const PageSize = 500

// Run compares once. It blocks until the comparison is done or the context ends. It
// returns the errors of the functions in Options and of the store.
func Run(ctx context.Context, o Options) (Result, error) {
	a := &audit{Options: o, listed: map[string]struct{}{}, behind: map[string]string{}}
	if a.Held == nil {
		a.Held = func(string) bool { return false }
	}
	last, err := a.list(ctx)
	if err != nil || a.result.First.Kind == Rewound {
		return a.result, err
	}
	if a.Await != nil {
		if err := a.Await(ctx, last); err != nil {
			return a.result, err
		}
	}
	return a.result, a.stored(last)
}

type audit struct {
	Options
	result Result
	listed map[string]struct{}
	behind map[string]string // RVs of the list that the store has not reached, by key
}

func (a *audit) found(kind Kind, key string) error {
	f := Finding{kind, key}
	if a.result.Findings++; a.result.Findings == 1 {
		a.result.First = f
	}
	if kind != OtherContent && a.result.Other.Kind == "" {
		a.result.Other = f
	}
	return a.Found(f)
}

// list compares each object of a list and returns the resource version of its last page.
// The request has no resource version, so it is a consistent read. With "0" it would be
// of any age and not paged.
func (a *audit) list(ctx context.Context) (rv string, err error) {
	opts := metav1.ListOptions{Limit: PageSize}
	for {
		list, err := a.List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		rv = accessor.GetResourceVersion()
		if a.result.RV == "" {
			a.result.RV = rv
		}
		if order, ok := compare(rv, a.From); ok && order < 0 {
			return rv, a.found(Rewound, "")
		}
		if err := meta.EachListItem(list, func(obj runtime.Object) error { return a.object(obj, rv) }); err != nil {
			return "", err
		}
		if opts.Continue = accessor.GetContinue(); opts.Continue == "" {
			return rv, nil
		}
		if a.Pause != nil {
			if err := a.Pause(ctx); err != nil {
				return "", err
			}
		}
	}
}

// object compares one object that the server had at listRV.
func (a *audit) object(obj runtime.Object, listRV string) error {
	a.result.Listed++
	accessor, err := meta.Accessor(obj)
	if err != nil {
		a.result.Unjudged++
		return nil
	}
	rv, uid := accessor.GetResourceVersion(), string(accessor.GetUID())
	original := obj
	if a.Transform != nil {
		if obj, err = a.Transform(obj); err != nil {
			obj = original // stored under its own key, unless the transform renames
		}
	}
	key, keyErr := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if keyErr == nil {
		a.listed[key] = struct{}{}
	}
	if err != nil || keyErr != nil {
		a.result.Unjudged++
		return nil
	}
	held, same, err := a.Store.Compare(obj)
	var bad *store.ObjectError
	if errors.As(err, &bad) {
		a.result.Unjudged++
		return nil
	}
	if err != nil {
		return err
	}
	order, ok := compare(rv, a.From)
	known := ok && order <= 0 // the store had it at From
	switch {
	case held.Key == "" && known && !a.Held(key):
		return a.found(Missing, key)
	case held.Key == "":
		a.result.Changed++
	case held.RV == rv && rv != "" && held.UID != uid:
		return a.found(OtherUID, key)
	case held.RV == rv && rv != "" && a.Content && !same:
		return a.found(OtherContent, key)
	case held.RV == rv && rv != "":
		a.result.Same++
	default:
		return a.otherVersion(held, key, rv, uid, listRV, known)
	}
	return nil
}

// otherVersion compares an object that is listed at rv and stored at another version.
func (a *audit) otherVersion(held store.Header, key, rv, uid, listRV string, known bool) error {
	order, ok := compare(held.RV, rv)
	if !ok {
		a.result.Unjudged++
		return nil
	}
	wrong := known // it is older, and the store was complete up to rv
	if order > 0 {
		past, ok := compare(held.RV, listRV)
		wrong = ok && past <= 0 // at listRV the object had rv, not this version
	}
	switch {
	case wrong && held.UID != uid:
		return a.found(OtherUID, key)
	case wrong:
		return a.found(OtherRV, key)
	}
	if order < 0 && a.Await != nil {
		a.behind[key] = rv
	}
	a.result.Changed++
	return nil
}

// stored finds stored objects that were not listed, and checks again the objects that
// were behind the list.
func (a *audit) stored(listRV string) error {
	order, ok := compare(a.Store.Checkpoint().RV, listRV)
	complete := ok && order >= 0
	for h, err := range store.HeadersOfAll(a.Store) {
		if err != nil {
			return err
		}
		if _, ok := a.listed[h.Key]; !ok {
			order, ok := compare(h.RV, a.result.RV)
			switch {
			case !ok:
				a.result.Unjudged++
			case order > 0:
				a.result.Changed++
			case complete:
				if err := a.found(Ghost, h.Key); err != nil {
					return err
				}
			default:
				a.result.Gone++
			}
			continue
		}
		if want, behind := a.behind[h.Key]; behind && complete {
			if order, ok := compare(h.RV, want); ok && order < 0 {
				if err := a.found(OtherRV, h.Key); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func compare(a, b string) (order int, ok bool) {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order, err == nil
}
