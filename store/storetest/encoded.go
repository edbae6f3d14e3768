package storetest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// RunEncoded checks that a change may have the encoded object alone, with its key or
// without. It closes the backend.
func RunEncoded(t *testing.T, db store.Backend) {
	t.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	s, err := db.Open(store.Scope{Resource: "configmaps"}, store.Options{Codec: c})
	must(t, err)
	keys := []string{"a/one", "a/two"}
	for i, key := range keys {
		e, err := s.Encode(configMap(key, "1", "red"))
		must(t, err)
		change := store.Change{Key: e.Key, Raw: e.Raw}
		if i > 0 {
			change.Key = ""
		}
		must(t, s.Apply(store.Batch{Changes: []store.Change{change}, RV: "1"}))
		must(t, s.Flush(t.Context()))
	}
	for _, key := range keys {
		if obj, ok, err := s.Object(key); err != nil || !ok || "a/"+obj.(*corev1.ConfigMap).Name != key { //nolint:forcetypeassert // all are
			t.Errorf("%s: %v, %t, %v", key, obj, ok, err)
		}
	}
	must(t, s.Close())
	must(t, db.Close())
}
