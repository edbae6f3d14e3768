package relay

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/store"
)

// state is a state of an object in the log.
type state struct {
	*shared
	key    string
	labels map[string]string
}

func (s *served) stateOf(v *store.Version) *state {
	if v == nil {
		return nil
	}
	return &state{shared: &shared{object: &object{of: s, entry: v.Entry}}, key: v.Header.Key, labels: v.Header.Labels}
}

// change is one change of an object, for all watches.
type change struct {
	key      string
	old, new *state // nil: there was, or is, no object
	rv       string // of what a watch is sent

	once sync.Once
	gone *shared // the old state with the resource version of the change
}

// isShort reports whether an object came and went, and no state of it is known. Who knows
// the states around it is sent nothing.
func (c *change) isShort() bool { return c.old == nil && c.new == nil }

// event returns what a watch of a selection is sent; ok is false if it is nothing.
func (c *change) event(p *selection) (e watch.Event, ok bool, err error) {
	was, err := p.matches(c.old)
	if err != nil {
		return e, false, err
	}
	is, err := p.matches(c.new)
	switch {
	case err != nil || !is && !was:
		return e, false, err
	case is && was:
		return watch.Event{Type: watch.Modified, Object: c.new.shared}, true, nil
	case is:
		return watch.Event{Type: watch.Added, Object: c.new.shared}, true, nil
	}
	c.once.Do(func() { c.gone = &shared{object: &object{of: c.old.of, entry: c.old.entry, rv: c.rv}} })
	return watch.Event{Type: watch.Deleted, Object: c.gone}, true, nil
}

// group is what has changed between two places that can be read: by one commit, or by
// more of them where a list was applied or an object could not be stored. The changes are
// in the order of resource versions.
type group struct {
	place store.Place
	// from is the resource version up to which nothing had changed before; "" for a list.
	from    string
	changes []*change
	bytes   int // of the states, as they are stored
	// inside means that who asked for the group knows a state inside it.
	inside bool
}

// maxHeld bounds what is held while there is no place that can be read, in bytes.
const maxHeld = 32 << 20

// errHeld ends a log that has had no place that can be read for too long.
var errHeld = fmt.Errorf("%w: for too long no state of the server was stored whole", store.ErrTrimmed)

// groups yields what follows a place. holding is called when the first and when the last
// commit is held for which there is no place that can be read.
func (s *served) groups(ctx context.Context, from store.Place, holding func(bool)) iter.Seq2[*group, error] {
	return func(yield func(*group, error) bool) {
		b := &building{s: s, before: from.RV}
		if !from.Exact() {
			b.asked = from.RV
		}
		for e, err := range s.Reader.Follow(ctx, from) {
			switch {
			case err == nil && e.Mark == nil:
				err = b.add(e)
			case err == nil && e.Mark.Begins:
				err = store.ErrLineage
			}
			if err != nil {
				yield(nil, err)
				return
			}
			m := e.Mark
			switch {
			case m == nil:
				continue
			case !s.At.IsZero() && m.Mark > s.At.Mark:
				return
			case !m.IsReadable():
				if b.commits++; b.commits == 1 {
					holding(true)
				}
				b.note(m)
				continue
			}
			if b.commits > 0 {
				holding(false)
			}
			b.note(m)
			if !yield(b.group(m), nil) {
				return
			}
			b = &building{s: s, before: m.RV}
		}
	}
}

// building is a group that has no place yet.
type building struct {
	s       *served
	before  string // the resource version of the last place
	events  []store.Event
	bytes   int
	commits int // without a place that can be read
	isList  bool
	from    *string
	asked   string // the resource version that the log was asked for, for its first group
}

// add adds a change of the log.
func (b *building) add(e store.Event) error {
	for _, v := range []*store.Version{e.Old, e.New, e.Short} {
		if v == nil {
			continue
		}
		if !v.IsKnown() && v != e.Short {
			return fmt.Errorf("%w: a state of %q is not kept", store.ErrTrimmed, e.Key)
		}
		b.bytes += len(v.Entry.Raw)
	}
	b.events = append(b.events, e)
	if b.bytes > maxHeld && b.commits > 0 {
		return errHeld
	}
	return nil
}

// note takes over what a mark says of the commit before it.
func (b *building) note(m *store.Mark) {
	if b.from == nil {
		b.from = &m.FromRV
	}
	b.isList = b.isList || m.Listing || m.FromRV == ""
}

// group returns the group that ends with a mark.
func (b *building) group(m *store.Mark) *group {
	g := &group{place: m.Place, from: *b.from, bytes: b.bytes}
	// Who comes from a resource version that is before a list is at a mark: the log
	// refuses all others.
	g.inside = b.asked != "" && g.from != "" && compareRV(b.asked, g.from) > 0
	if b.isList {
		g.from = ""
	}
	events := b.events
	if b.commits > 0 {
		events = merged(events)
	}
	for _, e := range events {
		g.changes = append(g.changes, b.changes(e)...)
	}
	slices.SortStableFunc(g.changes, func(a, b *change) int { return compareRV(a.rv, b.rv) })
	return g
}

// merged makes the changes that several commits have made of an object one change, since
// nobody may see the states between. Another object in its place is two, as in one
// commit.
func merged(events []store.Event) []store.Event {
	type span struct{ first, last store.Event }
	spans, counts := map[string]span{}, map[string]int{}
	var keys []string
	for _, e := range events {
		s, ok := spans[e.Key]
		if !ok {
			keys = append(keys, e.Key)
			s.first = e
		}
		s.last = e
		spans[e.Key] = s
		counts[e.Key]++
	}
	var out []store.Event
	for _, key := range keys {
		s := spans[key]
		e := s.last
		if counts[key] > 1 {
			e.Old, e.By, e.Short = s.first.Old, nil, nil
		}
		out = append(out, e.Steps()...)
	}
	return out
}

// changes returns the changes that an event is for a watch. A deletion whose resource
// version is not known was found by a list: it has that of the last place before, and
// comes first, so that who goes on from there is told all of it again. One whose object
// another one has taken the place of comes just before that.
func (b *building) changes(e store.Event) []*change {
	rv := e.RV
	switch {
	case e.Short != nil && e.Short.IsKnown() && rv != "":
		short := b.s.stateOf(e.Short)
		return []*change{{key: e.Key, new: short, rv: e.Short.Header.RV}, {key: e.Key, old: short, rv: rv}}
	case e.By != nil:
		rv = justBefore(e.By.Header.RV)
	case rv == "":
		rv = b.before
	}
	return []*change{{key: e.Key, old: b.s.stateOf(e.Old), new: b.s.stateOf(e.New), rv: rv}}
}

// justBefore returns the resource version before another one.
func justBefore(rv string) string {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil || n == 0 {
		return rv
	}
	return strconv.FormatUint(n-1, 10)
}

func compareRV(a, b string) int {
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil {
		return order
	}
	return cmp.Compare(a, b)
}
