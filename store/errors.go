package store

import (
	"errors"
	"fmt"
)

var (
	// ErrInUse indicates that another informer holds the scope. Returned by
	// Backend.Open; wait for that informer to end, or run on memory.
	ErrInUse = errors.New("store: scope is in use")

	// ErrLocked indicates that another process holds the database. Returned,
	// with the path, by the functions that open one.
	ErrLocked = errors.New("store: database is locked by another process")

	// ErrClosed indicates a use after Close of the Store or its Backend.
	ErrClosed = errors.New("store: closed")

	// ErrReadOnly indicates a write to a database that was opened read-only.
	ErrReadOnly = errors.New("store: opened read-only")

	// ErrNotFound indicates that a read-only database has no such scope.
	// Returned by Backend.Open.
	ErrNotFound = errors.New("store: no such scope")

	// ErrNotOurs indicates a file that is no database of this project. It was
	// not changed. Returned, with the path, by the functions that open one.
	ErrNotOurs = errors.New("store: not an informctl cache")

	// ErrIncomplete indicates that a scope's first list has not been whole yet.
	ErrIncomplete = errors.New("store: first list is not complete")

	// ErrNoKey indicates that a scope may be stored encrypted only, or is, and that
	// the key is not at hand. Returned by Backend.Open, and for a read-only database
	// by what reads content; keys and counts need none. Give the key, or run on memory.
	ErrNoKey = errors.New("store: no key")

	// ErrCorrupt is what errors.Is finds in every *CorruptionError.
	ErrCorrupt = errors.New("store: damaged")

	// ErrWiped indicates that what was stored of the scope was dropped on demand while
	// it was open. Reads return it until the scope has been listed again.
	ErrWiped = errors.New("store: wiped, to be listed again")

	// ErrNoIndex indicates that a scope has no index of that name.
	ErrNoIndex = errors.New("store: no such index")
)

// CorruptionError reports damage. The damaged bytes are never part of its text.
type CorruptionError struct {
	Path  string // the file
	Where string // what was read: a page, the manifest, an object's key
	Err   error  // what was wrong with it
}

// Error names the file, the place and the finding.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("%s is damaged: %s: %v", e.Path, e.Where, e.Err)
}

// Unwrap returns the finding.
func (e *CorruptionError) Unwrap() error { return e.Err }

// Is reports whether target is ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }

// ObjectError reports an object that cannot be stored: its key, its encoding or
// an index function failed. What the store held under Key before is unchanged.
type ObjectError struct {
	Key string // "" where the key function failed
	Err error
}

// Error names the object by its key, never by its content.
func (e *ObjectError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("object without a key: %v", e.Err)
	}
	return fmt.Sprintf("object %q: %v", e.Key, e.Err)
}

// Unwrap returns what failed.
func (e *ObjectError) Unwrap() error { return e.Err }
