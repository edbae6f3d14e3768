package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// serveLogged sends the changes after a resource version from the log of the informer's
// scope: those of an earlier process, too. It goes on with what is written, so a change
// comes a commit later than to those who follow from now on.
func (e *endpoint) serveLogged(a *answer, q question, inf *informer.Informer, p sender, rv string) error {
	if err := reaches(q.ctx, inf, rv); err != nil {
		return err
	}
	// What is in the log already counts as a request that reads objects.
	current, err := e.catchingUp(q)
	if err != nil {
		return err
	}
	defer current()
	state, err := inf.History()
	if err != nil {
		return err
	}
	if isUpTo(state.Last.RV, rv) {
		current() // reaches has found that the log leads on from rv
	}
	a.waits, a.ends = informer.FollowPatience, time.Time{}
	a.begin("application/jsonl")
	if err := a.flush(); err != nil {
		return err
	}
	s := inf.Reader()
	for e, err := range s.Follow(q.ctx, store.Place{RV: rv}) {
		switch {
		case err != nil:
			return expired(inf, rv, err)
		case e.Mark != nil:
			if err := p.sendBookmark(a, e.Mark); err != nil {
				return err
			}
			if e.Mark.Mark >= state.Last.Mark {
				current()
			}
			continue
		case e.Inside && isUpTo(versionOf(e), rv):
			continue // the client has received it
		case !e.Inside && e.Old == nil && e.New == nil:
			continue // it came and went in one commit
		}
		event, err := eventOf(s, e, p.needsOld)
		if err != nil {
			return err
		}
		if err := p.send(a, event); err != nil {
			return err
		}
	}
	return nil
}

// sendBookmark sends the resource version of a mark to a client that wants it, and what
// has been written before.
func (p sender) sendBookmark(a *answer, m *store.Mark) error {
	if p.bookmarks && m.RV != "" && !m.Frozen && !m.Listing {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: m.RV}}
		b, err := p.json(object)
		if err == nil {
			err = a.line(wire.ChangeLine{Type: string(watch.Bookmark), Object: b})
		}
		if err != nil {
			return err
		}
	}
	return a.flush()
}

// commitPatience is how long a client waits for the log to reach a resource version. A
// restarted process is behind the one before it, and the log is a commit behind its
// informer.
const commitPatience = 5 * time.Second

// reaches returns an error unless the log leads from a resource version to what there is.
// It waits for an informer that is not there yet.
func reaches(ctx context.Context, inf *informer.Informer, rv string) error {
	for end := time.Now().Add(commitPatience); ; {
		err := informer.ErrNotOpened
		if inf.Opened() {
			err = leads(ctx, inf.Reader(), store.Place{RV: rv})
		}
		isEarly := errors.Is(err, store.ErrAhead) || errors.Is(err, informer.ErrNotOpened)
		if state, stateErr := inf.History(); stateErr == nil && state.Last.IsZero() {
			isEarly = isEarly || errors.Is(err, store.ErrTrimmed) // not written yet
		}
		if !isEarly || time.Now().After(end) {
			return expired(inf, rv, err)
		}
		select {
		case <-time.After(commitPatience / 20):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leads is reaches without waiting.
func leads(ctx context.Context, s store.Reader, from store.Place) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range s.Follow(ctx, from) {
		switch {
		case errors.Is(err, store.ErrAhead):
			return store.ErrAhead
		case !errors.Is(err, context.Canceled):
			return err
		}
		break
	}
	return nil
}

// placeError is an error of the store in words for a client.
type placeError struct {
	error // of package store, for errors.Is
	text  string
}

func (e *placeError) Error() string { return e.text }
func (e *placeError) Unwrap() error { return e.error }

// expired says what a client can begin with if the log does not lead from its resource
// version to what there is.
func expired(inf *informer.Informer, rv string, err error) error {
	state, historyErr := inf.History()
	why := ""
	switch {
	case historyErr != nil:
		return err
	case errors.Is(err, store.ErrAhead):
		return tooOld(rv, state.Last.RV)
	case !errors.Is(err, store.ErrTrimmed) && !errors.Is(err, store.ErrLineage):
		return err
	case state.Oldest.RV == "" && state.Readable.IsZero():
		why = "changes are known from the next list on"
	case state.Oldest.RV != "" && isUpTo(rv, state.Oldest.RV) && rv != state.Oldest.RV:
		why = "changes are known from resource version " + state.Oldest.RV + " on"
	case state.Above != "" && isUpTo(rv, state.Above):
		why = "it may be of before the server was restored or the file was wiped"
	default:
		why = "a list has led past it"
	}
	return &placeError{err, fmt.Sprintf("resource version %s has expired: %s", rv, why)}
}

// versionOf returns the resource version of a change, or of the one that took its place.
func versionOf(e store.Event) string {
	if e.RV == "" && e.By != nil {
		return e.By.Header.RV
	}
	return e.RV
}

// isUpTo reports whether a resource version is known and not later than another one.
func isUpTo(rv, other string) bool {
	order, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && order <= 0
}

// eventOf returns a change of the log as a watch has it: a deleted object has the
// resource version of its deletion. old says that the state before is needed.
func eventOf(s store.Reader, e store.Event, old bool) (out informer.Event, err error) {
	state := e.New
	out.Inside = e.Inside
	switch {
	case e.New == nil:
		out.Type, state = informer.Deleted, cmp.Or(e.Old, e.Short)
	case e.Old == nil:
		out.Type = informer.Added
	default:
		out.Type = informer.Modified
	}
	// What was caught up on may come from a list, which is in no order.
	// A change without a resource version of its own is no place either.
	out.Listed = e.New == nil && e.RV == "" || !e.Since.IsZero()
	switch {
	case state != nil && state.IsKnown():
		if out.Object, err = s.Decode(state.Entry); err != nil {
			return out, err
		}
	case e.New != nil:
		return out, fmt.Errorf("%w: the state of %q is not known", store.ErrTrimmed, e.Key)
	default:
		out.Object, out.Inside = named(e.Key), out.Inside || e.Old != nil
	}
	if old && out.Type == informer.Modified && !e.Inside && e.Old.IsKnown() {
		if out.Old, err = s.Decode(e.Old.Entry); err != nil {
			return out, err
		}
	}
	if e.New == nil && e.RV != "" {
		out.Object = out.Object.DeepCopyObject()
		if m, err := meta.Accessor(out.Object); err == nil {
			m.SetResourceVersion(e.RV)
		}
	}
	return out, nil
}

// named returns an object of which nothing is known but its key.
func named(key string) runtime.Object {
	m := &metav1.PartialObjectMetadata{}
	namespace, name, ok := strings.Cut(key, "/")
	if m.Namespace, m.Name = namespace, name; !ok {
		m.Namespace, m.Name = "", namespace
	}
	return m
}
