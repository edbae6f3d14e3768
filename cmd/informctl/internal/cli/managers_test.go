package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestManagers checks that history names the managers that have made a change, and not
// those from which another one has taken a field.
func TestManagers(t *testing.T) {
	entry := func(manager, fields string, second int) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, Operation: "Apply", FieldsV1: metav1.NewFieldsV1(fields)}
		if second > 0 {
			e.Time = &metav1.Time{Time: time.Unix(int64(second), 0)}
		}
		return e
	}
	const one, two = `{"f:spec":{"f:a":{}}}`, `{"f:spec":{"f:a":{},"f:b":{}}}`
	for name, c := range map[string]struct {
		before, after []metav1.ManagedFieldsEntry
		want          string
	}{
		"takes a field": {
			[]metav1.ManagedFieldsEntry{entry("loses", two, 1), entry("takes", one, 1)},
			[]metav1.ManagedFieldsEntry{entry("loses", one, 1), entry("takes", one, 2)},
			"takes",
		},
		"is new and takes a field": {
			[]metav1.ManagedFieldsEntry{entry("loses", two, 1)},
			[]metav1.ManagedFieldsEntry{entry("loses", one, 1), entry("takes", one, 1)},
			"takes",
		},
		"removes its own field":         {[]metav1.ManagedFieldsEntry{entry("a", two, 1)}, []metav1.ManagedFieldsEntry{entry("a", one, 2)}, "a"},
		"adds within the same second":   {[]metav1.ManagedFieldsEntry{entry("a", one, 1)}, []metav1.ManagedFieldsEntry{entry("a", two, 1)}, "a"},
		"loses a field and has no time": {[]metav1.ManagedFieldsEntry{entry("a", two, 0)}, []metav1.ManagedFieldsEntry{entry("a", one, 0)}, "<none>"},
		"has left":                      {[]metav1.ManagedFieldsEntry{entry("a", two, 1), entry("b", one, 1)}, []metav1.ManagedFieldsEntry{entry("b", one, 2)}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, err := bolt.Open(path, bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			before, after := pod("a", "web", "x"), pod("a", "web", "y")
			before.ManagedFields, after.ManagedFields, after.ResourceVersion = c.before, c.after, "11"
			writeLog(t, db, "pods", "Pod", []runtime.Object{before}, store.Batch{RV: "11", Changes: []store.Change{{Object: after}}})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			got := say(t.Context(), "history", "pods", "--no-headers", "--db", path)
			if !strings.Contains(got.Out, "a/web   "+c.want+" ") {
				t.Errorf("want %s:\n%s%s", c.want, got.Out, got.Err)
			}
		})
	}
}
