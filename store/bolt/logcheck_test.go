package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/store"
)

// logAddsUp checks that every state that can be read in a log follows from the one before
// by what the log says, and that the last one is what the store holds if everything is
// written. A log that does not say that it was cut has to lead from its first place to
// its last.
func logAddsUp(s store.Store) error {
	log, err := s.History()
	if err != nil || log.Last.IsZero() {
		return err
	}
	if _, err := eventsUntil(s, store.Place{}, log.Last); err != nil {
		return fmt.Errorf("all of the log: %w", err)
	}
	if log.Oldest.IsZero() {
		return nil
	}
	events, err := eventsUntil(s, log.Oldest, log.Last)
	if err != nil {
		return fmt.Errorf("from %s: %w", log.Oldest, err)
	}
	now, err := stateAt(s, log.Oldest)
	if errors.Is(err, store.ErrTrimmed) {
		now, err = nil, nil // inside a list
	}
	if err != nil {
		return fmt.Errorf("at %s: %w", log.Oldest, err)
	}
	for i, e := range events {
		if e.Mark == nil {
			if now == nil {
				continue
			}
			old := ""
			if e.Old != nil {
				old = e.Old.Header.RV
			}
			if now[e.Key] != old {
				return fmt.Errorf("event %d of %d: %q was %q, and not %q", i, len(events), e.Key, now[e.Key], old)
			}
			if delete(now, e.Key); e.New != nil {
				now[e.Key] = e.New.Header.RV
			}
			continue
		}
		if e.Mark.Frozen || e.Mark.Listing || now != nil && i%7 != 0 && i < len(events)-1 {
			continue
		}
		there, err := stateAt(s, e.Mark.Place)
		switch {
		case err != nil:
			return fmt.Errorf("at mark %d of %d, %q: %w", i, len(events), e.Mark.RV, err)
		case now == nil:
			now = there
		case !maps.Equal(now, there):
			return fmt.Errorf("at mark %d of %d, %q: is %v, want %v", i, len(events), e.Mark.RV, there, now)
		}
	}
	return nil
}

// stateAt returns the resource versions of the objects at a place, by key.
func stateAt(s store.Store, at store.Place) (map[string]string, error) {
	objects, err := s.Objects(store.Query{At: at})
	if err != nil {
		return nil, err
	}
	state := map[string]string{}
	for _, obj := range objects {
		cm := obj.(*corev1.ConfigMap)
		state[cm.Namespace+"/"+cm.Name] = cm.ResourceVersion
	}
	return state, nil
}

// eventsUntil returns what follows a place up to another one.
func eventsUntil(s store.Store, after, last store.Place) (events []store.Event, err error) {
	if after.String() == last.String() {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.TODO())
	defer cancel()
	for e, err := range s.Follow(ctx, after) {
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
		if e.Mark != nil && e.Mark.String() == last.String() {
			cancel()
		}
	}
	return events, nil
}

// writeContent replaces the content of a file.
func writeContent(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
