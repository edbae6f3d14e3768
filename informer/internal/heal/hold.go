package heal

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// hold is what keeps the stored resource version back (promise 2): while it is not empty,
// batches are stored without one.
type hold struct {
	rejected map[string]error // by key: why the newest state cannot be stored
	missing  error            // why changes are missing, which a new list restores
	foreign  string           // why the server may be another cluster; "" if it is not
	// written has the keys that the program has written through the indexer, and the
	// server has not sent since: no watch may bring the server's states again.
	written sets.Set[string]
}

func (h *hold) isEmpty() bool {
	return len(h.rejected) == 0 && h.missing == nil && h.foreign == "" && len(h.written) == 0
}

// isOrdered reports whether resource versions say how new the state is: changes are not
// missing, and the server is not another cluster.
func (h *hold) isOrdered() bool { return h.missing == nil && h.foreign == "" }

// why returns the reason for a checkpoint without a resource version after a list, which
// restores what was missing: "" if the list's resource version may be stored.
func (h *hold) why() string {
	if n := len(h.rejected); n > 0 && h.foreign == "" {
		return fmt.Sprintf("objects could not be stored: %d, %q first", n, slices.Min(slices.Collect(maps.Keys(h.rejected))))
	}
	if h.foreign == "" && len(h.written) > 0 {
		return writtenByProgram
	}
	return h.foreign
}

// writtenByProgram is the reason of a checkpoint without a resource version, because of
// hold.written or State.ahead.
const writtenByProgram = "the program has written objects that the server has not sent"

// WrittenUnlisted is the same, for a store that has never held a whole list.
const WrittenUnlisted = "the program has written objects before the first list"

// reject notes why an object with a key cannot be stored or, without a key, why changes
// are missing.
func (h *hold) reject(ctx context.Context, key string, cause error) {
	if key == "" {
		h.missing = cause
	} else {
		_, known := h.rejected[key]
		h.rejected[key] = cause
		if known {
			return // it is logged once, and may change all the time
		}
	}
	klog.FromContext(ctx).Error(cause, "Object cannot be stored, its last good state stays", "key", key)
}
