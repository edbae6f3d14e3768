package selection_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/cmd/informctl/internal/selection"
)

// TestParts checks that a query decodes only the fields it reads, and the whole object if
// these are not certain.
func TestParts(t *testing.T) {
	for _, test := range []struct {
		where, sortBy string
		want          []string
	}{
		{"", "", []string{}},
		{"true", "", []string{}},
		{"object.spec.nodeName == 'a'", "", []string{"spec"}},
		{"has(object.status.phase) && object.spec.containers.exists(c, c.image == object.metadata.name)", "", []string{"status", "spec", "metadata"}},
		{"object['spec'].nodeName == 'a'", "", nil},
		{"object == object", "", nil},
		{"[object].exists(o, o.spec.nodeName == 'a')", "", nil},
		{"[{'spec': 1}].exists(object, object.spec == 1)", "", []string{"spec"}},
		{"object.kind == 'Pod'", "", []string{"kind"}},
		{"", "spec.nodeName", []string{"spec"}},
		{"", "{.metadata.labels['app']}", []string{"metadata"}},
		{"", "..image", nil},
		{"", "['spec'].nodeName", nil},
		{"", "*.phase", nil},
		{"object.spec.nodeName == 'a'", ".status.phase", []string{"spec", "status"}},
		{"object.spec.nodeName == 'a'", "..phase", nil},
	} {
		got, err := selection.Parts(test.where, test.sortBy)
		if err != nil {
			t.Errorf("%q, %q: %v", test.where, test.sortBy, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q, %q (-want +got):\n%s", test.where, test.sortBy, diff)
		}
	}
}

// TestPartsOfGroups checks the same of an expression that groups.
func TestPartsOfGroups(t *testing.T) {
	for groupBy, want := range map[string][]string{
		"object.metadata.name + object.spec.nodeName": {"metadata", "spec"},
		"object['spec'].nodeName":                     nil,
		".object.x":                                   {"object"},
	} {
		got, err := selection.Parts("", "", groupBy)
		if err != nil {
			t.Errorf("%q: %v", groupBy, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", groupBy, diff)
		}
	}
}
