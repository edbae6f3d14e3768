package relay

import (
	"cmp"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/internal/builtin"
	"github.com/informctl/informctl/store"
)

// verbs are what a resource is served with that is held.
var verbs = []string{"get", "list", "watch"}

// namespaced reports whether objects of a resource are in namespaces. known is false if
// nobody knows the resource.
func (s *Server) namespaced(gr schema.GroupResource, version string) (is, known bool) {
	if r, ok := s.Documents.resource(gr.WithVersion(version)); ok {
		return r.Scope == apidiscoveryv2.ScopeNamespace, true
	}
	for _, c := range s.collections() {
		// Without documents nobody knows which versions there are.
		if c.groupResource() == gr && (c.Scope.Kind.Version == version || !s.Documents.have()) {
			return s.inNamespaces(c), true
		}
	}
	return false, false
}

// have reports whether the resources of the server are known.
func (d *Documents) have() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.resources) > 0
}

func (d *Documents) resource(gvr schema.GroupVersionResource) (apidiscoveryv2.APIResourceDiscovery, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	r, ok := d.resources[gvr]
	return r, ok
}

// isStale reports whether the server did not know the resources of a version, as where
// the service of an aggregated API did not answer.
func (d *Documents) isStale(group, version string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, g := range d.groups {
		if g.Name == group {
			return slices.ContainsFunc(g.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool {
				return v.Version == version && v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale
			})
		}
	}
	return false
}

// groupResource returns the resource of a collection.
func (c Collection) groupResource() schema.GroupResource {
	resource, _, _ := strings.Cut(c.Scope.Resource, ".")
	return schema.GroupResource{Group: c.Scope.Kind.Group, Resource: resource}
}

func (s *Server) isNamespaced(c *served) bool {
	is, _ := s.namespaced(c.Resource.GroupResource(), c.Resource.Version)
	return is
}

// inNamespaces finds out without documents whether objects are in namespaces.
func (s *Server) inNamespaces(c Collection) bool {
	switch {
	case c.Scope.Namespace != "":
		return true
	case builtin.IsClusterScoped(c.Scope.Resource):
		return false
	}
	if crd := s.definitionOf(c); crd != nil {
		scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
		return scope != "Cluster"
	}
	keys, err := c.Reader.Keys(store.Query{Limit: 1, At: c.At})
	return err != nil || len(keys) == 0 || strings.Contains(keys[0], "/")
}

func (s *Server) definitionOf(c Collection) *unstructured.Unstructured {
	if c.Scope.Form != store.Unstructured || c.Scope.Resource == definitions {
		return nil
	}
	return s.definition(c.Scope.Resource)
}

// isDefined reports whether there is a custom resource in a version, by its definition.
func (s *Server) isDefined(gr schema.GroupResource, version string) bool {
	if gr.Group == "" {
		return false
	}
	crd := s.definition(gr.String())
	if crd == nil {
		return false
	}
	return definedVersion(crd, version)["served"] == true
}

// definedVersion returns what a definition says of a version, nil if it has none of that
// name.
func definedVersion(crd *unstructured.Unstructured, version string) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if v, _ := v.(map[string]any); v["name"] == version {
			return v
		}
	}
	return nil
}

// discovery returns the resources that the server had. Those that are held can be read,
// in one version; the others are there without verbs, so that a request for them is
// refused and not taken for one of something that does not exist.
func (s *Server) discovery() []apidiscoveryv2.APIGroupDiscovery {
	held := map[schema.GroupResource]map[string]Collection{}
	for _, c := range s.collections() {
		gr := c.groupResource()
		if held[gr] == nil {
			held[gr] = map[string]Collection{}
		}
		held[gr][c.Scope.Kind.Version] = c
	}
	s.Documents.mu.RLock()
	known := s.Documents.groups
	s.Documents.mu.RUnlock()
	var out []apidiscoveryv2.APIGroupDiscovery
	for _, g := range known {
		group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		for _, v := range g.Versions {
			now := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: v.Freshness}
			for _, r := range v.Resources {
				gr := schema.GroupResource{Group: g.Name, Resource: r.Resource}
				r.Subresources = nil
				switch versions := held[gr]; {
				case gr.Group == "" && gr.Resource == "secrets" && !s.Secrets:
					continue
				case reviews.Has(gr):
					r.Verbs = []string{"create"}
				case versions == nil:
					r.Verbs, r.Categories = []string{}, nil
				default:
					if _, ok := versions[v.Version]; !ok {
						continue
					}
					delete(versions, v.Version)
					r.Verbs = verbs
				}
				now.Resources = append(now.Resources, r)
			}
			if len(now.Resources) > 0 {
				group.Versions = append(group.Versions, now)
			}
		}
		if len(group.Versions) > 0 {
			out = append(out, group)
		}
	}
	var made []Collection
	for _, versions := range held {
		made = slices.AppendSeq(made, maps.Values(versions))
	}
	slices.SortFunc(made, byPriority)
	for _, c := range made {
		out = s.addMade(out, c)
	}
	return out
}

// byPriority is the order of collections in the discovery, of which clients take the
// first that has a name: the groups of Kubernetes come before others, and stable and high
// versions of a group before its others.
func byPriority(a, b Collection) int {
	isCustom := func(c Collection) int {
		if scheme.Scheme.IsGroupRegistered(c.Scope.Kind.Group) {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(isCustom(a), isCustom(b)),
		cmp.Compare(a.Scope.Kind.Group, b.Scope.Kind.Group),
		version.CompareKubeAwareVersionStrings(b.Scope.Kind.Version, a.Scope.Kind.Version),
		cmp.Compare(a.Scope.Resource, b.Scope.Resource),
	)
}

// addMade adds a resource of which there is no document.
func (s *Server) addMade(groups []apidiscoveryv2.APIGroupDiscovery, c Collection) []apidiscoveryv2.APIGroupDiscovery {
	gr, kind := c.groupResource(), c.Scope.Kind
	r := apidiscoveryv2.APIResourceDiscovery{
		Resource: gr.Resource, ResponseKind: &metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		Scope: apidiscoveryv2.ScopeCluster, SingularResource: strings.ToLower(kind.Kind), Verbs: verbs,
		ShortNames: builtin.ShortNames(c.Scope.Resource),
	}
	if s.inNamespaces(c) {
		r.Scope = apidiscoveryv2.ScopeNamespace
	}
	if builtin.IsInAll(c.Scope.Resource) {
		r.Categories = []string{"all"}
	}
	if crd := s.definitionOf(c); crd != nil {
		r.ShortNames, _, _ = unstructured.NestedStringSlice(crd.Object, "spec", "names", "shortNames")
		r.Categories, _, _ = unstructured.NestedStringSlice(crd.Object, "spec", "names", "categories")
	}
	i := slices.IndexFunc(groups, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == gr.Group })
	if i < 0 {
		i = len(groups)
		groups = append(groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gr.Group}})
	}
	g := &groups[i]
	j := slices.IndexFunc(g.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == kind.Version })
	if j < 0 {
		j = len(g.Versions)
		g.Versions = append(g.Versions, apidiscoveryv2.APIVersionDiscovery{Version: kind.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
	}
	g.Versions[j].Resources = append(g.Versions[j].Resources, r)
	return groups
}

// document answers a request for what the server says of itself.
func (s *Server) document(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return apierrors.NewMethodNotSupported(schema.GroupResource{}, strings.ToLower(r.Method))
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch {
	case path == versionPath:
		return s.version(w)
	case path == corePath || path == groupsPath:
		if wantsAggregated(r) {
			return s.aggregated(w, path)
		}
	case path == openAPIPath, strings.HasPrefix(path, openAPIPath+"/"):
		b, ok, err := s.Documents.openAPI(r.Context(), path)
		if err != nil || ok {
			return writeJSON(w, "application/json", b, err)
		}
		return notThere()
	}
	obj := s.plainDiscovery(path)
	if obj == nil {
		return notThere()
	}
	responsewriters.WriteObjectNegotiated(scheme.Codecs.WithoutConversion(), negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, obj, false)
	return nil
}

func writeJSON(w http.ResponseWriter, contentType string, b []byte, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(b) // the client may be gone
	return nil
}

func (s *Server) version(w http.ResponseWriter) error {
	s.Documents.mu.RLock()
	b := s.Documents.version
	s.Documents.mu.RUnlock()
	if b == nil {
		major, minor, _ := strings.Cut(strings.TrimPrefix(s.ServerVersion, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		var err error
		if b, err = json.Marshal(version.Info{Major: major, Minor: minor, GitVersion: s.ServerVersion}); err != nil {
			return apierrors.NewInternalError(err)
		}
	}
	return writeJSON(w, "application/json", b, nil)
}

// wantsAggregated reports whether a client can take the aggregated discovery.
func wantsAggregated(r *http.Request) bool {
	for _, one := range strings.Split(r.Header.Get("Accept"), ",") {
		mediaType, p, err := mime.ParseMediaType(one)
		if err == nil && mediaType == "application/json" && p["g"] == "apidiscovery.k8s.io" && p["v"] == "v2" && p["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}

// groupsOf returns the groups of a path: the core is under another one than the others.
func (s *Server) groupsOf(path string) apidiscoveryv2.APIGroupDiscoveryList {
	return apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items: slices.DeleteFunc(s.discovery(), func(g apidiscoveryv2.APIGroupDiscovery) bool {
			return (g.Name == "") != (path == corePath)
		}),
	}
}

func (s *Server) aggregated(w http.ResponseWriter, path string) error {
	b, err := json.Marshal(s.groupsOf(path))
	return writeJSON(w, aggregated, append(b, '\n'), err)
}

// plainDiscovery returns what clients ask for that do not know the aggregated discovery,
// nil if there is no such path.
func (s *Server) plainDiscovery(path string) runtime.Object {
	root := groupsPath
	if path == corePath || strings.HasPrefix(path, corePath+"/") {
		root = corePath
	}
	groups, resources, _ := discovery.SplitGroupsAndResources(s.groupsOf(root))
	rest := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
	switch {
	case path == corePath:
		v := &metav1.APIVersions{ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}}
		for _, g := range groups.Groups {
			for _, one := range g.Versions {
				v.Versions = append(v.Versions, one.Version)
			}
		}
		v.Kind = "APIVersions"
		return v
	case path == groupsPath:
		return groups
	case !strings.HasPrefix(path, root+"/"):
		return nil
	}
	for gv, list := range resources {
		if rest == gv.String() {
			return list
		}
	}
	for i := range groups.Groups {
		if g := &groups.Groups[i]; rest == g.Name {
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return g
		}
	}
	return nil
}
