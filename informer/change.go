package informer

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/fifo"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/store"
)

// change is one change of an object, as handlers receive it.
type change struct {
	delivery.Change
	fate fate
	uid  string // of Is, where the watch has sent it
}

// fate specifies how a change is handled.
type fate uint8

const (
	toTell    fate = iota // stored, or followed by a stored state; handlers receive it
	isReplay              // stored by an earlier process
	isRefused             // cannot be stored
)

// stored returns the change in the form that the store takes.
func (c change) stored() store.Change {
	out := store.Change{Key: c.Key, Object: c.Is.Object, Raw: c.Is.Raw, Cell: c.Is.Cell}
	if accessor, err := meta.Accessor(c.Last); c.Last != nil && err == nil {
		out.RV = accessor.GetResourceVersion() // of the deletion
	}
	return out
}

// markReplays marks the changes that an earlier process has stored. That process had an
// object that it could not store, which froze its RV, so the watch resumes before changes
// that are stored already. If these were applied, an object would go back in time, even
// to an earlier incarnation, and forward again. Such an object is stored at an RV above
// the one that the watch resumes at, and this process has not changed it. Changes after
// catch-up are no replays. Only processLoop calls markReplays.
func (inf *Informer) markReplays(stream []fifo.Keyed, told []change) {
	if inf.resumedAt == "" || inf.state.IsCaughtUp() {
		inf.caught = nil
		return
	}
	var keys []string
	for _, d := range stream {
		keys = append(keys, d.Key)
	}
	held := inf.headersOf(keys)
	for i, d := range stream {
		if !inf.caught.Has(d.Key) && isReplayOf(d, held[d.Key].RV, inf.resumedAt) {
			told[i].fate = isReplay
			continue
		}
		if inf.caught == nil {
			inf.caught = sets.Set[string]{}
		}
		inf.caught.Insert(d.Key)
	}
}

// acceptReplays ends the rejection of objects whose stored state, or one before it, has
// come again: the watch has brought the malformed states before that again, too.
func (inf *Informer) acceptReplays(told []change) {
	for _, c := range told {
		if c.fate == isReplay {
			inf.state.Accept(c.Key)
		}
	}
}

// isReplayOf reports whether a change has led to a state that is stored at held, or came
// before it. resumedAt is the resource version that the watch has resumed at.
func isReplayOf(d fifo.Keyed, held, resumedAt string) bool {
	obj := d.Object
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	if order, err := resourceversion.CompareResourceVersion(held, resumedAt); err != nil || order <= 0 {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(accessor.GetResourceVersion(), held)
	// A deleted object may have the resource version of its last state, which is held.
	return err == nil && (order < 0 || order == 0 && d.Type != cache.Deleted)
}

// uidsOfDeleted returns, by key, the UIDs of the stored objects that a batch deletes.
func (inf *Informer) uidsOfDeleted(changes []change) map[string]string {
	var keys []string
	for _, c := range changes {
		if c.Last != nil {
			keys = append(keys, c.Key)
		}
	}
	headers := inf.headersOf(keys)
	if headers == nil {
		return nil
	}
	stored := make(map[string]string, len(headers))
	for key, h := range headers {
		stored[key] = h.UID
	}
	return stored
}

// headersOf returns the headers of the stored objects with these keys, by key. It returns
// nil if there are no keys or the headers cannot be read.
func (inf *Informer) headersOf(keys []string) map[string]store.Header {
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	headers, err := inf.store.HeadersOf(slices.Compact(keys))
	if inf.state.Noticed(err) != nil {
		return nil
	}
	byKey := make(map[string]store.Header, len(headers))
	for _, h := range headers {
		byKey[h.Key] = h
	}
	return byKey
}

// forgetOtherLast removes the last state from a deletion if the server has deleted
// another object than the stored one: an object with the same name that could not be
// stored. Handlers then receive the last known state instead.
func forgetOtherLast(changes []change, stored map[string]string) {
	if stored == nil {
		return // nothing is deleted, or the stored UIDs cannot be read
	}
	held := maps.Clone(stored)
	for i := range changes {
		c := &changes[i]
		switch {
		case c.fate != toTell:
		case c.Is.Key != "":
			held[c.Key] = c.uid
		case c.Last != nil && isOther(c.Last, held[c.Key]):
			c.Last = nil
		}
	}
}

// isOther reports whether the two UIDs differ. It is false if one of them is empty.
func isOther(obj runtime.Object, than string) bool {
	uid := uidOf(obj)
	return uid != "" && than != "" && uid != than
}

func uidOf(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return string(accessor.GetUID())
}

// refuseLast marks the last state of a key as refused and returns the state before it.
func refuseLast(changes []change, key string) (before change, ok bool) {
	marked := false
	for i := len(changes) - 1; i >= 0; i-- {
		c := &changes[i]
		switch {
		case c.Key != key || c.fate != toTell:
		case marked:
			return *c, true
		default:
			c.fate, marked = isRefused, true
		}
	}
	return change{}, false
}
