package objectdiff_test

import (
	"testing"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
)

// TestPaths checks which fields are at, below and above a path.
func TestPaths(t *testing.T) {
	const image = "spec.containers[name=app].image"
	for _, tt := range []struct {
		path, field string
		has, meets  bool
	}{
		{"spec.replicas", "spec.replicas", true, true},
		{".spec", "spec.replicas", true, true},
		{" {.spec.replicas} ", "spec.replicas", true, true},
		{"$.spec", "spec.replicas", true, true},
		{"spec.replicas", "spec", false, true},
		{"spec.replicas", "spec.replicasOfOld", false, false},
		{"spec.containers", image, true, true},
		{"spec.containers.image", image, true, true},
		{"spec.containers[*].image", image, true, true},
		{"spec.containers[name=app].image", image, true, true},
		{"spec.containers[name=db].image", image, false, false},
		{"spec.containers[name=db].image", "spec.containers[name=app]", false, false},
		{"spec.containers[name=db].image", "spec.containers[*]", false, true},
		{"status.conditions[type=Ready]", "status.conditions[type=Other]", false, false},
		{"spec.containers.image", "spec.containers[name=app]", false, true},
		{"spec.containers.image", "spec.containers[*]", false, true},
		{"spec.containers[name=app]", `spec.containers[name="a]b"].image`, false, false},
		{"spec.ports[port=80,protocol=TCP]", "spec.ports[port=80,protocol=TCP].nodePort", true, true},
		{`metadata.annotations["example.com/a"]`, `metadata.annotations["example.com/a"]`, true, true},
		{`metadata.annotations["example.com/a"]`, `metadata.annotations["example.com/b"]`, false, false},
		{"metadata.labels.app", `metadata.labels["app.kubernetes.io/name"]`, false, false},
		{`metadata.labels["app"]`, "metadata.labels.app", true, true},
		{"metadata.labels['app']", "metadata.labels.app", true, true},
		{"metadata.annotations['example.com/a']", `metadata.annotations["example.com/a"]`, true, true},
		{"metadata.labels.pod-template-hash", `metadata.labels["pod-template-hash"]`, true, true},
		{"spec.some-field.x", `spec["some-field"].x`, true, true},
		{`data["a\"b"]`, `data["a\"b"]`, true, true},
	} {
		paths, err := objectdiff.ParsePaths([]string{tt.path})
		if err != nil || len(paths) != 1 {
			t.Errorf("%s: %v, %v", tt.path, paths, err)
			continue
		}
		if has, meets := paths[0].Has(tt.field), paths[0].Meets(tt.field); has != tt.has || meets != tt.meets {
			t.Errorf("%s has %s: %t, and meets it: %t; want %t, %t", tt.path, tt.field, has, meets, tt.has, tt.meets)
		}
	}
	paths, err := objectdiff.ParsePaths([]string{`status , spec.ports[port=80,protocol=TCP]`, `metadata.annotations["a,b"]`})
	if err != nil || len(paths) != 3 {
		t.Errorf("%q, %v", paths, err)
	}
	for _, text := range []string{"", ".", "spec.", "spec..a", "spec,", ",spec", "spec[", "spec[]", "spec replicas", "{.a},{.b}", "{.a", "a$", `a[?(@.b=="c")].d`, `a.b\.c`, `a["b]`} {
		if paths, err := objectdiff.ParsePaths([]string{text}); err == nil {
			t.Errorf("%q is %q", text, paths)
		}
	}
}
