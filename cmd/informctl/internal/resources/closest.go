package resources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
)

// maxListed is how many resources an error lists for an unknown one, and maxSuggested how
// many of more than those.
const maxListed, maxSuggested = 10, 3

// UnknownError is the error of a resource that is not there.
type UnknownError struct{ text string }

func (e *UnknownError) Error() string { return e.text }

// Unknown returns the error for a resource that is not among names, which are sorted.
// where says where they are, as "FILE holds", and all what prints all of them.
func Unknown(resource, where string, names []string, all string) error {
	return &UnknownError{unknown(resource, where, names, all)}
}

func unknown(resource, where string, names []string, all string) string {
	if Is(store.Scope{Resource: "secrets", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}}, resource) {
		return where + " no Secrets, which are written only with a key: informctl run secrets --key-file FILE"
	}
	if len(names) <= maxListed {
		return fmt.Sprintf("unknown resource %q; %s %s", resource, where, cmp.Or(strings.Join(names, ", "), "nothing"))
	}
	return fmt.Sprintf("unknown resource %q; %s %d, of which the closest are %s; %s prints all",
		resource, where, len(names), strings.Join(closest(resource, names)[:maxSuggested], ", "), all)
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
