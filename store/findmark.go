package store

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// FindMark finds a Place that has only a resource version or only a time among marks in
// their order, for backends. stored is the resource version up to which the content is
// complete that the log leads to; "" if there is none. readable asks for a mark whose
// content was a state of the server.
//
// inside reports that the resource version is inside the commit after the mark. Nothing
// has changed between a mark and the resource version with which the next commit began.
// Errors: ErrTrimmed, and ErrAhead if the resource version is higher than stored.
func FindMark(marks []Mark, stored string, p Place, readable bool) (i int, inside bool, err error) {
	if p.RV == "" {
		return byTime(marks, p, readable)
	}
	if _, err := compare(p.RV, p.RV); err != nil {
		return 0, false, fmt.Errorf("%w: resource version %q cannot be compared", ErrTrimmed, p.RV)
	}
	if order, err := compare(p.RV, stored); stored != "" && err == nil && order > 0 {
		return 0, false, ErrAhead
	}
	for i = len(marks) - 1; i >= 0; i-- {
		m := marks[i]
		if !m.IsReadable() {
			continue
		}
		order, err := compare(m.RV, p.RV)
		switch {
		case err != nil:
			return 0, false, ErrTrimmed
		case order < 0:
			return after(marks[i+1:], i, stored, p.RV)
		case order == 0:
			return i, false, nil
		}
	}
	return 0, false, ErrTrimmed
}

// after decides about a resource version above that of the mark at i, below which no
// later mark is.
func after(later []Mark, i int, stored, rv string) (int, bool, error) {
	began := stored
	if len(later) > 0 {
		began = later[0].FromRV
	}
	if began == "" {
		return 0, false, ErrTrimmed // a list
	}
	order, err := compare(rv, began)
	switch {
	case err != nil:
		return 0, false, ErrTrimmed
	case order <= 0:
		return i, false, nil
	}
	for _, m := range later {
		if m.Listing || m.FromRV == "" {
			return 0, false, ErrTrimmed
		}
		if order, err := compare(m.RV, rv); err != nil {
			return 0, false, ErrTrimmed
		} else if order >= 0 {
			break
		}
	}
	return i, true, nil
}

// Insides sets Event.Inside for a follower from a Place, for backends. The zero value is
// for a Place that names a mark.
type Insides struct {
	rv     string // of the Place, if it was looked up
	inside bool   // no mark that is complete up to rv has come
	head   uint64 // the last mark when the follower came: it has seen no list after it
}

// InsidesOf returns the Insides for a Place, with what FindMark has returned.
func InsidesOf(p Place, inside bool, head uint64) Insides {
	if p.Exact() || p.RV == "" {
		return Insides{}
	}
	return Insides{p.RV, inside, head}
}

// Set sets Inside of the next events.
func (i *Insides) Set(events []Event) {
	for len(events) > 0 && i.rv != "" {
		n := slices.IndexFunc(events, func(e Event) bool { return e.Mark != nil })
		// Where the mark is not among the events, the commit is one of many changes,
		// such as a list.
		var m *Mark
		isInside := true
		if n < 0 {
			n = len(events) - 1
		} else if m = events[n].Mark; !i.inside {
			isInside = m.Mark <= i.head && (m.Listing || m.FromRV == "")
		}
		for k := range events[:n+1] {
			events[k].Inside = isInside && events[k].Mark == nil
		}
		events = events[n+1:]
		if m == nil {
			continue
		}
		if order, err := compare(m.RV, i.rv); !m.Frozen && !m.Listing && (err != nil || order >= 0) {
			i.inside = false
		}
		if !i.inside && m.Mark >= i.head {
			i.rv = ""
		}
	}
}

// Higher returns the higher one of two resource versions, the second one if they do not
// compare, and the other one if one is empty.
func Higher(a, b string) string {
	if order, err := compare(a, b); a != "" && (b == "" || err == nil && order > 0) {
		return a
	}
	return b
}

func byTime(marks []Mark, p Place, readable bool) (int, bool, error) {
	said := make([]time.Time, len(marks))
	for i, m := range marks {
		said[i] = m.Time
	}
	times := timesOf(said, time.Now())
	for i := len(marks) - 1; i >= 0; i-- {
		m := marks[i]
		if times[i].After(p.Time) {
			continue
		}
		if readable && (m.Frozen || m.Listing) {
			break // an earlier one is not what there was
		}
		return i, false, nil
	}
	return 0, false, ErrTrimmed
}

// timesOf returns the times of commits from what the clock said at each, in their order.
// A clock may have been ahead or behind for some of them. Believed is the longest series
// that does not go back, without what is after now. Each of the others has the time of
// the believed one before it or, if there is none, of the first one.
func timesOf(said []time.Time, now time.Time) []time.Time {
	var ends []int                   // for each length, of the series that ends earliest
	before := make([]int, len(said)) // in the series that ends with it; -1: none
	believed := make([]bool, len(said))
	for i, t := range said {
		if t.After(now) {
			continue
		}
		n := sort.Search(len(ends), func(n int) bool { return said[ends[n]].After(t) })
		if before[i] = -1; n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		}
		ends[n] = i
	}
	if len(ends) == 0 {
		return said
	}
	last := said[0]
	for i := ends[len(ends)-1]; i >= 0; i = before[i] {
		believed[i], last = true, said[i]
	}
	times := make([]time.Time, len(said))
	for i, t := range said {
		if believed[i] {
			last = t
		}
		times[i] = last
	}
	return times
}

func compare(a, b string) (int, error) { return resourceversion.CompareResourceVersion(a, b) }
