package cmdutil

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxListed is how many names a message lists, and maxSuggested how many of more than
// those.
const maxListed, maxSuggested = 10, 3

// Listed lists names, "nothing" if there are none, or of many those that are the closest
// to a name that is not among them. It returns false if it has not listed all.
func Listed(name string, names []string) (text string, whole bool) {
	if len(names) <= maxListed {
		return cmp.Or(strings.Join(names, ", "), "nothing"), true
	}
	return fmt.Sprintf("%d, of which the closest are %s", len(names), strings.Join(closest(name, names)[:maxSuggested], ", ")), false
}

// Some lists the first of many names, and says how many more there are.
func Some(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxSuggested], ", "), len(names)-maxSuggested)
}

// closest returns the names in the order of the steps from a name to them.
func closest(name string, names []string) []string {
	steps := func(to string) int {
		plural, _, _ := strings.Cut(to, ".")
		return min(editSteps(strings.ToLower(name), to), editSteps(strings.ToLower(name), plural))
	}
	return slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(steps(a), steps(b)) })
}

// editSteps returns how many bytes are inserted, deleted or replaced between two texts.
func editSteps(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one to the left
		row[0] = i + 1
		for j := range len(b) {
			step := before
			if a[i] != b[j] {
				step++
			}
			before = row[j+1]
			row[j+1] = min(step, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
