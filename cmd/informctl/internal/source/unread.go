package source

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// absentError says why a scope has no state at a moment. Its text names the scope.
type absentError struct {
	error
	begins time.Time // of the log, zero if that is not why
}

// rank orders the errors that say where a log begins before others.
func (e *absentError) rank() int {
	if e.begins.IsZero() {
		return 1
	}
	return 0
}

// Unread are the errors of scopes whose objects cannot be read, while others can.
type Unread struct{ Errs []UnreadScope }

// UnreadScope is the error of one scope.
type UnreadScope struct {
	ID  string // of the scope
	Err error
}

// Add adds the error of a scope. It returns other errors than those with which what can
// be read is printed: without the key or the Go type, or without a state at the moment.
func (u *Unread) Add(info store.Info, err error) error {
	var absent *absentError
	if !IsUnreadable(err) && !errors.As(err, &absent) {
		return err
	}
	u.Put(info.ID, err)
	return nil
}

// IsUnreadable reports whether objects are whole, but not for this program: it does not
// have their key, or their Go type.
func IsUnreadable(err error) bool {
	return errors.Is(err, store.ErrNoKey) || errors.Is(err, codec.ErrNoType)
}

// Put adds an error, once for each scope: a resource may be named twice.
func (u *Unread) Put(id string, err error) {
	if !u.Has(id) {
		u.Errs = append(u.Errs, UnreadScope{id, err})
	}
}

// Has reports whether there is an error of the scope.
func (u *Unread) Has(id string) bool {
	return slices.ContainsFunc(u.Errs, func(e UnreadScope) bool { return e.ID == id })
}

// Join adds the errors of others.
func (u *Unread) Join(others Unread) {
	for _, e := range others.Errs {
		u.Put(e.ID, e.Err)
	}
}

// Lines returns the errors for a person, one for all resources without a state.
func (u *Unread) Lines() (lines []error) {
	var all []*absentError
	for _, e := range u.Errs {
		var absent *absentError
		if errors.As(e.Err, &absent) {
			all = append(all, absent)
			continue
		}
		lines = append(lines, e.Err)
	}
	switch len(all) {
	case 0:
		return lines
	case 1:
		return append(lines, all[0])
	}
	// Of the logs that begin too late, the first says how far back there is a state.
	first := slices.MinFunc(all, func(a, b *absentError) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.begins.Compare(b.begins))
	})
	return append(lines, fmt.Errorf("%d resources are left out, which have no state at that moment, such as %w", len(all), first))
}
