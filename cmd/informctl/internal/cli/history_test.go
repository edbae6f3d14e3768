package cli_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
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

// writeLog fills a scope by a list at resource version 10 and writes each batch by
// itself.
func writeLog(t *testing.T, db *bolt.DB, resource, kind string, objects []runtime.Object, batches ...store.Batch) {
	t.Helper()
	scope := store.Scope{Resource: resource, Kind: corev1.SchemeGroupVersion.WithKind(kind)}
	s, err := db.Open(scope, store.Options{Codec: codec.ForKind(scope.Kind)})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		err = errors.Join(err, list.Add(obj))
	}
	for b, partErr := range list.Parts("10") {
		err = errors.Join(err, partErr, s.Apply(b))
	}
	err = errors.Join(err, list.Close(), s.Flush(t.Context()))
	for _, b := range batches {
		err = errors.Join(err, s.Apply(b), s.Flush(t.Context()))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}
