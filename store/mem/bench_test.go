package mem_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// benchObjects is the size of the measured scope, in 100 namespaces.
const benchObjects = 50_000

func benchObject(i int, rv string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprintf("ns-%02d", i%100), Name: fmt.Sprintf("name-%06d", i), ResourceVersion: rv,
		Labels: map[string]string{"app": fmt.Sprint(i % 1000)},
	}}
}

// indexersUnderTest returns the store of this backend and client-go's, both full.
func indexersUnderTest(b *testing.B) map[string]cache.Indexer {
	b.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := mem.New().Open(store.Scope{Resource: "configmaps"}, store.Options{
		Codec: c, Indexes: []index.Index{index.Namespace(), index.Label("app")},
	})
	if err != nil {
		b.Fatal(err)
	}
	stores := map[string]cache.Indexer{
		"mem": store.Indexer(s),
		"clientgo": cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "label:app": index.Label("app").Func,
		}),
	}
	list := make([]any, benchObjects)
	for i := range list {
		list[i] = benchObject(i, "1")
	}
	for _, ix := range stores {
		if err := ix.Replace(list, "1"); err != nil {
			b.Fatal(err)
		}
	}
	return stores
}

func eachIndexer(b *testing.B, body func(b *testing.B, ix cache.Indexer)) {
	stores := indexersUnderTest(b)
	for _, name := range []string{"clientgo", "mem"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			body(b, stores[name])
		})
	}
}

func BenchmarkGet(b *testing.B) {
	eachIndexer(b, func(b *testing.B, ix cache.Indexer) {
		for i := 0; b.Loop(); i++ {
			if _, ok, err := ix.GetByKey("ns-07/name-000007"); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}

func BenchmarkList(b *testing.B) {
	eachIndexer(b, func(b *testing.B, ix cache.Indexer) {
		for b.Loop() {
			if got := len(ix.List()); got != benchObjects {
				b.Fatal(got)
			}
		}
	})
}

func BenchmarkByIndex(b *testing.B) {
	eachIndexer(b, func(b *testing.B, ix cache.Indexer) {
		for b.Loop() {
			if got, err := ix.ByIndex(cache.NamespaceIndex, "ns-07"); len(got) != benchObjects/100 || err != nil {
				b.Fatal(len(got), err)
			}
		}
	})
}

// BenchmarkUpdate changes one object at a time.
func BenchmarkUpdate(b *testing.B) {
	object := benchObject(7, "2")
	eachIndexer(b, func(b *testing.B, ix cache.Indexer) {
		for b.Loop() {
			if err := ix.Update(object); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkApply changes 1,000 objects spread over the scope, prepared before as an
// informer does; for client-go these are 1,000 calls. ns/op is the time of the batch.
func BenchmarkApply(b *testing.B) {
	batch := store.Batch{RV: "2"}
	for i := range 1000 {
		batch.Changes = append(batch.Changes, store.Change{Object: benchObject(i*(benchObjects/1000), "2")})
	}
	eachIndexer(b, func(b *testing.B, ix cache.Indexer) {
		s, ok := ix.(store.Store)
		if ok {
			if err := s.Prepare(&batch); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			if ok {
				if err := s.Apply(batch); err != nil {
					b.Fatal(err)
				}
				continue
			}
			for _, c := range batch.Changes {
				if err := ix.Update(c.Object); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
