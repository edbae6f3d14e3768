package source

import (
	"errors"
	"fmt"
	"slices"

	"github.com/informctl/informctl/store"
)

// absentError says why a scope has no state at a moment. Its text names the scope.
type absentError struct{ error }

// Unread are the errors of scopes whose objects cannot be read, while others can.
type Unread struct{ Errs []UnreadScope }

// UnreadScope is the error of one scope.
type UnreadScope struct {
	ID  string // of the scope
	Err error
}

// Add adds the error of a scope. It returns other errors than those with which what can
// be read is printed: without the key, or without a state at the moment.
func (u *Unread) Add(info store.Info, err error) error {
	var absent *absentError
	if !errors.Is(err, store.ErrNoKey) && !errors.As(err, &absent) {
		return err
	}
	u.Put(info.ID, err)
	return nil
}

// Put adds an error, once for each scope: a resource may be named twice.
func (u *Unread) Put(id string, err error) {
	if !slices.ContainsFunc(u.Errs, func(e UnreadScope) bool { return e.ID == id }) {
		u.Errs = append(u.Errs, UnreadScope{id, err})
	}
}

// Join adds the errors of others.
func (u *Unread) Join(others Unread) {
	for _, e := range others.Errs {
		u.Put(e.ID, e.Err)
	}
}

// maxNamed is how many resources without a state at a moment are named one by one.
const maxNamed = 3

// Lines returns the errors for a person, one for all of many resources without a state.
func (u *Unread) Lines() (lines []error) {
	var all []error
	for _, e := range u.Errs {
		var absent *absentError
		if errors.As(e.Err, &absent) {
			all = append(all, e.Err)
			continue
		}
		lines = append(lines, e.Err)
	}
	if len(all) > maxNamed {
		all = []error{fmt.Errorf("%d resources are left out, which have no state at that moment, such as %w", len(all), all[0])}
	}
	return append(lines, all...)
}
