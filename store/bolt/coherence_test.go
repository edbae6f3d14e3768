package bolt_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestCoherence reads in every way while versions increase. No reader may see an object
// that is older than one that it has seen, or that the writer had written before the read
// began. Keys that change together must be equal in one answer.
func TestCoherence(t *testing.T) {
	for name, decoded := range map[string]int64{"default cache": 0, "cache of almost nothing": 1, "unbounded cache": -1} {
		t.Run(name, func(t *testing.T) {
			opts := scriptOptions()
			opts.DecodedBytes = decoded
			opts.Indexers = cache.Indexers{"memory": func(any) ([]string, error) { return []string{"x"}, nil }}
			db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Millisecond})
			must(t, err)
			defer func() { must(t, db.Close()) }()
			s, err := db.Open(scriptScope(), opts)
			must(t, err)
			coherence(t, s)
		})
	}
}

var twins = []string{"ns0/left", "ns0/right"}

func twinBatch(n int) store.Batch {
	b := store.Batch{RV: strconv.Itoa(n)}
	for _, key := range twins {
		cm := configMap(key, strconv.Itoa(n), "").(*corev1.ConfigMap)
		cm.Labels = map[string]string{"app": "twin"}
		b.Changes = append(b.Changes, store.Change{Object: cm})
	}
	return b
}

func coherence(t *testing.T, s store.Store) {
	const last = 1500 / fewer
	must(t, s.Apply(twinBatch(1)))
	var applied atomic.Int64
	applied.Store(1)
	group := func(read func() ([]any, error)) func() (int, error) {
		return func() (int, error) {
			found, err := read()
			if err != nil || len(found) != 2 {
				return 0, fmt.Errorf("%d objects, want 2 (%w)", len(found), err)
			}
			left, right := versionOf(found[0]), versionOf(found[1])
			if left != right {
				return 0, fmt.Errorf("of one moment are %d and %d", left, right)
			}
			return left, nil
		}
	}
	one := func(i int) (int, error) {
		obj, exists, err := store.Indexer(s).GetByKey(twins[i])
		if err != nil || !exists {
			return 0, fmt.Errorf("not found (%w)", err)
		}
		return versionOf(obj), nil
	}
	var g errgroup.Group
	for name, fn := range map[string]func() (int, error){
		"Get left": func() (int, error) { return one(0) }, "Get right": func() (int, error) { return one(1) },
		"Get again":     func() (int, error) { return one(0) },
		"List":          group(func() ([]any, error) { x := store.Indexer(s); return x.List(), x.Err() }),
		"ByIndex":       group(func() ([]any, error) { return store.Indexer(s).ByIndex("namespace", "ns0") }),
		"ByIndex, heap": group(func() ([]any, error) { return store.Indexer(s).ByIndex("memory", "x") }),
		"Select":        group(func() ([]any, error) { return selectAll(s) }),
		"Entry":         func() (int, error) { return entryVersion(s) },
	} {
		g.Go(func() error {
			for seen := 0; seen < last; {
				atLeast := max(seen, int(applied.Load()))
				n, err := fn()
				if err == nil && n < atLeast {
					err = fmt.Errorf("version %d after %d", n, atLeast)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				seen = n
			}
			return nil
		})
	}
	for n := 2; n <= last; n++ {
		must(t, s.Apply(twinBatch(n)))
		applied.Store(int64(n))
	}
	must(t, g.Wait())
}

func versionOf(obj any) int {
	n, _ := strconv.Atoi(obj.(*corev1.ConfigMap).ResourceVersion)
	return n
}

func selectAll(s store.Store) ([]any, error) {
	entries, err := s.Select(store.Query{Namespace: "ns0", Selector: labels.SelectorFromSet(labels.Set{"app": "twin"})})
	if err != nil {
		return nil, err
	}
	decoded, err := store.DecodeAll[*corev1.ConfigMap](s, entries)
	var objects []any
	for _, cm := range decoded {
		objects = append(objects, cm)
	}
	return objects, err
}

func entryVersion(s store.Store) (int, error) {
	e, exists, err := s.Entry(twins[0])
	if err != nil || !exists {
		return 0, fmt.Errorf("not found (%w)", err)
	}
	obj, err := s.Decode(e)
	if err != nil {
		return 0, err
	}
	return versionOf(obj), nil
}
