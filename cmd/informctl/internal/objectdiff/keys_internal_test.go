package objectdiff

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
)

// TestMergeKeys checks that the elements of each list of the built-in kinds that has a
// merge key for strategic merge patches are named by it.
func TestMergeKeys(t *testing.T) {
	seen := map[reflect.Type]bool{}
	lists := 0
	var visit func(reflect.Type)
	visit = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] {
			return
		}
		seen[of] = true
		for field := range of.Fields() {
			visit(field.Type)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			key := field.Tag.Get("patchMergeKey")
			if key == "" {
				continue
			}
			lists++
			if !slices.ContainsFunc(append(slices.Clone(mergeKeys[name]), nameKeys), func(keys []string) bool { return slices.Contains(keys, key) }) {
				t.Errorf("%s: elements of %s are not named by %s", of, name, key)
			}
		}
	}
	for _, kind := range scheme.Scheme.AllKnownTypes() {
		visit(kind)
	}
	if lists < 30 {
		t.Errorf("%d lists have merge keys", lists)
	}
}
