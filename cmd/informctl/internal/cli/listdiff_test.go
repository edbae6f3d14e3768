package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestInsertedElement checks that history, diff --since and diff --live print one change
// for an element that was inserted in front of others.
func TestInsertedElement(t *testing.T) {
	withEnv := func(rv string, names ...string) *corev1.Pod {
		p := pod("a", "web", "web")
		p.ResourceVersion = rv
		for _, name := range names {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: "v"})
		}
		return p
	}
	before, after := withEnv("9", "A", "B", "C"), withEnv("11", "Z", "A", "B", "C")
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeLog(t, db, "pods", "Pod", []runtime.Object{before}, store.Batch{RV: "11", Changes: []store.Change{{Object: after}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	kubeconfig, _ := podServer(t, "here", after)
	held := clusterFile(t, "kube-system/here", store.Typed, before)
	const want = `spec.containers[name=main].env[name=Z]: (none) -> {"name":"Z","value":"v"}`
	for _, args := range [][]string{
		{"history", "pods", "-o", "wide", "--no-headers", "--db", path},
		{"diff", path, "--since", "10", "pods"},
		{"diff", held, "--live", "--kubeconfig", kubeconfig},
	} {
		got := say(t.Context(), args...)
		if !strings.Contains(got.Out, want) || strings.Count(got.Out, "env[") != 1 {
			t.Errorf("%s prints\n%s%s", args[0], got.Out, got.Err)
		}
	}
}
