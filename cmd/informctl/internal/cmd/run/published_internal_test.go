package run

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

// TestWanted checks which scope of a resource is followed after its version has changed.
func TestWanted(t *testing.T) {
	widgets := func(version string, isHeld bool, marked int64) postgres.ScopeStatus {
		kind := schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}
		return postgres.ScopeStatus{Scope: store.Scope{Cluster: "c1", Resource: "widgets.example.com", Kind: kind}, IsHeld: isHeld, MarkTime: time.Unix(marked, 0)}
	}
	for name, test := range map[string]struct {
		all  []postgres.ScopeStatus
		want []string // versions
	}{
		"one":                          {[]postgres.ScopeStatus{widgets("v1", false, 1)}, []string{"v1"}},
		"the first was replaced":       {[]postgres.ScopeStatus{widgets("v1", false, 2), widgets("v2", true, 1)}, []string{"v2"}},
		"the second was replaced":      {[]postgres.ScopeStatus{widgets("v1", true, 1), widgets("v2", false, 2)}, []string{"v1"}},
		"nobody publishes":             {[]postgres.ScopeStatus{widgets("v1", false, 1), widgets("v2", false, 2)}, []string{"v2"}},
		"the new one is still to come": {[]postgres.ScopeStatus{widgets("v1", true, 1), widgets("v2", false, 0)}, []string{"v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			byName, everything := &options{}, &options{}
			byName.Resources, everything.All = []string{"widgets"}, true
			for _, o := range []*options{byName, everything} {
				scopes, err := o.wanted(test.all)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, s := range scopes {
					got = append(got, s.Scope.Kind.Version)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("with --all %t (-want +got):\n%s", o.All, diff)
				}
			}
		})
	}
}
