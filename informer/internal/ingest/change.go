package ingest

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

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

// markShort gives the batch the last states of objects that the changes both create and
// delete. The batch leaves out their creation, and the log has to know of them.
func markShort(batch *store.Batch, changes []change, held map[string]store.Held) {
	created := map[string]store.Entry{}
	for _, c := range changes {
		if _, isHeld := held[c.Key]; !isHeld && c.fate == toTell && c.Is.Key != "" {
			created[c.Key] = c.Is
		}
	}
	for i := range batch.Changes {
		if c := &batch.Changes[i]; c.IsDeletion() {
			c.Short = created[c.Key]
		}
	}
}

// forgetOtherLast removes the last state from a deletion if the server has deleted
// another object than the stored one: an object with the same name that could not be
// stored. Handlers then receive the last known state instead.
func (p *Pipeline) forgetOtherLast(changes []change, held map[string]store.Held, rejected map[string]error) {
	since := map[string]string{} // UIDs of what earlier changes have stored
	for i := range changes {
		c := &changes[i]
		switch {
		case c.fate != toTell:
		case c.Is.Key != "":
			since[c.Key] = c.uid
		case c.Last != nil:
			uid, changed := since[c.Key]
			if !changed {
				uid = held[c.Key].UID
			}
			if isOther(c.Last, uid) && (rejected[c.Key] != nil || p.state.MayBeRejected(c.Key)) {
				c.Last = nil
			}
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
