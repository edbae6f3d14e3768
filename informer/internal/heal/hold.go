package heal

import (
	"fmt"
	"maps"
	"slices"
)

// hold is what keeps the stored resource version back (promise 2): while it is not empty,
// batches are stored without one.
type hold struct {
	rejected map[string]error // by key: why the newest state cannot be stored
	missing  error            // why changes are missing, which a new list restores
	foreign  string           // why the server may be another cluster; "" if it is not
}

func (h *hold) isEmpty() bool { return len(h.rejected) == 0 && h.missing == nil && h.foreign == "" }

// isOrdered reports whether resource versions say how new the state is: changes are not
// missing, and the server is not another cluster.
func (h *hold) isOrdered() bool { return h.missing == nil && h.foreign == "" }

// why returns the reason for a checkpoint without a resource version after a list, which
// restores what was missing: "" if the list's resource version may be stored.
func (h *hold) why() string {
	if n := len(h.rejected); n > 0 && h.foreign == "" {
		return fmt.Sprintf("objects could not be stored: %d, %q first", n, slices.Min(slices.Collect(maps.Keys(h.rejected))))
	}
	return h.foreign
}
