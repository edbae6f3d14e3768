package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// noteSummary says in one line what is not printed: updates that are no changes, since it
// was last said, and what was before the logs.
func (o *options) noteSummary(historians []*historian) {
	var parts []string
	if o.noise > 0 {
		parts = append(parts, objectdiff.NoteNoise(o.noise, "-o wide"))
	}
	o.noise = 0
	parts = append(parts, beginnings(historians)...)
	if len(parts) > 0 {
		o.env.Note("%s", strings.Join(parts, "; "))
	}
}

// beginnings says where the logs begin that begin later than what was asked for.
func beginnings(historians []*historian) (parts []string) {
	var without, late []store.Scope
	var last time.Time
	isKept := slices.ContainsFunc(historians, func(h *historian) bool { return h.log != nil && !source.HasNoHistory(*h.log) })
	for _, h := range historians {
		if h.log == nil {
			continue
		}
		begins := h.log.Oldest.Time
		if h.o.deleted && !h.log.Begins.IsZero() && h.log.Begins.Before(begins) {
			begins = h.log.Begins
		}
		switch {
		case source.HasNoHistory(*h.log) && isKept && resources.IsFrequent(h.view.Info.Scope.Resource):
		case source.HasNoHistory(*h.log):
			without = append(without, h.view.Info.Scope)
		case !h.o.from.IsZero() && h.o.from.Before(begins), !h.o.to.IsZero() && h.o.to.Before(begins):
			late = append(late, h.view.Info.Scope)
			if begins.After(last) {
				last = begins
			}
		}
	}
	switch {
	case len(without) == 1:
		parts = append(parts, fmt.Sprintf("%s: %s", without[0], source.NoHistory(without[0])))
	case len(without) > 1 && resources.IsFrequent(without[0].Resource):
		parts = append(parts, fmt.Sprintf("%s and %d others: %s", without[0], len(without)-1, source.NoHistory(without[0])))
	case len(without) > 1:
		parts = append(parts, resources.Name(without)+" have no log yet")
	}
	switch {
	case len(late) == 1:
		parts = append(parts, fmt.Sprintf("%s: the log begins at %s", late[0], source.FromThen(last)))
	case len(late) > 1:
		parts = append(parts, fmt.Sprintf("the logs of %s begin later, the last at %s", resources.Name(late), source.FromThen(last)))
	}
	return parts
}
