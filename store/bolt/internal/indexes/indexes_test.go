package indexes_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
)

// TestMemory compares the entries of an index with those of a map, after random changes.
func TestMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m, want := indexes.NewMemory(), map[string][]string{} // key -> values
	all := []string{"u", "v", "w"}
	for range 2000 {
		key := fmt.Sprint(rng.IntN(20))
		var values []string
		for _, v := range all {
			if rng.IntN(2) == 0 {
				values = append(values, v)
			}
		}
		m.Set(key, values)
		if want[key] = values; values == nil {
			delete(want, key)
		}
		some := all[:1+rng.IntN(3)]
		found := m.Find(some)
		slices.Sort(found)
		var keys []string
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if slices.ContainsFunc(some, func(v string) bool { return slices.Contains(want[key], v) }) {
				keys = append(keys, key)
			}
		}
		if !slices.Equal(found, keys) {
			t.Fatalf("values %q: keys %q, want %q", some, found, keys)
		}
	}
	m = indexes.NewMemory()
	m.Set("a", all)
	m.Set("a", nil)
	if got := m.Values(); len(got) > 0 {
		t.Errorf("values of nothing: %q", got)
	}
}

// TestValues checks what becomes of an object for which a function fails.
func TestValues(t *testing.T) {
	failing := func(any) ([]string, error) { return nil, errors.New("no value") }
	x := &indexes.Set{
		Stored:   map[string]index.Index{"namespace": index.Namespace()},
		Volatile: cache.Indexers{"failing": failing},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}}
	if _, _, err := x.Values(pod, nil); err == nil {
		t.Error("no error")
	}
	var failed []error
	stored, volatile, err := x.Values(pod, func(err error) { failed = append(failed, err) })
	if err != nil || len(failed) != 1 || volatile["failing"] != nil {
		t.Errorf("error %v, failed %v, values %v", err, failed, volatile)
	}
	if diff := cmp.Diff(map[string][]string{"namespace": {"n"}}, stored); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if !x.Has("failing") || !x.Has("namespace") || x.Has("other") || len(x.Indexers()) != 2 || x.AreOfNames() {
		t.Errorf("%v", x)
	}
}
