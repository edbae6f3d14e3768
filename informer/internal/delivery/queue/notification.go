package queue

import "github.com/informctl/informctl/store"

// Kind is the type of a notification.
type Kind uint8

// The types of notifications.
const (
	Added Kind = iota
	Updated
	Deleted
	Vanished // deleted, with the last known state only: from a list or the queue
	Resynced // an update with the same pointer as old and new
	Synced   // the handler has received everything up to HasSynced
)

// IsDeletion reports whether a notification is a call of OnDelete.
func (k Kind) IsDeletion() bool { return k == Deleted || k == Vanished }

// Notification is one call of a handler. Its objects are decoded shortly before the call.
type Notification struct {
	Kind    Kind
	Initial bool
	Newer   bool // an add that is left out unless it is above the place of the handler
	Key     string
	// Old is the state before, without an object if it is not known; of the kind Deleted
	// it is the last state that the watch has sent. New is the new state; of the kind
	// Deleted it is the state before, for clients only.
	Old, New store.Entry
}

// Bytes estimates the memory of a notification without its decoded objects.
func (n Notification) Bytes() int { return 128 + 3*len(n.Key) + len(n.Old.Raw) + len(n.New.Raw) }

// Key describes a notification in a file, for the case that the file cannot be read.
type Key struct {
	Key     string // "" for the kind Synced
	Known   bool   // the handler knew the object before
	Initial bool
	Newer   bool
}

func keyOf(n Notification) Key { return Key{n.Key, n.Kind != Added, n.Initial, n.Newer} }

// IsReadable reports whether an entry has an object. The entry of a damaged object has
// only a key.
func IsReadable(e store.Entry) bool { return e.Object != nil || e.Raw != nil }
