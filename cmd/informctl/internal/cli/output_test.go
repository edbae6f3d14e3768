package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// pods is more than one chunk.
const pods = 150

func podFile(t *testing.T, numbered func(i int) *corev1.Pod) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pods.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]runtime.Object, 0, pods)
	for i := range pods {
		list = append(list, numbered(i))
	}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, list...)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cli.MainAt(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, args, now); code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, errOut.String())
	}
	return out.Bytes()
}

// smallPod returns a pod in one of three namespaces. The names have different lengths.
func smallPod(i int) *corev1.Pod {
	name := fmt.Sprintf("pod-%d", i*i*i)
	p := pod([]string{"a", "a-b", "default"}[i%3], name, "web")
	p.Labels["app.kubernetes.io/name"] = name
	return p
}

func TestListIsWholeAndOrdered(t *testing.T) {
	path := podFile(t, func(i int) *corev1.Pod { return testobjects.Pod(i, 1) })
	var fromJSON, fromYAML unstructured.UnstructuredList
	for format, list := range map[string]*unstructured.UnstructuredList{"json": &fromJSON, "yaml": &fromYAML} {
		data := run(t, "dump", "pods", "--db", path, "-o", format)
		if format == "yaml" {
			var err error
			if data, err = yaml.YAMLToJSON(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := json.Unmarshal(data, list); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(fromJSON.Object, fromYAML.Object); diff != "" {
		t.Errorf("JSON and YAML differ (-json +yaml):\n%s", diff)
	}
	want := map[string]*corev1.Pod{}
	for i := range pods {
		p := testobjects.Pod(i, 1)
		want[p.Namespace+"/"+p.Name] = p
	}
	last := ""
	for _, item := range fromJSON.Items {
		key := item.GetNamespace() + "/" + item.GetName()
		order := item.GetNamespace() + "\x00" + item.GetName()
		if order <= last {
			t.Errorf("%s is out of order", key)
		}
		last = order
		var got corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &got); err != nil {
			t.Fatal(err)
		}
		w := want[key]
		delete(want, key)
		w.APIVersion, w.Kind, w.ManagedFields = "v1", "Pod", nil
		if diff := cmp.Diff(w, &got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", key, diff)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d pods are missing", len(want))
	}
}

// TestDocumentsAreThoseOfKubectl checks that a List and a single object are printed byte
// for byte as kubectl's printers print them.
func TestDocumentsAreThoseOfKubectl(t *testing.T) {
	path := podFile(t, smallPod)
	for _, format := range []string{"json", "yaml", "kyaml"} {
		for _, args := range [][]string{{"dump", "pods"}, {"dump", "pods", "-n", "none"}, {"query", "pods", "pod-0"}} {
			args = append(args, "--db", path, "-o", format)
			got := run(t, args...)
			content, err := yaml.YAMLToJSON(got)
			if err != nil {
				t.Fatal(err)
			}
			obj, _, err := unstructured.UnstructuredJSONScheme.Decode(content, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(format)
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := p.PrintObj(obj, &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), string(got)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", args, diff)
			}
		}
	}
}

// TestDocumentsKeepLineBreaks checks that the last string of an object is the same in a
// document whatever line breaks it ends with.
func TestDocumentsKeepLineBreaks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"a\n", "a\n\n", "a\n\n\n", "\n", "\n\n", " a\n \n"}
	var objects []runtime.Object
	for i, text := range texts {
		w := widget("a", fmt.Sprint("w-", i))
		w.Object["spec"] = map[string]any{"text": text}
		objects = append(objects, w)
	}
	fillScope(t, db, nil, widgets, objects...)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	type document struct{ Spec struct{ Text string } }
	for _, format := range []string{"json", "yaml", "kyaml"} {
		var list struct{ Items []document }
		if err := yaml.Unmarshal(run(t, "dump", "--db", path, "-o", format), &list); err != nil {
			t.Fatal(err)
		}
		for i, want := range texts {
			var one document
			if err := yaml.Unmarshal(run(t, "query", "widgets", fmt.Sprint("w-", i), "--db", path, "-o", format), &one); err != nil {
				t.Fatal(err)
			}
			if got := list.Items[i].Spec.Text; got != want || one.Spec.Text != want {
				t.Errorf("-o %s: %q in a List and %q alone, want %q", format, got, one.Spec.Text, want)
			}
		}
	}
}

// TestJSONPathIsThatOfTheList checks that templates that are applied to one item at a
// time print the same as for the List.
func TestJSONPathIsThatOfTheList(t *testing.T) {
	path := podFile(t, smallPod)
	var list unstructured.UnstructuredList
	if err := json.Unmarshal(run(t, "dump", "pods", "--db", path, "-o", "json", "--show-managed-fields"), &list); err != nil {
		t.Fatal(err)
	}
	for _, template := range []string{
		`{.items[*].metadata.name}`,
		`{ .items[*].spec.containers[*].image }`,
		`{.items[*].metadata.labels.nosuch}`,
		`{.items[*].metadata['name','namespace']}`,
		`{.items[*]..image}`,
		`{.items[*].metadata.labels.app\.kubernetes\.io/name}`,
		`{range .items[*]}{.metadata.name}{"\n"}{range .spec.containers[*]}{.name}{end}{end}`,
		`{range .items[*]}{.metadata.name}{"\t"}{.spec.nodeName}{"\n"}{end}`,
		`{range .items[*]}{.metadata.name}{range .spec.containers[*]} {.name}{end};{end} end`,
		`{range .items[*]}a{end}{range .items[*]}b{end}`,
		`{range .items[?(@.metadata.namespace=="default")]}{.metadata.name} {end}`,
		`{.items[3].metadata.name}{.kind}`,
		`{.items[-1:].metadata.name}`,
	} {
		p, err := printers.NewJSONPathPrinter(template)
		if err != nil {
			t.Fatal(err)
		}
		p.AllowMissingKeys(true)
		var want bytes.Buffer
		if err := p.PrintObj(&list, &want); err != nil {
			t.Fatal(err)
		}
		got := run(t, "dump", "pods", "--db", path, "-o", "jsonpath="+template)
		if diff := cmp.Diff(want.String(), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", template, diff)
		}
	}
}

// TestTableIsAligned checks that a table is aligned although it is written in parts.
func TestTableIsAligned(t *testing.T) {
	path := podFile(t, smallPod)
	for _, format := range []string{"table", "wide"} {
		lines := strings.Split(strings.TrimSpace(string(run(t, "dump", "--db", path, "-o", format))), "\n")
		if len(lines) != pods+1 {
			t.Fatalf("%d lines, want %d", len(lines), pods+1)
		}
		for _, line := range lines[1:] {
			name := strings.Fields(line)[1]
			if got, want := strings.Index(line, name), strings.Index(lines[0], "NAME  "); got != want {
				t.Fatalf("name at %d, not %d:\n%s\n%s", got, want, lines[0], line)
			}
		}
	}
}

func TestClosedPipeIsNoError(t *testing.T) {
	path := podFile(t, smallPod)
	for _, args := range [][]string{
		{"dump", "-o", "json"},
		{"dump", "-o", "yaml"},
		{"dump"},
		{"dump", "-o", "name"},
		{"info"},
		{"dump", "--count"},
		{"version"},
		{"dump", "-o", "custom-columns=N:.metadata.name"},
		{"dump", "-o", "go-template={{range .items}}{{.metadata.name}}{{end}}"},
		{"dump", "-o", "jsonpath={.items[*].metadata.name}"},
		{"query", "--where", "true"},
		{"query", "--group-by", "spec.nodeName"},
		{"indexes"},
		{"verify"},
		{"export"},
		{"completion", "bash"},
		{"help"},
		{"help", "query"},
		{"query", "--help"},
	} {
		r, w := io.Pipe()
		_ = r.CloseWithError(&syscallError{syscall.EPIPE})
		if !slices.Contains([]string{"version", "completion", "help"}, args[0]) {
			args = append(args, "--db", path)
		}
		var errOut bytes.Buffer
		code := cli.MainAt(t.Context(), genericiooptions.IOStreams{Out: w, ErrOut: &errOut}, args, now)
		if code != 0 || errOut.Len() > 0 {
			t.Errorf("%q: exit code %d, %q", args, code, errOut.String())
		}
	}
}

// TestHelpOnFullDisk checks that help that is cut off is an error.
func TestHelpOnFullDisk(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"help", "query"}, {"query", "--help"}, {"--help"}, {"__complete", "query", "--"}} {
		r, w := io.Pipe()
		_ = r.CloseWithError(&syscallError{syscall.ENOSPC})
		var errOut bytes.Buffer
		code := cli.MainAt(t.Context(), genericiooptions.IOStreams{Out: w, ErrOut: &errOut}, args, now)
		if code != 1 || !strings.Contains(errOut.String(), "informctl: write output: ") {
			t.Errorf("%q: exit code %d, %q", args, code, errOut.String())
		}
	}
}

type syscallError struct{ error }

func (e *syscallError) Unwrap() error { return e.error }

// TestKindless checks scopes of the dynamic and the metadata client, which have no kind.
// Their objects have one or are metadata, and names contain the resource instead of the
// kind.
func TestKindless(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kindless := schema.GroupVersionKind{Group: "demo.informctl.dev", Version: "v1"}
	fill(t, db, kindless, "widgets.demo.informctl.dev", store.Unstructured, widget("default", "w-1"))
	fill(t, db, kindless, "gadgets.demo.informctl.dev", store.Metadata,
		&metav1.PartialObjectMetadata{ObjectMeta: objectMeta("default", "g-1", "")})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(run(t, "dump", "-o", "name", "--db", path)), "gadgets.demo.informctl.dev/g-1\nwidgets.demo.informctl.dev/w-1\n"; got != want {
		t.Errorf("names %q, want %q", got, want)
	}
	for resource, kind := range map[string]string{"widgets": `"kind": "Widget"`, "gadgets": `"kind": "PartialObjectMetadata"`} {
		if out := string(run(t, "dump", resource, "-o", "json", "--db", path)); !strings.Contains(out, kind) {
			t.Errorf("%s without %s:\n%s", resource, kind, out)
		}
	}
}

// TestImportIsExact checks that a file that was exported and imported contains the same
// objects for an informer, so that a relist finds no change.
func TestImportIsExact(t *testing.T) {
	dir := t.TempDir()
	path, exported, imported := filepath.Join(dir, "a.db"), filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.db")
	writeFile(t, path)
	if err := os.WriteFile(exported, run(t, "export", "--db", path), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "import", exported, "--db", imported)
	want, got := stored(t, path), stored(t, imported)
	if len(want) != 7 {
		t.Errorf("%d objects, want 7", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("imported (-want +got):\n%s", diff)
	}
}

// stored returns the objects of a file as an informer receives them.
func stored(t *testing.T, path string) map[string]runtime.Object {
	t.Helper()
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	infos, err := db.Scopes()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]runtime.Object{}
	for _, info := range infos {
		if !info.Complete {
			continue
		}
		s, err := db.Open(info.Scope, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for obj, err := range s.All() {
			if err != nil {
				t.Fatal(err)
			}
			m, err := meta.Accessor(obj)
			if err != nil {
				t.Fatal(err)
			}
			out[info.Scope.String()+" "+m.GetNamespace()+"/"+m.GetName()] = obj
		}
	}
	return out
}
