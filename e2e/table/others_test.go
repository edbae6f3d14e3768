package table_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/informctl/informctl/table"
)

// others are the built-in resources whose columns the server has and package table does
// not: they are printed with name and age. docs/columns.md says why.
var others = []string{"componentstatuses"}

// TestOthers checks that the list above is what the server has, so that a resource of a
// newer server is not overlooked.
func TestOthers(t *testing.T) {
	w := newWorld(t)
	lists, err := discovery.ServerPreferredResources(discovery.NewDiscoveryClient(w.server))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			gvr := gv.WithResource(r.Name)
			if _, ok := resources[gvr]; ok || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			if !cmp.Equal(w.ask(gvr).columns, table.Named().Columns()) {
				got = append(got, gvr.GroupResource().String())
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(others, got); diff != "" {
		t.Errorf("(-want +server):\n%s", diff)
	}
}

// TestPage checks that docs/columns.md has all kinds that are compared, by their groups.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/columns.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string][]string{}
	for gvr, kind := range resources {
		group := "core"
		if gvr.Group != "" {
			group = "`" + gvr.GroupVersion().String() + "`"
		}
		kinds[group] = append(kinds[group], kind)
	}
	for group, of := range kinds {
		slices.Sort(of)
		if row := "\n| " + group + " | " + strings.Join(of, ", ") + " |\n"; !strings.Contains(string(page), row) {
			t.Errorf("docs/columns.md has not the row %s", row)
		}
	}
}
