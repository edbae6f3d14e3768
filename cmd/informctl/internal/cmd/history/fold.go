package history

import (
	"slices"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
)

// isBrief reports whether changes are left out or made one that only say that something
// goes on: all other formats have every change.
func (o *options) isBrief() bool { return o.output == "table" }

// folds reports whether updates of a status are made one: not of those that are chosen by
// what they change, nor of those that are printed as they come.
func (o *options) folds() bool {
	return o.isBrief() && !o.follow && len(o.only) == 0 && o.selection.Sieve.Where == nil
}

// withoutNoise removes the updates that are no changes, and counts them.
func (o *options) withoutNoise(found []*loggedChange) []*loggedChange {
	if !o.isBrief() {
		return found
	}
	left := slices.DeleteFunc(slices.Clone(found), func(c *loggedChange) bool { return c.isNoise })
	o.noise += len(found) - len(left)
	return left
}

// tailOf returns the index of the change with which as many lines begin as --tail says; 0
// if there are not more, or no bound.
func (o *options) tailOf(found []*loggedChange) int {
	if o.tail == 0 {
		return 0
	}
	next := map[object]int{} // the index of the next change of each object
	first, lines := len(found), 0
	for i := range slices.Backward(found) {
		if o.isBrief() && found[i].isNoise {
			continue
		}
		of := found[i].object()
		after, isKnown := next[of]
		next[of] = i
		if goesOn := isKnown && o.folds() && found[i].goesOnAs(found[after]); !goesOn {
			lines++
		}
		if lines > o.tail {
			return first
		}
		first = i
	}
	return 0
}

// goesOnAs reports whether the next change of an object is of the same part of it, so
// that one line is for both.
func (c *loggedChange) goesOnAs(next *loggedChange) bool {
	return next.part != "" && next.part == c.part && next.UID == c.UID
}

// folded returns the changes with one for the updates of an object's status, or of an
// Event's count, between which the object was not changed otherwise. It is where the last
// of them was.
func folded(found []*loggedChange) []*loggedChange {
	out := slices.Clone(found)
	last := map[object]int{} // the index of the last change of each object
	for i := range out {
		of := out[i].object()
		before, isKnown := last[of]
		if last[of] = i; isKnown && out[before].goesOnAs(out[i]) {
			out[i].follows(out[before])
			out[before].count = 0
		}
	}
	return slices.DeleteFunc(out, func(c *loggedChange) bool { return c.count == 0 })
}

// follows adds the updates before to those of c.
func (c *loggedChange) follows(before *loggedChange) {
	c.count += before.count
	if c.first = before.first; c.first.IsZero() {
		if c.first = before.Time; before.Since != nil {
			c.first = *before.Since
		}
	}
	c.from = before.from
	c.Fields = objectdiff.Compose(before.Fields, c.Fields)
	c.Managers = slices.Compact(slices.Sorted(slices.Values(slices.Concat(before.Managers, c.Managers))))
}
