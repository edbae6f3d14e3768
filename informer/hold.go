package informer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/cluster"
)

// hold is what keeps the stored resource version back (promise 2): while it is not empty,
// batches are stored without one.
type hold struct {
	rejected map[string]error // by key: why the newest state cannot be stored
	missing  error            // why changes are missing, which a new list restores
	foreign  string           // why the server may be another cluster; "" if it is not
}

func (h *hold) isEmpty() bool { return len(h.rejected) == 0 && h.missing == nil && h.foreign == "" }

// why returns the reason for a checkpoint without a resource version after a list, which
// restores what was missing: "" if the list's resource version may be stored.
func (h *hold) why() string {
	if n := len(h.rejected); n > 0 && h.foreign == "" {
		return fmt.Sprintf("objects could not be stored: %d, %q first", n, slices.Min(slices.Collect(maps.Keys(h.rejected))))
	}
	if h.foreign == cluster.Foreign {
		return cluster.ForeignContent
	}
	return h.foreign
}

// rejectLocked freezes the stored RV until the object with that key can be stored or is
// deleted. Without a key, a new list is needed.
func (inf *Informer) rejectLocked(ctx context.Context, key string, cause error) {
	if key == "" {
		inf.hold.missing = cause
	} else {
		_, known := inf.hold.rejected[key]
		inf.hold.rejected[key] = cause
		if known {
			return // it is logged once, and may change all the time
		}
	}
	klog.FromContext(ctx).Error(cause, "Object cannot be stored, its last good state stays", "key", key)
}

// repair is when lists were requested that restore what is missing.
type repair struct {
	last time.Time   // when the last one was requested
	next *time.Timer // requests the next one; nil if none is due
}

// findings are what Status and audits report.
type findings struct {
	unindexed map[string]error // by key: why an index function failed at the start
	audited   AuditStatus
	// an audit has found another history, and the list for it has not begun
	other    bool
	memory   string // why Backend is not used; "" if it is used or nil
	unusable bool   // Backend could not open the scope, which is not expected
	waits    waits
}

// waits are the errors because of which an informer has waited for its scope.
type waits struct {
	last string
	time time.Time // of last
	n    int
}
