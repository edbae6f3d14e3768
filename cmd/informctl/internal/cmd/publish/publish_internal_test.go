package publish

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

// collectionsOf returns collections of resources of the core group.
func collectionsOf(cluster, version string, names ...string) map[string]postgres.Collection {
	out := map[string]postgres.Collection{}
	for _, name := range names {
		scope := store.Scope{Cluster: cluster, Resource: name, Kind: schema.GroupVersionKind{Version: version, Kind: name}}
		out[name] = postgres.Collection{Scope: scope}
	}
	return out
}

// TestAllAndFrequent checks that --all leaves out events and leases that are not named.
func TestAllAndFrequent(t *testing.T) {
	named := func(names ...string) (all []metav1.APIResource) {
		for _, name := range names {
			all = append(all, metav1.APIResource{Name: name, Namespaced: true, Kind: name, Verbs: metav1.Verbs{"list", "watch"}})
		}
		return all
	}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, name := range []string{"coordination.k8s.io", "events.k8s.io"} {
		v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	list := func(gv string, of ...string) metav1.APIResourceList {
		return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv, APIResources: named(of...)}
	}
	answers := map[string]any{
		"/api":                           metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis":                          groups,
		"/api/v1":                        list("v1", "events", "pods", "secrets"),
		"/apis/coordination.k8s.io/v1":   list("coordination.k8s.io/v1", "leases"),
		"/apis/events.k8s.io/v1":         list("events.k8s.io/v1", "events"),
		"/api/v1/namespaces/kube-system": corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{UID: "one"}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	}))
	defer s.Close()
	for _, test := range []struct{ names, want []string }{
		{nil, []string{"pods"}},
		{[]string{"events"}, []string{"events", "pods"}},
		{[]string{"leases", "events"}, []string{"events", "leases.coordination.k8s.io", "pods"}},
	} {
		o := &options{Choice: cluster.Choice{All: true, Frequent: true, Resources: test.names}}
		got, err := o.resolve(t.Context(), &rest.Config{Host: s.URL})
		if names := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(names, test.want) {
			t.Errorf("with %v: %v, %v, want %v", test.names, names, err, test.want)
		}
	}
	// What is left out may go, and the rest is still asked for.
	o := &options{Choice: cluster.Choice{All: true, Frequent: true, Exclude: []string{"pods"}, Resources: []string{"events"}}}
	for _, there := range []string{"pods", "configmaps"} {
		answers["/api/v1"] = list("v1", "events", there)
		want := []string{"configmaps", "events"}
		if there == "pods" {
			want = want[1:]
		}
		got, err := o.resolve(t.Context(), &rest.Config{Host: s.URL})
		if names := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(names, want) {
			t.Errorf("without pods, and with %s: %v, %v, want %v", there, names, err, want)
		}
	}
}

// TestTwoVersions checks that a resource that is named in two versions is refused: only
// one of them could be published.
func TestTwoVersions(t *testing.T) {
	in := func(version string) *meta.RESTMapping {
		gv := schema.GroupVersion{Group: "example.com", Version: version}
		return &meta.RESTMapping{Resource: gv.WithResource("widgets"), GroupVersionKind: gv.WithKind("Widget"), Scope: meta.RESTScopeNamespace}
	}
	config, o := &rest.Config{Host: "https://test"}, &options{}
	if got, err := o.collections(config, "c1", []*meta.RESTMapping{in("v1")}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	got, err := o.collections(config, "c1", []*meta.RESTMapping{in("v1"), in("v2")})
	if err == nil || !strings.Contains(err.Error(), "widgets.example.com is named in two versions, v1 and v2") {
		t.Errorf("%v, %v", got, err)
	}
}

// TestServesOthers checks which answers of the server make a publisher of everything
// begin again. That of another cluster does not: the scopes are failed until it is gone.
func TestServesOthers(t *testing.T) {
	wanted := collectionsOf("c1", "v1", "pods", "nodes")
	mixed := collectionsOf("c2", "v1", "pods", "widgets")
	mixed["nodes"] = wanted["nodes"] // of a group whose resources are unknown
	type answers []map[string]postgres.Collection
	less, elsewhere := collectionsOf("c1", "v1", "pods"), collectionsOf("c2", "v1", "pods", "nodes")
	for name, test := range map[string]struct {
		answers answers
		want    bool // at the last answer
	}{
		"the same":                         {answers{wanted, wanted}, false},
		"one more":                         {answers{collectionsOf("c1", "v1", "pods", "nodes", "widgets")}, true},
		"one less":                         {answers{less}, false},
		"one less twice":                   {answers{less, less}, true},
		"one less, and all again":          {answers{less, wanted, less}, false},
		"another version":                  {answers{collectionsOf("c1", "v2", "pods", "nodes")}, false},
		"another version twice":            {answers{collectionsOf("c1", "v2", "pods", "nodes"), collectionsOf("c1", "v2", "pods", "nodes")}, true},
		"another cluster":                  {answers{elsewhere, elsewhere, elsewhere}, false},
		"one more of another cluster":      {answers{mixed, mixed}, false},
		"another cluster between one less": {answers{less, elsewhere, less}, true},
		"one less after another cluster":   {answers{elsewhere, less}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var got, lacked bool
			for i, now := range test.answers {
				if got, lacked = serves(now, wanted, lacked); got && i < len(test.answers)-1 {
					t.Errorf("answer %d is of others", i)
				}
			}
			if got != test.want {
				t.Errorf("others: %t, want %t", got, test.want)
			}
		})
	}
}
