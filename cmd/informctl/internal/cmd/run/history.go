package run

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/store"
)

// history is what --history says.
type history struct {
	each store.History // of each resource
	of   []ofOne
	all  int64 // bytes of all resources; 0: the default
}

// ofOne is the history of one resource, as it was named.
type ofOne struct {
	name string
	store.History
}

// parseHistory parses AGE, AGE,BYTES or off, and RESOURCE=AGE or RESOURCE=off, separated
// by commas. With BYTES, which all resources share, a resource has no bound of its own.
func parseHistory(text string) (h history, err error) {
	var general []string
	for item := range strings.SplitSeq(text, ",") {
		name, age, isOfOne := strings.Cut(item, "=")
		if !isOfOne {
			general = append(general, item)
			continue
		}
		r, err := cmdutil.ParseRetention(age)
		if err != nil || age == "" || name == "" {
			return history{}, fmt.Errorf("%q: write RESOURCE=AGE, as pods=24h, or RESOURCE=off", item)
		}
		one := ofOne{name, store.History{Age: r.Age}}
		if r.Off {
			one.Bytes = -1
		}
		h.of = append(h.of, one)
	}
	if len(general) == 0 {
		return h, nil
	}
	if len(h.of) > 0 && slices.Contains(general, "") {
		return history{}, fmt.Errorf("%q: an item is empty; write %s", text, cmdutil.Retentions)
	}
	r, err := cmdutil.ParseRetention(strings.Join(general, ","))
	switch {
	case err != nil:
		return history{}, err
	case r.Off:
		h.each.Bytes = -1
	case r.Bytes == 0:
		h.each.Age = r.Age
	default:
		h.each, h.all = store.History{Age: r.Age, Bytes: math.MaxInt64}, r.Bytes
		for i := range h.of {
			if h.of[i].Bytes == 0 {
				h.of[i].Bytes = math.MaxInt64
			}
		}
	}
	return h, nil
}

// ofScope returns the history of a scope. What changes all the time and says little has
// none unless it is named, or served: watches and lists are made of it.
func (h history) ofScope(s store.Scope, isServed bool) store.History {
	switch i := h.named(s); {
	case i >= 0:
		return h.of[i].History
	case resources.IsFrequent(s.Resource) && !isServed:
		return store.History{Bytes: -1}
	}
	return h.each
}

// named returns the index of the name that means a scope; -1 if there is none. A name
// with a group is before one without.
func (h history) named(s store.Scope) int {
	with := slices.IndexFunc(h.of, func(one ofOne) bool { return strings.Contains(one.name, ".") && resources.Is(s, one.name) })
	if with >= 0 {
		return with
	}
	return slices.IndexFunc(h.of, func(one ofOne) bool { return resources.Is(s, one.name) })
}

// off returns what says that something has no history, "" if nothing does.
func (h history) off() string {
	if h.each.Bytes < 0 {
		return "off"
	}
	for _, one := range h.of {
		if one.Bytes < 0 {
			return one.name + "=off"
		}
	}
	return ""
}

// check returns an error for a name that another one means, too, and for those that mean
// no scope. unknown is set for the latter.
func (h history) check(scopes []store.Scope) (unknown bool, err error) {
	var names []string
	for i, one := range h.of {
		isThere, isUsed := false, false
		for _, s := range scopes {
			isThere = isThere || resources.Is(s, one.name)
			isUsed = isUsed || h.named(s) == i
		}
		switch {
		case !isThere:
			names = append(names, one.name)
		case !isUsed:
			return false, fmt.Errorf("--history %s: another name means the same resource, too", one.name)
		}
	}
	if len(names) == 0 {
		return false, nil
	}
	return true, fmt.Errorf("--history %s: no such resource is followed; name it as in pods=24h or deployments.apps=24h", strings.Join(names, " and "))
}
