package relay_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// testDocuments compares what both say of themselves.
func (w *world) testDocuments(t *testing.T) {
	all := []request{{path: "/version"}, {path: "/openapi/v3"}, {path: "/openapi/v2"}, {path: "/api"}, {path: "/apis"}, {path: "/apis/apps"}}
	var index struct{ Paths map[string]any }
	w.decode(t, w.server, request{path: "/openapi/v3"}, &index)
	for path := range index.Paths {
		all = append(all, request{path: "/openapi/v3/" + path})
	}
	w.same(t, all...)
	for _, path := range []string{"/api", "/apis"} {
		var server, relay apidiscoveryv2.APIGroupDiscoveryList
		w.decode(t, w.server, request{path: path, accept: aggregated}, &server)
		w.decode(t, w.relay, request{path: path, accept: aggregated}, &relay)
		for _, g := range server.Items {
			for i, v := range g.Versions {
				g.Versions[i].Resources = w.readable(g.Name, v)
			}
		}
		server.Items = withoutEmpty(server.Items)
		if diff := cmp.Diff(server, relay); diff != "" {
			t.Errorf("%s (-server +informctl):\n%s", path, diff)
		}
	}
	for _, list := range w.kinds {
		path := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			path = "/api/v1"
		}
		var server, relay metav1.APIResourceList
		w.decode(t, w.server, request{path: path}, &server)
		w.decode(t, w.relay, request{path: path}, &relay)
		for i := range server.APIResources {
			r := &server.APIResources[i]
			r.StorageVersionHash, r.Group, r.Version = "", "", ""
			if slices.Contains(r.Verbs, "watch") {
				r.Verbs = []string{"get", "list", "watch"}
			}
		}
		for _, r := range relay.APIResources {
			if len(r.Verbs) == 0 || strings.HasPrefix(r.Name, "self") {
				continue
			}
			r.Group, r.Version = "", "" // the server has them in some groups
			i := slices.IndexFunc(server.APIResources, func(of metav1.APIResource) bool { return of.Name == r.Name })
			if i < 0 {
				t.Errorf("%s has %s", path, r.Name)
			} else if diff := cmp.Diff(server.APIResources[i], r); diff != "" {
				t.Errorf("%s (-server +informctl):\n%s", path, diff)
			}
		}
	}
}

// decode reads an answer of JSON.
func (w *world) decode(t *testing.T, p peer, r request, into any) {
	t.Helper()
	a, err := p.ask(t.Context(), r)
	if err == nil {
		err = json.Unmarshal(a.body, into)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", r, err, a)
	}
}

// readable returns what informctl has to say of the resources of a version: they can be
// read if they are held, and have no subresources. Secrets are left out.
func (w *world) readable(group string, v apidiscoveryv2.APIVersionDiscovery) (out []apidiscoveryv2.APIResourceDiscovery) {
	held := map[string]string{} // the version that is held
	for _, r := range w.collections() {
		held[r.Group+"/"+r.Name] = r.Version
	}
	for _, r := range v.Resources {
		r.Subresources = nil
		version, ok := held[group+"/"+r.Resource]
		switch {
		case group == "" && r.Resource == "secrets", ok && version != v.Version:
			continue
		case strings.HasPrefix(r.Resource, "selfsubject"):
			r.Verbs = []string{"create"}
		case ok:
			r.Verbs = []string{"get", "list", "watch"}
		default:
			r.Verbs, r.Categories = []string{}, nil
		}
		out = append(out, r)
	}
	return out
}

// withoutEmpty leaves out versions without resources, and groups without versions.
func withoutEmpty(groups []apidiscoveryv2.APIGroupDiscovery) []apidiscoveryv2.APIGroupDiscovery {
	for i, g := range groups {
		groups[i].Versions = slices.DeleteFunc(g.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return len(v.Resources) == 0 })
	}
	return slices.DeleteFunc(groups, func(g apidiscoveryv2.APIGroupDiscovery) bool { return len(g.Versions) == 0 })
}

// testReviews asks both what a user may do: at informctl, to read what it holds.
func (w *world) testReviews(t *testing.T) {
	for _, test := range []struct {
		attributes authorizationv1.ResourceAttributes
		allowed    bool
	}{
		{authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}, true},
		{authorizationv1.ResourceAttributes{Verb: "watch", Resource: "pods", Version: "v1", Namespace: "default"}, true},
		{authorizationv1.ResourceAttributes{Verb: "get", Group: "apps", Resource: "deployments", Name: "web", Namespace: "default"}, true},
		{authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods"}, false},
		{authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "log"}, false},
		{authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"}, false},
		{authorizationv1.ResourceAttributes{Verb: "list", Group: "none", Resource: "pods"}, false},
	} {
		body, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &test.attributes},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := request{method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: string(body)}
		var server, relay authorizationv1.SelfSubjectAccessReview
		w.decode(t, w.server, r, &server)
		w.decode(t, w.relay, r, &relay)
		if relay.Status.Allowed != test.allowed {
			t.Errorf("%+v: %+v", test.attributes, relay.Status)
		}
		relay.Status, server.Status, server.ManagedFields = authorizationv1.SubjectAccessReviewStatus{}, authorizationv1.SubjectAccessReviewStatus{}, nil
		if diff := cmp.Diff(server, relay); diff != "" {
			t.Errorf("(-server +informctl):\n%s", diff)
		}
	}
}

// testChanges asks for changes, which both refuse, and for what is not held.
func (w *world) testChanges(t *testing.T) {
	const pod = "/api/v1/namespaces/default/pods/selected"
	w.same(t,
		request{method: "POST", path: "/api/v1/namespaces/default/pods?dryRun=All", body: "{}"},
		request{method: "PUT", path: pod + "?dryRun=All", body: "{}"},
		request{method: "PATCH", path: pod + "?dryRun=All", body: "{}"},
		request{method: "DELETE", path: pod + "?dryRun=All"},
		request{method: "DELETE", path: "/api/v1/namespaces/default/pods?dryRun=All"},
		request{method: "POST", path: pod + "/eviction?dryRun=All", body: "{}"},
		request{path: pod + "/status"}, request{path: pod + "/log"}, request{path: pod + "/proxy"},
		request{path: "/apis/apps/v1/namespaces/default/statefulsets/db/scale"}, request{path: ofCustom + "/red/status"},
		request{path: "/api/v1/secrets"}, request{path: "/api/v1/secrets", accept: protoMetadata}, request{path: "/api/v1/namespaces/default/secrets/none"},
		request{path: "/apis/events.k8s.io/v1/events"}, request{path: "/api/v1/componentstatuses"},
		request{path: "/apis/test.informctl.example/v1/things"}, request{path: "/apis/test.informctl.example/v2/things"},
	)
}
