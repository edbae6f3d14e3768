package store

import (
	"errors"
	"fmt"
)

var (
	// ErrInUse indicates that another informer holds the scope. Backend.Open returns it.
	// Wait until that informer has ended, or use the memory backend.
	ErrInUse = errors.New("store: scope is in use")

	// ErrLocked indicates that another process holds the database. The functions that
	// open a database return it, with the path.
	ErrLocked = errors.New("store: database is locked by another process")

	// ErrClosed indicates that the Store or its Backend was used after Close.
	ErrClosed = errors.New("store: closed")

	// ErrReadOnly indicates a write to a database that was opened read-only.
	ErrReadOnly = errors.New("store: opened read-only")

	// ErrNotFound indicates that a read-only database does not contain the scope.
	// Backend.Open returns it.
	ErrNotFound = errors.New("store: no such scope")

	// ErrNotOurs indicates that a file is not a database of this project. The file was
	// not changed. The functions that open a database return it, with the path.
	ErrNotOurs = errors.New("store: not an informctl cache")

	// ErrIncomplete indicates that the first list of a scope has not been completed yet.
	ErrIncomplete = errors.New("store: first list is not complete")

	// ErrNoKey indicates that the encryption key is missing: the scope is stored
	// encrypted, or may be stored only encrypted. Backend.Open returns it. For a
	// read-only database, methods that read content return it; keys and counts can be
	// read without the encryption key. Provide the key, or use the memory backend.
	ErrNoKey = errors.New("store: no key")

	// ErrCorrupt matches every *CorruptionError in errors.Is.
	ErrCorrupt = errors.New("store: damaged")

	// ErrWiped indicates that the stored content of the scope was dropped on request
	// while the scope was open. Reads return it until the scope has been relisted.
	ErrWiped = errors.New("store: wiped, to be listed again")

	// ErrNoIndex indicates that a scope has no index with that name.
	ErrNoIndex = errors.New("store: no such index")
)

// CorruptionError reports damage. Its text never contains the damaged bytes.
type CorruptionError struct {
	Path  string // the damaged file
	Where string // what was read: a page, the manifest, an object's key
	Err   error  // the result of the failed check
}

// Error names the file, the place and the failed check.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("%s is damaged: %s: %v", e.Path, e.Where, e.Err)
}

// Unwrap returns the result of the failed check.
func (e *CorruptionError) Unwrap() error { return e.Err }

// Is reports whether target is ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }

// ObjectError reports an object that cannot be stored because its key function, its
// encoding or an index function failed. The stored state under Key is unchanged.
type ObjectError struct {
	Key string // "" if the key function failed
	Err error
}

// Error names the object by its key and never shows its content.
func (e *ObjectError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("object without a key: %v", e.Err)
	}
	return fmt.Sprintf("object %q: %v", e.Key, e.Err)
}

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Err }
