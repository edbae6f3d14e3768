package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/informctl/informctl/store"
)

// absentError says why a scope has no state at a moment. Its text names the scope.
type absentError struct{ error }

// unread are the errors of scopes whose objects cannot be read, while others can.
type unread struct{ errs []unreadScope }

type unreadScope struct {
	id  string // of the scope
	err error
}

// add adds the error of a scope. It returns other errors than those with which what can
// be read is printed: without the key, or without a state at the moment.
func (u *unread) add(info store.Info, err error) error {
	var absent *absentError
	if !errors.Is(err, store.ErrNoKey) && !errors.As(err, &absent) {
		return err
	}
	u.put(info.ID, err)
	return nil
}

// put adds an error, once for each scope: a resource may be named twice.
func (u *unread) put(id string, err error) {
	if !slices.ContainsFunc(u.errs, func(e unreadScope) bool { return e.id == id }) {
		u.errs = append(u.errs, unreadScope{id, err})
	}
}

// join adds the errors of others.
func (u *unread) join(others unread) {
	for _, e := range others.errs {
		u.put(e.id, e.err)
	}
}

// maxNamed is how many resources without a state at a moment are named one by one.
const maxNamed = 3

// lines returns the errors for a person, one for all of many resources without a state.
func (u *unread) lines() (lines []error) {
	var all []error
	for _, e := range u.errs {
		var absent *absentError
		if errors.As(e.err, &absent) {
			all = append(all, e.err)
			continue
		}
		lines = append(lines, e.err)
	}
	if len(all) > maxNamed {
		all = []error{fmt.Errorf("%d resources are left out, which have no state at that moment, such as %w", len(all), all[0])}
	}
	return append(lines, all...)
}
