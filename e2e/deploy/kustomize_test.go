package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// applyFolders applies each folder as kubectl apply -k does, in its order.
func (w *world) applyFolders(t *testing.T) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	folders := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		folders++
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(directory, e.Name()))
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		for _, r := range built.Resources() {
			document, err := r.AsYAML()
			u := &unstructured.Unstructured{}
			if err == nil {
				err = yaml.UnmarshalStrict(document, &u.Object)
			}
			if err != nil {
				t.Fatalf("%s: %v", e.Name(), err)
			}
			w.apply(e.Name(), u)
		}
	}
	if folders != 7 {
		t.Errorf("%d folders, want a base, five uses and the monitoring", folders)
	}
}
