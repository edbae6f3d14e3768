package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// serveLogged sends the changes after a resource version that the informer does not
// remember, from the log of its scope: that of an earlier process, too. It goes on with
// what is written, so a change comes a commit later than from memory. expired is the
// error if the log does not reach back to there.
func (p printer) serveLogged(a *answer, q question, s store.Reader, rv string, expired error) error {
	from := store.Place{RV: rv}
	if err := reaches(q.ctx, s, from); err != nil {
		if errors.Is(err, store.ErrTrimmed) || errors.Is(err, store.ErrLineage) || errors.Is(err, store.ErrAhead) {
			return expired
		}
		return err
	}
	a.waits, a.ends = informer.FollowPatience, time.Time{}
	a.begin("application/jsonl")
	if err := a.flush(); err != nil {
		return err
	}
	for e, err := range s.Follow(q.ctx, from) {
		switch {
		case errors.Is(err, store.ErrTrimmed), errors.Is(err, store.ErrLineage):
			return fmt.Errorf("%w: %w", informer.ErrExpired, err)
		case err != nil:
			return err
		case e.Mark != nil:
			if err := a.flush(); err != nil {
				return err
			}
			continue
		}
		event, err := eventOf(s, e)
		if err != nil {
			return err
		}
		if err := p.sendEvent(a, event); err != nil {
			return err
		}
	}
	return nil
}

// reaches returns an error if the log does not lead from a place to what there is.
func reaches(ctx context.Context, s store.Reader, from store.Place) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range s.Follow(ctx, from) {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		break
	}
	return nil
}

// eventOf returns a change of the log as a watch has it: a deleted object has the
// resource version of its deletion.
func eventOf(s store.Reader, e store.Event) (out informer.Event, err error) {
	state := e.New
	switch {
	case e.New == nil:
		out.Type, state = informer.Deleted, e.Old
	case e.Old == nil:
		out.Type = informer.Added
	default:
		out.Type = informer.Modified
	}
	// What was caught up on may come from a list, which is in no order.
	out.Listed = !e.Since.IsZero()
	switch {
	case state != nil && state.IsKnown():
		if out.Object, err = s.Decode(state.Entry); err != nil {
			return out, err
		}
	case e.New != nil:
		return out, fmt.Errorf("%w: the state of %q is not known", informer.ErrExpired, e.Key)
	default:
		out.Object = named(e.Key)
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
