package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// logged stores a list, begins to follow, and returns the place after the list: a backend
// in memory keeps nothing before that.
func (h *harness) logged(objects ...runtime.Object) store.Place {
	h.Helper()
	h.listed(objects...)
	return h.follows()
}

func (h *harness) follows() store.Place {
	h.Helper()
	must(h, h.Flush(h.Context()))
	h.begins()
	return h.place()
}

// place returns the last place in the log, after everything is written.
func (h *harness) place() store.Place {
	h.Helper()
	must(h, h.Flush(h.Context()))
	log, err := h.History()
	must(h, err)
	if log.Last.IsZero() {
		h.Fatalf("the log has no mark")
	}
	return log.Last
}

// followed returns what follows a place, up to the end of the log. It checks that who
// follows some objects gets the same of them, and that the mark of the place is found.
func followed(s store.Store, after store.Place) (events []store.Event, err error) {
	if events, err = collected(s.Follow(ended(), after)); err != nil {
		return events, err
	}
	for _, e := range events {
		if e.Mark != nil {
			continue
		}
		namespace, name, _ := cache.SplitMetaNamespaceKey(e.Key)
		for _, f := range []store.LogFilter{{Names: []string{name}}, {Namespace: namespace}} {
			if err := followsSome(s, after, f, events); err != nil {
				return events, err
			}
		}
		break
	}
	if finder, ok := s.(store.MarkFinder); ok && !after.IsZero() {
		m, _, err := finder.MarkAt(after, false)
		if err == nil && after.Exact() && m.Mark != after.Mark {
			err = fmt.Errorf("it is %d", m.Mark)
		}
		if err != nil {
			return events, fmt.Errorf("the mark at %+v: %w", after, err)
		}
	}
	return events, nil
}

// followsSome checks that who follows some objects gets of them what who follows all has
// got, and the marks.
func followsSome(s store.Store, after store.Place, f store.LogFilter, events []store.Event) error {
	var want, got []string
	for _, e := range events {
		if e.Mark != nil || f.Matches(e.Key) {
			want = append(want, describeEvent(s, e))
		}
	}
	some, err := collected(store.FollowSome(ended(), s, after, f))
	for _, e := range some {
		got = append(got, describeEvent(s, e))
	}
	// The log may have grown since.
	if err == nil && (len(got) < len(want) || !slices.Equal(got[:len(want)], want)) {
		err = fmt.Errorf("%v, want %v", got, want)
	}
	if err != nil {
		return fmt.Errorf("changes of %+v: %w", f, err)
	}
	return nil
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// collected returns the events of a log that is followed with a context that has ended.
func collected(events iter.Seq2[store.Event, error]) (all []store.Event, err error) {
	for e, err := range events {
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// describe returns an event as "key old -> new rv", with resource versions for states.
func describeEvent(s store.Store, e store.Event) string {
	state := func(v *store.Version) string {
		switch {
		case v == nil:
			return "-"
		case !v.IsKnown():
			return "?"
		}
		obj, err := s.Decode(v.Entry)
		if err != nil {
			return err.Error()
		}
		if rv := obj.(*corev1.ConfigMap).ResourceVersion; rv != v.Header.RV {
			return rv + " with the header of " + v.Header.RV
		}
		return v.Header.RV
	}
	if e.Mark != nil {
		return strings.TrimSpace("mark " + e.Mark.RV)
	}
	line := fmt.Sprintf("%s %s > %s", e.Key, state(e.Old), state(e.New))
	if e.New == nil {
		line += " @" + e.RV
	}
	if e.Short != nil {
		line += " short " + state(e.Short)
	}
	if e.Inside {
		line += " inside"
	}
	if !e.Since.IsZero() {
		line += " since"
	}
	return line
}

func (h *harness) wantEvents(after store.Place, want ...string) {
	h.Helper()
	events, err := followed(h.Store, after)
	must(h, err)
	var got []string
	for _, e := range events {
		got = append(got, describeEvent(h.Store, e))
	}
	same(h, "events", got, want)
}

func gone(key, rv string) store.Change { return store.Change{Key: key, RV: rv} }

func (h *harness) wantAt(at store.Place, want ...string) {
	h.Helper()
	got, err := objectsAt(h.Store, at)
	must(h, err)
	same(h, fmt.Sprintf("objects at %s", at), got, want)
}

// objectsAt returns the objects at a place, as "key@rv words".
func objectsAt(s store.Store, at store.Place) (got []string, err error) {
	objects, err := s.Objects(store.Query{At: at})
	for _, obj := range objects {
		got = append(got, describeConfigMap(obj.(*corev1.ConfigMap)))
	}
	slices.Sort(got)
	return got, err
}

func describeConfigMap(cm *corev1.ConfigMap) string {
	key := cm.Name
	if cm.Namespace != "" {
		key = cm.Namespace + "/" + key
	}
	return key + "@" + cm.ResourceVersion
}
