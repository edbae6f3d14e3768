package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	bbolt "go.etcd.io/bbolt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

func TestScripts(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "informers.db")
	writeFile(t, whole)
	more := filepath.Join(dir, "more.db")
	writeMore(t, more)
	audited := filepath.Join(dir, "audited.db")
	writeAudited(t, audited, auditCluster)
	foreign := filepath.Join(dir, "another-cluster.db")
	writeAudited(t, foreign, "kube-system/another")
	both := filepath.Join(dir, "clusters.db")
	writeAudited(t, both, auditCluster)
	writeAudited(t, both, "kube-system/another")
	logged := filepath.Join(dir, "log.db")
	writeHistory(t, logged)
	changed := filepath.Join(dir, "changes.db")
	writeChanges(t, changed)
	consumed := filepath.Join(dir, "consumers.db")
	writeConsumers(t, consumed)
	scopes := filepath.Join(dir, "scopes.db")
	writeScopes(t, scopes)
	tables := filepath.Join(dir, "tables.db")
	writeTables(t, tables)
	cluster := filepath.Join(dir, "cluster.db")
	writeCluster(t, cluster)
	owners := filepath.Join(dir, "owners.db")
	writeOwners(t, owners)
	removed := filepath.Join(dir, "removed.db")
	writeRemoved(t, removed)
	flaps := filepath.Join(dir, "flaps.db")
	writeFlaps(t, flaps)
	server := auditServer(t)
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", "script"),
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("INFORMCTL_DB", "")
			return errors.Join(
				setKeys(e),
				copyFile(whole, filepath.Join(e.WorkDir, "informers.db")),
				copyFile(more, filepath.Join(e.WorkDir, "more.db")),
				copyFile(audited, filepath.Join(e.WorkDir, "audited.db")),
				copyFile(both, filepath.Join(e.WorkDir, "clusters.db")),
				copyFile(logged, filepath.Join(e.WorkDir, "log.db")),
				copyFile(changed, filepath.Join(e.WorkDir, "changes.db")),
				copyFile(consumed, filepath.Join(e.WorkDir, "consumers.db")),
				copyFile(scopes, filepath.Join(e.WorkDir, "scopes.db")),
				copyFile(tables, filepath.Join(e.WorkDir, "tables.db")),
				copyFile(cluster, filepath.Join(e.WorkDir, "cluster.db")),
				copyFile(owners, filepath.Join(e.WorkDir, "owners.db")),
				copyFile(removed, filepath.Join(e.WorkDir, "removed.db")),
				copyFile(flaps, filepath.Join(e.WorkDir, "flaps.db")),
				copyFile(foreign, filepath.Join(e.WorkDir, "another-cluster.db")),
				os.WriteFile(filepath.Join(e.WorkDir, "kubeconfig"), []byte(kubeconfig(server)), 0o600))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"truncate": truncate, "lock": lock, "exits": exits, "format": format, "damage": damage, "epoch": epoch,
			"alike": alike(t),
		},
	})
}

// setKeys passes the key file of writeMore's Secrets to the commands.
func setKeys(e *testscript.Env) error {
	path := filepath.Join(e.WorkDir, "keys")
	e.Setenv("INFORMCTL_KEY_FILE", path)
	return os.WriteFile(path, []byte(testKey), 0o600)
}

// testKeys returns a KeyProvider with testKey.
func testKeys(t testing.TB) codec.KeyProvider {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(testKey), 0o600); err != nil {
		t.Fatal(err)
	}
	return codec.KeyFile(path)
}

// testKey encrypts the Secrets of writeMore.
var testKey = strings.Repeat("1d", 32) + "\n"

// exits implements "exits CODE informctl ARGS...". It runs a command that must end with
// CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit interface{ ExitCode() int }
	code := "0"
	if errors.As(err, &exit) {
		code = strconv.Itoa(exit.ExitCode())
	}
	if code != args[0] {
		ts.Fatalf("exit code %s (%v), want %s", code, err, args[0])
	}
}

// alike returns the command "alike CODE informctl ARGS...". It runs a command on the file
// that INFORMCTL_DB names, and again while a live process holds it. Both must print the
// same and end with CODE.
func alike(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		var printed [2][]string
		for i := range printed {
			if i == 1 {
				_, stop := hold(t, ts.MkAbs(ts.Getenv("INFORMCTL_DB")))
				defer stop()
			}
			exits(ts, neg, args)
			printed[i] = []string{ts.ReadFile("stdout"), ts.ReadFile("stderr")}
		}
		if diff := cmp.Diff(printed[0], printed[1]); diff != "" {
			ts.Fatalf("stdout and stderr (-closed +live):\n%s", diff)
		}
	}
}

// truncate implements "truncate FILE". It keeps only the first pages of a file.
func truncate(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.Truncate(ts.MkAbs(args[0]), 5*4096))
}

// format implements "format FILE N". It marks a file as of another format.
func format(ts *testscript.TestScript, _ bool, args []string) {
	inMeta(ts, args[0], func(meta *bbolt.Bucket) error {
		return meta.Put([]byte("format"), []byte("informctl cache format "+args[1]))
	})
}

// epoch implements "epoch FILE NAME". It records NAME as the epoch of the last process
// that opened the file.
func epoch(ts *testscript.TestScript, _ bool, args []string) {
	inMeta(ts, args[0], func(meta *bbolt.Bucket) error { return meta.Put([]byte("epoch"), []byte(args[1])) })
}

func inMeta(ts *testscript.TestScript, file string, change func(meta *bbolt.Bucket) error) {
	db, err := bbolt.Open(ts.MkAbs(file), 0o600, nil)
	ts.Check(err)
	ts.Check(db.Update(func(tx *bbolt.Tx) error { return change(tx.Bucket([]byte("meta"))) }))
	ts.Check(db.Close())
}

// damage implements "damage FILE TEXT". It changes the last byte of the last occurrence
// of the text in a file.
func damage(ts *testscript.TestScript, _ bool, args []string) {
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	at := bytes.LastIndex(data, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("%s is not in %s", args[1], args[0])
	}
	data[at+len(args[1])-1] ^= 0x20
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}

// lock implements "lock FILE". It holds a file until the script ends.
func lock(ts *testscript.TestScript, _ bool, args []string) {
	db, err := bolt.Open(ts.MkAbs(args[0]), bolt.Options{})
	ts.Check(err)
	ts.Defer(func() { _ = db.Close() })
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// writeFile makes a file in which keys and namespaces have different orders. In one of
// its scopes the first list did not complete.
func writeFile(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed,
		pod("a-b", "web-1", "web"), pod("a", "web-1", "web"), pod("a", "web-2", "web"), pod("default", "db-1", "db"))
	fill(t, db, appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments.apps", store.Typed,
		&appsv1.Deployment{ObjectMeta: objectMeta("default", "web", "web")})
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Node"), "nodes", store.Typed,
		&corev1.Node{ObjectMeta: objectMeta("", "node-1", "")})
	fill(t, db, schema.GroupVersionKind{Group: "demo.informctl.dev", Version: "v1", Kind: "Widget"},
		"widgets.demo.informctl.dev", store.Unstructured, widget("default", "w-1"))
	fill(t, db, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", store.Typed)
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Service"), "services", store.Typed)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeMore makes a file of jobs that differ in every property that query can select,
// with other indexes, and of Secrets in both forms.
func writeMore(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{Keys: testKeys(t)})
	if err != nil {
		t.Fatal(err)
	}
	phase, err := index.Field("status.phase")
	if err != nil {
		t.Fatal(err)
	}
	jobs := []runtime.Object{
		job("a", "batch-1", "node-1", corev1.PodRunning, 9, 10),
		job("a", "batch-2", "node-2", corev1.PodFailed, 10, 2),
		job("b", "batch-3", "node-1", corev1.PodRunning, 2, 1),
		job("b", "batch-4", "", corev1.PodPending, 0, 5),
	}
	fillWith(t, db, []index.Index{index.Namespace(), index.NodeName(), phase}, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, jobs...)
	secretKind := corev1.SchemeGroupVersion.WithKind("Secret")
	secret := &corev1.Secret{ObjectMeta: objectMeta("a", "login", ""), Data: map[string][]byte{"password": []byte("hunter2")}}
	secret.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"password":"aHVudGVyMg=="}}`}
	password, err := index.Field("data.password")
	if err != nil {
		t.Fatal(err)
	}
	fillWith(t, db, []index.Index{index.Namespace(), index.Label("app"), index.Label("app=b"), password}, secretKind, "secrets", store.Typed, secret)
	fill(t, db, secretKind, "secrets", store.Unstructured, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "b", "name": "token"},
		"stringData": map[string]any{"token": "hunter2"},
	}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// job returns a pod that was last changed that many days ago.
func job(namespace, name, node string, phase corev1.PodPhase, restarts int32, days int) *corev1.Pod {
	p := pod(namespace, name, "job")
	p.Spec.NodeName, p.Status.Phase = node, phase
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(restarts)<<20, resource.BinarySI)}
	if restarts > 0 {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: restarts}}
	}
	changed := metav1.NewTime(now.AddDate(0, 0, -days))
	p.ManagedFields[0].Time = &changed
	return p
}

func fill(t *testing.T, db *bolt.DB, kind schema.GroupVersionKind, resource string, form store.Form, objects ...runtime.Object) {
	t.Helper()
	fillWith(t, db, []index.Index{index.Namespace(), index.Label("app"), index.Label("app=b")}, kind, resource, form, objects...)
}

func fillWith(t *testing.T, db *bolt.DB, indexes []index.Index, kind schema.GroupVersionKind, resource string, form store.Form, objects ...runtime.Object) {
	t.Helper()
	fillScope(t, db, indexes, store.Scope{Resource: resource, Kind: kind, Form: form}, objects...)
}

func fillScope(t *testing.T, db *bolt.DB, indexes []index.Index, scope store.Scope, objects ...runtime.Object) {
	t.Helper()
	fillScopeAt(t, db, indexes, scope, "1000", objects...)
}

// fillScopeAt makes a scope that is complete up to a resource version.
func fillScopeAt(t *testing.T, db *bolt.DB, indexes []index.Index, scope store.Scope, rv string, objects ...runtime.Object) {
	t.Helper()
	c, err := codec.ForKind(scope.Kind), error(nil)
	switch scope.Form {
	case store.Metadata:
		c, err = codec.For(&metav1.PartialObjectMetadata{})
	case store.Unstructured:
		c, err = codec.For(&unstructured.Unstructured{})
	}
	if err != nil {
		t.Fatal(err)
	}
	fillScopeBy(t, db, c, indexes, scope, rv, objects...)
}

// fillScopeBy is fillScopeAt with another codec than that of the kind.
func fillScopeBy(t *testing.T, db *bolt.DB, c codec.Codec, indexes []index.Index, scope store.Scope, rv string, objects ...runtime.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := db.Open(scope, store.Options{Codec: c, Indexes: indexes})
	if err != nil {
		t.Fatal(err)
	}
	if scope.Resource == "services" && len(objects) == 0 {
		return // as if the process had died in its first list
	}
	list, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		if err := list.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	for batch, err := range list.Parts(rv) {
		if err == nil {
			err = s.Apply(batch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(list.Close(), s.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
}

func objectMeta(namespace, name, app string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: "7", UID: "f4a1",
		CreationTimestamp: metav1.NewTime(now.Add(-10 * 24 * time.Hour)),
		ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", APIVersion: "v1"}},
	}
	if app != "" {
		m.Labels = map[string]string{"app": app, "app=b": "x=y"}
	}
	return m
}

func pod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: objectMeta(namespace, name, app),
		Spec: corev1.PodSpec{
			NodeName:   "node-1",
			Containers: []corev1.Container{{Name: "main", Image: "image:1", Command: []string{"sh", "-c", "echo one\n\n  echo \"two\"\n"}}},
		},
	}
}

func widget(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "demo.informctl.dev/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
		"spec":     map[string]any{"size": int64(1234567), "ratio": 0.5},
	}}
}
