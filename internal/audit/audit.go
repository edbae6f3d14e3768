// Package audit compares what a store holds with what the server has, to find what
// no probe shows: that the store is of another history, one that a restored etcd has
// left and that has since grown past the stored resource version.
//
// # What can be judged
//
// The store may be behind the list, or ahead of it. C is the resource version that
// the store was complete up to before the list was asked for, L that of the list. In
// one history, where resource versions can be compared:
//
//   - An object that is listed at C or below has not changed since, so the store has
//     that version of it, or, where the store goes on, one that is newer than L.
//   - Two states of equal UID and resource version have equal content.
//   - An object that was stored at L or below, and is not listed, is gone from a store
//     that is complete up to L. A store that is not may still have it.
//
// All else may have changed meanwhile and is counted, not reported.
//
// # Cost
//
// One list of all objects, in pages: the content of an object is compared, and
// servers have no digest of it. Memory is one page and the set of listed keys.
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

// Kind is what is different of an object.
type Kind string

// The kinds of findings.
const (
	Missing      Kind = "missing" // on the server, and not stored
	Ghost        Kind = "ghost"   // stored, and not on the server
	OtherUID     Kind = "uid"     // stored with another UID
	OtherRV      Kind = "version" // stored at a resource version that it never had, or no longer has
	OtherContent Kind = "content" // stored with the same UID and resource version
	Rewound      Kind = "rewound" // the server is behind the store; of no object
)

// Finding is an object that differs.
type Finding struct {
	Kind Kind
	Key  string
}

// String names kind and key.
func (f Finding) String() string {
	if f.Key == "" {
		return string(f.Kind)
	}
	return string(f.Kind) + " " + f.Key
}

// Options say what is compared. Functions that may be nil say so.
type Options struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Store store.Store
	// From is what the store was complete up to before Run was called.
	From string
	// Held says whether the store had a key at From. nil: it does not change.
	Held func(key string) bool
	// Await blocks until the store may be complete up to rv, or will not be soon. nil:
	// it does not change.
	Await func(ctx context.Context, rv string) error
	// Transform is what stored objects went through. nil: nothing.
	Transform func(runtime.Object) (runtime.Object, error)
	// Content has the content compared beside UID and resource version.
	Content bool
	// Pause blocks between two pages. nil: not at all.
	Pause func(context.Context) error
	// Found is told of each finding.
	Found func(Finding) error
}

// Result says what was compared.
type Result struct {
	RV       string // of the list
	Listed   int    // objects of the list
	Same     int    // of them, those that are stored as they are listed
	Changed  int    // objects that have changed between store and list, or may have
	Gone     int    // stored, not listed, and perhaps deleted since
	Unjudged int    // objects that nothing can be said of
	Findings int
	First    Finding // of them
}

// PageSize is how many objects one request asks for.
const PageSize = 500

// Run compares once. It blocks until that is done or the context ends. Errors: those
// of Options' functions and of the store.
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
	behind map[string]string // what of the list the store has yet to reach, by key
}

func (a *audit) found(kind Kind, key string) error {
	f := Finding{kind, key}
	if a.result.Findings++; a.result.Findings == 1 {
		a.result.First = f
	}
	return a.Found(f)
}

// list compares each object of a list and returns the resource version of its last
// page. It sets none: that is a consistent read, where 0 would be any staleness, and
// no pages.
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
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		a.result.Unjudged++
		return nil
	}
	a.listed[key] = struct{}{}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		a.result.Unjudged++
		return nil
	}
	rv, uid := accessor.GetResourceVersion(), string(accessor.GetUID())
	if a.Transform != nil {
		if obj, err = a.Transform(obj); err != nil {
			a.result.Unjudged++
			return nil
		}
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

// otherVersion is of an object that is listed at rv and stored at another.
func (a *audit) otherVersion(held store.Header, key, rv, uid, listRV string, known bool) error {
	order, ok := compare(held.RV, rv)
	if !ok {
		a.result.Unjudged++
		return nil
	}
	wrong := known // it is older, and was rv when the store was complete up to that
	if order > 0 {
		past, ok := compare(held.RV, listRV)
		wrong = ok && past <= 0 // at listRV it had rv, not this
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

// stored looks for what the list did not have, and again at what was behind it.
func (a *audit) stored(listRV string) error {
	order, ok := compare(a.Store.Checkpoint().RV, listRV)
	complete := ok && order >= 0
	for h, err := range a.Store.Headers() {
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
