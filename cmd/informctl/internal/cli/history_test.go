package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeHistory writes a file with pods and Secrets that have a log: resource versions 10
// to 15.
func writeHistory(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{Keys: testKeys(t)})
	if err != nil {
		t.Fatal(err)
	}
	phase := func(p *corev1.Pod, rv, manager string, phase corev1.PodPhase) *corev1.Pod {
		p = p.DeepCopy()
		p.ResourceVersion, p.Status.Phase = rv, phase
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", Subresource: "status"})
		return p
	}
	kept := pod("a", "kept", "web")
	moved := phase(kept, "11", "kubelet", corev1.PodRunning)
	moved.Labels = map[string]string{"app": "db", "app=b": kept.Labels["app=b"]}
	writeLog(t, db, "pods", "Pod", []runtime.Object{kept, pod("a", "gone", "web"), pod("b", "gone", "db")},
		store.Batch{RV: "11", Changes: []store.Change{{Object: moved}}},
		store.Batch{RV: "12", Changes: []store.Change{{Key: "a/gone", RV: "12"}}},
		store.Batch{RV: "13", Changes: []store.Change{{Object: phase(pod("b", "new", "web"), "13", "kubectl", corev1.PodPending)}}},
		store.Batch{RV: "14", Changes: []store.Change{{Object: phase(pod("b", "new", "web"), "14", "kubelet", corev1.PodRunning)}}},
		store.Batch{RV: "15", Changes: []store.Change{{Key: "b/gone", RV: "15"}}, CatchUp: true})
	login := &corev1.Secret{ObjectMeta: objectMeta("a", "login", ""), Data: map[string][]byte{"password": []byte("hunter2")}}
	other := login.DeepCopy()
	other.ResourceVersion, other.Data["password"] = "11", []byte("hunter3")
	other.Labels = map[string]string{"changed": "yes"}
	writeLog(t, db, "secrets", "Secret", []runtime.Object{login}, store.Batch{RV: "11", Changes: []store.Change{{Object: other}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeChanges writes a file with the log of a pod whose container was restarted, of
// which a condition was probed, whose image was changed and which was deleted: resource
// versions 10 to 14. Two Jobs were deleted, too, at 11.
func writeChanges(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastProbeTime: metav1.NewTime(now)}
	first := pod("a", "app", "web")
	first.Generation = 1
	first.Status = corev1.PodStatus{
		Conditions:        []corev1.PodCondition{ready},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true}},
	}
	restarted := first.DeepCopy()
	restarted.ResourceVersion = "11"
	restarted.Annotations = map[string]string{"example.com/a": "1"}
	restarted.Status.Conditions[0].Status = corev1.ConditionFalse
	restarted.Status.Conditions[0].Message = "not ready"
	restarted.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", RestartCount: 1, ImageID: "other"}
	probed := restarted.DeepCopy()
	probed.ResourceVersion = "12"
	probed.Status.Conditions[0].LastProbeTime = metav1.NewTime(now.Add(time.Minute))
	updated := probed.DeepCopy()
	updated.ResourceVersion, updated.Generation = "13", 2
	updated.Spec.Containers[0].Image = "image:2"
	writeLog(t, db, "pods", "Pod", []runtime.Object{first},
		store.Batch{RV: "11", Changes: []store.Change{{Object: restarted}}},
		store.Batch{RV: "12", Changes: []store.Change{{Object: probed}}},
		store.Batch{RV: "13", Changes: []store.Change{{Object: updated}}},
		store.Batch{RV: "14", Changes: []store.Change{{Key: "a/app", RV: "14"}}})
	once := &batchv1.Job{ObjectMeta: objectMeta("a", "once", "web")}
	once.Labels[batchv1.ControllerUidLabel] = string(once.UID)
	once.Finalizers = []string{metav1.FinalizerOrphanDependents}
	once.DeletionTimestamp, once.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, new(int64)
	once.Spec.Selector = metav1.SetAsLabelSelector(labels.Set{batchv1.ControllerUidLabel: string(once.UID)})
	once.Spec.Template.Labels = map[string]string{"app": "web", batchv1.ControllerUidLabel: string(once.UID), "controller-uid": string(once.UID)}
	manual := once.DeepCopy()
	manual.Name, manual.Spec.ManualSelector = "manual", new(true)
	manual.Finalizers = append(manual.Finalizers, "example.com/kept")
	writeScopeLog(t, db, store.Scope{Resource: "jobs.batch", Kind: batchv1.SchemeGroupVersion.WithKind("Job")}, []runtime.Object{once, manual},
		store.Batch{RV: "11", Changes: []store.Change{{Key: "a/once", RV: "11"}, {Key: "a/manual", RV: "11"}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeLog fills a scope by a list at resource version 10 and writes each batch by
// itself.
func writeLog(t *testing.T, db *bolt.DB, resource, kind string, objects []runtime.Object, batches ...store.Batch) {
	t.Helper()
	writeScopeLog(t, db, store.Scope{Resource: resource, Kind: corev1.SchemeGroupVersion.WithKind(kind)}, objects, batches...)
}

func writeScopeLog(t *testing.T, db *bolt.DB, scope store.Scope, objects []runtime.Object, batches ...store.Batch) {
	t.Helper()
	s := openScope(t, db, scope)
	load(t, s, "10", objects...)
	for _, b := range batches {
		apply(t, s, b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func openScope(t *testing.T, db *bolt.DB, scope store.Scope) store.Store {
	t.Helper()
	c, err := codec.ForKind(scope.Kind), error(nil)
	switch scope.Form {
	case store.Unstructured:
		c, err = codec.For(&unstructured.Unstructured{})
	case store.Metadata:
		c, err = codec.For(&metav1.PartialObjectMetadata{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(scope, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// load makes a scope complete up to a resource version by a list.
func load(t *testing.T, s store.Store, rv string, objects ...runtime.Object) {
	t.Helper()
	list, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		err = errors.Join(err, list.Add(obj))
	}
	for b, partErr := range list.Parts(rv) {
		err = errors.Join(err, partErr, s.Apply(b))
	}
	if err = errors.Join(err, list.Close(), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// apply writes a batch by itself.
func apply(t *testing.T, s store.Store, b store.Batch) {
	t.Helper()
	if err := errors.Join(s.Apply(b), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// TestHistoryOfShortLived checks that history shows an object that was created and
// deleted inside one commit as both.
func TestHistoryOfShortLived(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	short := pod("a", "short", "web")
	short.ResourceVersion = "11"
	writeLog(t, db, "pods", "Pod", []runtime.Object{pod("a", "kept", "web")},
		store.Batch{RV: "12", Changes: []store.Change{{Key: "a/short", RV: "12", Short: store.Entry{Key: "a/short", Object: short}}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                  "created 11, deleted 12",
		"--deleted":         "deleted 12",
		"-l app=web":        "created 11, deleted 12",
		"-l app=db":         "",
		"short":             "created 11, deleted 12",
		"--namespace other": "",
	} {
		got := say(t.Context(), strings.Fields("history pods -o json --db "+path+" "+args)...)
		var lines []string
		for dec := json.NewDecoder(strings.NewReader(got.Out)); ; {
			var line objectdiff.Line
			if err := dec.Decode(&line); err != nil {
				break
			}
			if line.Name != "short" || line.UID == "" {
				t.Errorf("%q: %+v", args, line)
			}
			lines = append(lines, line.Change+" "+line.ResourceVersion)
		}
		if strings.Join(lines, ", ") != want {
			t.Errorf("%q: %q, want %s; %s", args, lines, want, got.Err)
		}
	}
	if got := say(t.Context(), "restore", "pods", "short", "--db", path); got.Code != 0 || !strings.Contains(got.Out, "\n  name: short\n") {
		t.Errorf("restore: %+v", got)
	}
}

// TestHistoryDocuments checks that the documents of all formats have the same content.
func TestHistoryDocuments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeHistory(t, path)
	documents := func(format, separator string) (all []any) {
		for text := range strings.SplitSeq(strings.TrimSpace(string(run(t, "history", "pods", "--db", path, "-o", format))), separator) {
			var document any
			if err := yaml.Unmarshal([]byte(text), &document); err != nil {
				t.Fatalf("-o %s: %v", format, err)
			}
			if document != nil {
				all = append(all, document)
			}
		}
		return all
	}
	want := documents("json", "\n")
	for _, format := range []string{"yaml", "kyaml"} {
		if diff := cmp.Diff(want, documents(format, "---\n")); diff != "" {
			t.Errorf("-o %s (-json +%s):\n%s", format, format, diff)
		}
	}
}

// TestHistoryFollow checks that history --follow prints what has been, in the order of
// time, and then what is changed in each of several resources, each once.
func TestHistoryFollow(t *testing.T) {
	p := &process{
		path:   filepath.Join(t.TempDir(), "informers.db"),
		server: fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{}),
		nodes:  fakeapi.New(&corev1.Node{}, &corev1.NodeList{}, fakeapi.Options{}),
	}
	p.create(t, pod("a", "first", ""))
	node := func(name string) {
		t.Helper()
		if _, err := p.nodes.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	p.start(t)
	for _, scope := range []string{"pods", "nodes"} {
		for !bytes.Contains(askSocket(t, p.path, "/v1/history?scope="+scope), []byte(`"Time":"2`)) {
			continue // until the list is written, which is where the log begins
		}
	}
	history := func(args ...string) *watching {
		return following(t, append([]string{"history", "pods,nodes", "-o", "name", "--db", p.path}, args...)...)
	}
	past := func(n int) string { // until so many are written
		for {
			w := history()
			var b strings.Builder
			for w.Scan() {
				b.WriteString(w.Text() + "\n")
			}
			<-w.code
			if strings.Count(b.String(), "\n") == n {
				return b.String()
			}
		}
	}
	node("one")
	past(1)
	p.create(t, pod("a", "two", ""))
	want := past(2)
	if want != "node/one\npod/two\n" {
		t.Errorf("history printed %q", want)
	}
	w := history("--follow")
	if got := w.next(t, 2); got != want {
		t.Errorf("with --follow it began with %q, want %q", got, want)
	}
	node("three")
	if got := w.next(t, 1); got != "node/three\n" {
		t.Errorf("then %q", got)
	}
	p.create(t, pod("a", "four", ""))
	if got := w.next(t, 1); got != "pod/four\n" {
		t.Errorf("then %q", got)
	}
	later := history("--follow", "--since", "2000-01-01T00:00:00Z")
	if got := later.next(t, 4); got != past(4) {
		t.Errorf("with --since it began with %q", got)
	}
	newest := history("--follow", "--tail", "1")
	if got := newest.next(t, 1); got != "pod/four\n" {
		t.Errorf("with --tail it began with %q", got)
	}
	w.stop()
	w.ends(t, 0, "")
	later.stop()
	<-later.code
	newest.stop()
	<-newest.code
	p.stop()
}
