package manager_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/store"
)

// TestSelecting contains the checks of controller-runtime's own suite for the options
// that select pods. Each row reads typed, unstructured and metadata-only pods from one
// cache, on a cold and on a warm file, and checks that each of its scopes is in the file
// once.
func TestSelecting(t *testing.T) {
	w := theWorld(t)
	for _, row := range selecting {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w.coldAndWarm(t, setup{options: row.options}, func(t *testing.T, c *session) {
				for _, form := range forms {
					r := reader{c, shape{}, form}
					r.wantKeys(t, pods, row.want)
					for _, obj := range r.items(t, pods) {
						wantSame(t, keyOf(obj), obj, r.get(t, pods, obj.GetNamespace(), obj.GetName()))
					}
				}
				c.stop()
				if diff := cmp.Diff(inForms(row.scopes), scopes(t, c.path)); diff != "" {
					t.Errorf("scopes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// inForms returns the names of scopes in each form, sorted.
func inForms(typed []string) (out []string) {
	for _, name := range typed {
		out = append(out, name, name+" ("+store.Unstructured.String()+")", name+" ("+store.Metadata.String()+")")
	}
	slices.Sort(out)
	return out
}

func label(name, value string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{name: value})
}

func field(path, value string) fields.Selector { return fields.OneTermEqualSelector(path, value) }

func byPod(o crcache.ByObject) crcache.Options {
	return crcache.Options{ByObject: map[client.Object]crcache.ByObject{&corev1.Pod{}: o}}
}

// in returns a configuration for one namespace with its own selectors.
func in(namespace string, c crcache.Config) map[string]crcache.Config {
	return map[string]crcache.Config{namespace: c}
}

var (
	allPods    = []string{"one/pod-1", "one/pod-5", "three/pod-4", "two/pod-2", "two/pod-3", "two/pod-6"}
	podsOfTwo  = []string{"two/pod-2", "two/pod-3", "two/pod-6"}
	podsOfB    = []string{"three/pod-4", "two/pod-3"}
	notInOne   = []string{"three/pod-4", "two/pod-2", "two/pod-3", "two/pod-6"}
	exceptOne  = map[string]crcache.Config{metav1.NamespaceAll: {}, "one": {LabelSelector: label("not", "there")}}
	scopesOf12 = []string{"pods in one with labels not=there", "pods with fields metadata.namespace!=one"}
)

var selecting = []struct {
	name    string
	options crcache.Options
	want    []string
	scopes  []string
}{
	{name: "no selector has all pods", want: allPods, scopes: []string{"pods"}},
	{
		name: "the type's field selector matches one", options: byPod(crcache.ByObject{Field: field("metadata.name", "pod-2")}),
		want: []string{"two/pod-2"}, scopes: []string{"pods with fields metadata.name=pod-2"},
	},
	{
		name: "the default field selector matches one", options: crcache.Options{DefaultFieldSelector: field("metadata.name", "pod-2")},
		want: []string{"two/pod-2"}, scopes: []string{"pods with fields metadata.name=pod-2"},
	},
	{
		name: "the type's field selector matches several", options: byPod(crcache.ByObject{Field: field("metadata.namespace", "two")}),
		want: podsOfTwo, scopes: []string{"pods in two with fields metadata.namespace=two"},
	},
	{
		name: "the default field selector matches several", options: crcache.Options{DefaultFieldSelector: field("metadata.namespace", "two")},
		want: podsOfTwo, scopes: []string{"pods in two with fields metadata.namespace=two"},
	},
	{
		name: "the type's label selector matches one", options: byPod(crcache.ByObject{Label: label("name", "pod-4")}),
		want: []string{"three/pod-4"}, scopes: []string{"pods with labels name=pod-4"},
	},
	{
		name: "the type's label selector for everything comes before the default one",
		options: crcache.Options{
			DefaultNamespaces:    in("one", crcache.Config{}),
			ByObject:             map[client.Object]crcache.ByObject{&corev1.Pod{}: {Label: labels.Everything()}},
			DefaultLabelSelector: label("not", "there"),
		},
		want: []string{"one/pod-1", "one/pod-5"}, scopes: []string{"pods in one"},
	},
	{
		name: "the default label selector counts in default namespaces",
		options: crcache.Options{
			DefaultNamespaces:    in("two", crcache.Config{}),
			ByObject:             map[client.Object]crcache.ByObject{&corev1.Pod{}: {}},
			DefaultLabelSelector: label("group", "b"),
		},
		want: []string{"two/pod-3"}, scopes: []string{"pods in two with labels group=b"},
	},
	{
		name: "the default label selector matches one", options: crcache.Options{DefaultLabelSelector: label("name", "pod-4")},
		want: []string{"three/pod-4"}, scopes: []string{"pods with labels name=pod-4"},
	},
	{
		name: "the type's label selector matches several", options: byPod(crcache.ByObject{Label: label("group", "b")}),
		want: podsOfB, scopes: []string{"pods with labels group=b"},
	},
	{
		name: "the default label selector matches several", options: crcache.Options{DefaultLabelSelector: label("group", "b")},
		want: podsOfB, scopes: []string{"pods with labels group=b"},
	},
	{
		name:    "the type's selectors by label and field match one",
		options: byPod(crcache.ByObject{Label: label("group", "b"), Field: field("metadata.namespace", "two")}),
		want:    []string{"two/pod-3"}, scopes: []string{"pods in two with labels group=b with fields metadata.namespace=two"},
	},
	{
		name:    "the default selectors by label and field match one",
		options: crcache.Options{DefaultLabelSelector: label("group", "b"), DefaultFieldSelector: field("metadata.namespace", "two")},
		want:    []string{"two/pod-3"}, scopes: []string{"pods in two with labels group=b with fields metadata.namespace=two"},
	},
	{
		name: "the type's label selector matches none", options: byPod(crcache.ByObject{Label: label("new", "new")}),
		scopes: []string{"pods with labels new=new"},
	},
	{
		name: "the default label selector matches none", options: crcache.Options{DefaultLabelSelector: label("new", "new")},
		scopes: []string{"pods with labels new=new"},
	},
	{
		name: "the type's field selector matches none", options: byPod(crcache.ByObject{Field: field("metadata.namespace", "new")}),
		scopes: []string{"pods in new with fields metadata.namespace=new"},
	},
	{
		name: "the default field selector matches none", options: crcache.Options{DefaultFieldSelector: field("metadata.namespace", "new")},
		scopes: []string{"pods in new with fields metadata.namespace=new"},
	},
	{
		name:    "the field selector of a namespace of the type matches one",
		options: byPod(crcache.ByObject{Namespaces: in("two", crcache.Config{FieldSelector: field("metadata.name", "pod-2")})}),
		want:    []string{"two/pod-2"}, scopes: []string{"pods in two with fields metadata.name=pod-2"},
	},
	{
		name:    "the field selector of a namespace of the type matches none",
		options: byPod(crcache.ByObject{Namespaces: in("two", crcache.Config{FieldSelector: field("metadata.name", "no")})}),
		scopes:  []string{"pods in two with fields metadata.name=no"},
	},
	{
		name:    "the field selector of a default namespace matches one",
		options: crcache.Options{DefaultNamespaces: in("two", crcache.Config{FieldSelector: field("metadata.name", "pod-2")})},
		want:    []string{"two/pod-2"}, scopes: []string{"pods in two with fields metadata.name=pod-2"},
	},
	{
		name:    "the field selector of a default namespace matches none",
		options: crcache.Options{DefaultNamespaces: in("two", crcache.Config{FieldSelector: field("metadata.name", "no")})},
		scopes:  []string{"pods in two with fields metadata.name=no"},
	},
	{
		name:    "the label selector of a namespace of the type matches one",
		options: byPod(crcache.ByObject{Namespaces: in("two", crcache.Config{LabelSelector: label("name", "pod-2")})}),
		want:    []string{"two/pod-2"}, scopes: []string{"pods in two with labels name=pod-2"},
	},
	{
		name:    "the label selector of a namespace of the type matches none",
		options: byPod(crcache.ByObject{Namespaces: in("two", crcache.Config{LabelSelector: label("name", "no")})}),
		scopes:  []string{"pods in two with labels name=no"},
	},
	{
		name:    "the label selector of a default namespace matches one",
		options: crcache.Options{DefaultNamespaces: in("two", crcache.Config{LabelSelector: label("name", "pod-2")})},
		want:    []string{"two/pod-2"}, scopes: []string{"pods in two with labels name=pod-2"},
	},
	{
		name:    "the label selector of a default namespace matches none",
		options: crcache.Options{DefaultNamespaces: in("two", crcache.Config{LabelSelector: label("name", "no")})},
		scopes:  []string{"pods in two with labels name=no"},
	},
	{
		name:    "only all namespaces as default namespaces has all pods",
		options: crcache.Options{DefaultNamespaces: in(metav1.NamespaceAll, crcache.Config{})},
		want:    allPods, scopes: []string{"pods"},
	},
	{
		name:    "only all namespaces as namespaces of the type has all pods",
		options: byPod(crcache.ByObject{Namespaces: in(metav1.NamespaceAll, crcache.Config{})}),
		want:    allPods, scopes: []string{"pods"},
	},
	{
		name:    "all namespaces as a default namespace are those that have no selector of their own",
		options: crcache.Options{DefaultNamespaces: exceptOne}, want: notInOne, scopes: scopesOf12,
	},
	{
		name:    "all namespaces as a namespace of the type are those that have no selector of their own",
		options: byPod(crcache.ByObject{Namespaces: exceptOne}), want: notInOne, scopes: scopesOf12,
	},
	{
		name: "several namespaces have several selectors",
		options: crcache.Options{DefaultNamespaces: map[string]crcache.Config{
			"one": {LabelSelector: label("name", "pod-5")},
			"two": {FieldSelector: field("metadata.name", "pod-6")},
		}},
		want: []string{"one/pod-5", "two/pod-6"}, scopes: []string{"pods in one with labels name=pod-5", "pods in two with fields metadata.name=pod-6"},
	},
	{
		name: "all other namespaces have a field selector of their own, too",
		options: crcache.Options{DefaultNamespaces: map[string]crcache.Config{
			"one": {LabelSelector: label("name", "pod-5")}, "two": {LabelSelector: label("name", "pod-6")},
			metav1.NamespaceAll: {FieldSelector: field("metadata.name", "pod-4")},
		}},
		want: []string{"one/pod-5", "three/pod-4", "two/pod-6"},
		scopes: []string{
			"pods in one with labels name=pod-5", "pods in two with labels name=pod-6",
			"pods with fields metadata.name=pod-4,metadata.namespace!=one,metadata.namespace!=two",
		},
	},
	{
		name: "a namespace of the type takes the type's selector first",
		options: crcache.Options{
			ByObject:             map[client.Object]crcache.ByObject{&corev1.Pod{}: {Namespaces: in("two", crcache.Config{}), Label: label("name", "pod-2")}},
			DefaultNamespaces:    in("two", crcache.Config{LabelSelector: label("name", "pod-3")}),
			DefaultLabelSelector: label("name", "pod-6"),
		},
		want: []string{"two/pod-2"}, scopes: []string{"pods in two with labels name=pod-2"},
	},
	{
		name: "a namespace of the type takes the default namespace's selector next",
		options: crcache.Options{
			ByObject:             map[client.Object]crcache.ByObject{&corev1.Pod{}: {Namespaces: in("two", crcache.Config{})}},
			DefaultNamespaces:    in("two", crcache.Config{LabelSelector: label("name", "pod-3")}),
			DefaultLabelSelector: label("name", "pod-6"),
		},
		want: []string{"two/pod-3"}, scopes: []string{"pods in two with labels name=pod-3"},
	},
	{
		name: "a namespace of the type takes the default selector last",
		options: crcache.Options{
			ByObject:             map[client.Object]crcache.ByObject{&corev1.Pod{}: {Namespaces: in("two", crcache.Config{})}},
			DefaultLabelSelector: label("name", "pod-6"),
		},
		want: []string{"two/pod-6"}, scopes: []string{"pods in two with labels name=pod-6"},
	},
	{
		name: "no namespaces of the type are all of them",
		options: crcache.Options{
			ByObject:          map[client.Object]crcache.ByObject{&corev1.Pod{}: {Namespaces: map[string]crcache.Config{}}},
			DefaultNamespaces: in("two", crcache.Config{LabelSelector: label("name", "pod-3")}),
		},
		want: allPods, scopes: []string{"pods"},
	},
	{
		name: "default namespaces of a type have the type's selector",
		options: crcache.Options{
			ByObject:          map[client.Object]crcache.ByObject{&corev1.Pod{}: {Label: label("group", "a")}},
			DefaultNamespaces: in("two", crcache.Config{}),
		},
		want: []string{"two/pod-2"}, scopes: []string{"pods in two with labels group=a"},
	},
	{
		name: "a default namespace with a selector for everything has no default one",
		options: crcache.Options{
			DefaultNamespaces:    in("one", crcache.Config{LabelSelector: labels.Everything()}),
			DefaultLabelSelector: label("not", "there"),
		},
		want: []string{"one/pod-1", "one/pod-5"}, scopes: []string{"pods in one"},
	},
}

// TestRestricting checks caches of some namespaces, and which objects they have of kinds
// without a namespace and of kinds with their own selector.
func TestRestricting(t *testing.T) {
	w := theWorld(t)
	for _, row := range restricting {
		for _, form := range forms {
			t.Run(row.name+"/"+form.String(), func(t *testing.T) {
				t.Parallel()
				w.coldAndWarm(t, setup{options: row.options}, func(t *testing.T, c *session) {
					r := reader{c, shape{}, form}
					for range 2 {
						for kind, want := range row.want {
							r.wantKeys(t, kind, want)
						}
					}
					for _, node := range []string{"node-1", "node-2"} {
						// Cluster-scoped objects have no namespace.
						for _, namespace := range []string{"", "any"} {
							err := r.getError(t, nodes, namespace, node)
							if slices.Contains(row.want[nodes], node) && err != nil || !slices.Contains(row.want[nodes], node) && !apierrors.IsNotFound(err) {
								t.Errorf("%s in %q: %v", node, namespace, err)
							}
						}
					}
				})
			})
		}
	}
}

var (
	podsOfOne = []string{"one/pod-1", "one/pod-5"}
	bothNodes = []string{"node-1", "node-2"}
)

var restricting = []struct {
	name    string
	options crcache.Options
	want    map[schema.GroupVersionKind][]string
}{
	{
		name: "to a namespace of the type", options: byPod(crcache.ByObject{Namespaces: in("one", crcache.Config{})}),
		want: map[schema.GroupVersionKind][]string{pods: podsOfOne, nodes: bothNodes, services: {"default/kubernetes", "one/service-1", "two/service-2"}},
	},
	{
		name: "to a default namespace", options: crcache.Options{DefaultNamespaces: in("one", crcache.Config{})},
		want: map[schema.GroupVersionKind][]string{pods: podsOfOne, nodes: bothNodes, services: {"one/service-1"}},
	},
	{
		name:    "to several default namespaces",
		options: crcache.Options{DefaultNamespaces: map[string]crcache.Config{"default": {}, "one": {}}},
		want:    map[schema.GroupVersionKind][]string{pods: podsOfOne, nodes: bothNodes, services: {"default/kubernetes", "one/service-1"}},
	},
	{
		name: "to a default namespace, and a cluster's objects by label",
		options: crcache.Options{
			DefaultNamespaces: in("one", crcache.Config{}),
			ByObject:          map[client.Object]crcache.ByObject{&corev1.Node{}: {Label: label("name", "node-2")}},
		},
		want: map[schema.GroupVersionKind][]string{pods: podsOfOne, nodes: {"node-2"}},
	},
	{
		name: "by a default selector, and one kind by another",
		options: crcache.Options{
			DefaultFieldSelector: field("metadata.namespace", "two"),
			ByObject: map[client.Object]crcache.ByObject{
				&corev1.ServiceAccount{}: {Field: field("metadata.namespace", "one")},
				&corev1.Node{}:           {Field: fields.Everything()},
			},
		},
		want: map[schema.GroupVersionKind][]string{accounts: {"one/account-1"}, services: {"two/service-2"}, nodes: bothNodes},
	},
}

// TestOneInformerOfAllNamespaces checks that an informer of several namespaces has synced
// when all of them have synced, and that its name contains them.
func TestOneInformerOfAllNamespaces(t *testing.T) {
	w := theWorld(t)
	options := crcache.Options{DefaultNamespaces: map[string]crcache.Config{"one": {}, "two": {}}}
	w.coldAndWarm(t, setup{options: options}, func(t *testing.T, c *session) {
		r := reader{c, shape{}, store.Typed}
		open := r.gate.close()
		inf := r.unsyncedInformer(t)
		open()
		await(t, inf.HasSyncedChecker())
		if !inf.HasSynced() {
			t.Error("has synced and says that it has not")
		}
		if name := inf.HasSyncedChecker().Name(); !strings.Contains(name, "one") || !strings.Contains(name, "two") {
			t.Errorf("its name is %q", name)
		}
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "three", Name: "pod-4"}, &corev1.Pod{}); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("a namespace that is not watched: %v", err)
		}
	})
}
