package bolt_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var benchPods = flag.Int("bolt.pods", 5000, "how many pods benchmarks store")

// filled makes a file of pods and returns their keys.
func filled(b *testing.B) (path string, keys []string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "informers.db")
	db, s := openPods(b, path, bolt.Options{})
	listPods(b, s, *benchPods, 1)
	keys = store.Indexer(s).ListKeys()
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	return path, keys
}

func reopened(b *testing.B, path string, opts store.Options) (*bolt.DB, store.Store) {
	b.Helper()
	c, err := codec.For(testobjects.Pod(0, 1))
	if err != nil {
		b.Fatal(err)
	}
	opts.Codec = c
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := db.Open(podScope, opts)
	if err != nil {
		b.Fatal(err)
	}
	return db, s
}

// BenchmarkOpen measures the open that delays a warm start: every page and entry is
// checked.
func BenchmarkOpen(b *testing.B) {
	path, _ := filled(b)
	for b.Loop() {
		db, _ := reopened(b, path, store.Options{})
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads pods in the ways in which a controller does, with the default
// budget for decoded objects and with everything decoded. client-go's indexer always
// holds everything decoded.
func BenchmarkRead(b *testing.B) {
	path, keys := filled(b)
	namespaces := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	stores := map[string]func(b *testing.B) cache.Indexer{
		"client-go": func(*testing.B) cache.Indexer {
			s := cache.NewIndexer(cache.MetaNamespaceKeyFunc, namespaces)
			for i := range *benchPods {
				_ = s.Add(testobjects.Pod(i, 1))
			}
			return s
		},
	}
	for name, budget := range map[string]int64{"bolt": 0, "bolt-decoded": -1, "bolt-cold": 1} {
		stores[name] = func(b *testing.B) cache.Indexer {
			db, s := reopened(b, path, store.Options{DecodedBytes: budget, Indexes: []index.Index{index.Namespace()}})
			b.Cleanup(func() { _ = db.Close() })
			return store.Indexer(s)
		}
	}
	for _, name := range []string{"client-go", "bolt-decoded", "bolt", "bolt-cold"} {
		b.Run(name, func(b *testing.B) { benchmarkReads(b, stores[name](b), keys) })
	}
}

func benchmarkReads(b *testing.B, s cache.Indexer, keys []string) {
	s.List() // fills the cache of decoded objects
	b.Run("Get", func(b *testing.B) {
		i := 0
		for b.Loop() {
			if _, ok, err := s.GetByKey(keys[(i*7919)%len(keys)]); !ok || err != nil {
				b.Fatal(ok, err)
			}
			i++
		}
	})
	b.Run("GetOne", func(b *testing.B) {
		for b.Loop() {
			if _, ok, err := s.GetByKey(keys[0]); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("List", func(b *testing.B) {
		for b.Loop() {
			if n := len(s.List()); n != len(keys) {
				b.Fatal(n)
			}
		}
	})
	if persistent, ok := s.(store.Store); ok {
		// Select decodes nothing here. It is one read transaction, the longest one.
		b.Run("Transaction", func(b *testing.B) {
			for b.Loop() {
				if entries, err := persistent.Select(store.Query{}); err != nil || len(entries) != len(keys) {
					b.Fatal(len(entries), err)
				}
			}
		})
	}
	b.Run("IndexKeys", func(b *testing.B) {
		namespace, _, err := cache.SplitMetaNamespaceKey(keys[0])
		n := 0
		for b.Loop() && err == nil {
			var found []string
			found, err = s.IndexKeys(cache.NamespaceIndex, namespace)
			n = len(found)
		}
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n), "keys")
	})
}

// BenchmarkApply applies batches of 100 changes to 5,000 pods, as a watch delivers them,
// and reports the bytes written.
func BenchmarkApply(b *testing.B) {
	path, _ := filled(b)
	db, s := reopened(b, path, store.Options{Indexes: []index.Index{index.Namespace()}})
	defer func() { _ = db.Close() }()
	n := 0
	for b.Loop() {
		batch := store.Batch{RV: fmt.Sprint(2000 + n)}
		for i := range 100 {
			pod := testobjects.Pod((n*100+i)%*benchPods, 1)
			pod.Annotations = map[string]string{"n": fmt.Sprint(n)}
			batch.Changes = append(batch.Changes, store.Change{Object: pod})
		}
		if err := s.Apply(batch); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkEncrypt measures the cost of encryption per object: a read from the file, a
// change until it is on disk, and the size in the file.
func BenchmarkEncrypt(b *testing.B) {
	for _, test := range []struct {
		name string
		opts bolt.Options
	}{
		{"dictionary", bolt.Options{}},
		{"zstd", bolt.Options{Compression: bolt.Zstd}},
		{"encrypted", allWith(theKey)},
	} {
		path := filepath.Join(b.TempDir(), "informers.db")
		db, s := openPods(b, path, test.opts)
		b.Cleanup(func() { _ = db.Close() })
		listPods(b, s, *benchPods, 1)
		keys := store.Indexer(s).ListKeys()
		b.Run(test.name+"/Entry", func(b *testing.B) { benchmarkEntries(b, db, s, keys) })
		b.Run(test.name+"/Select", func(b *testing.B) {
			for b.Loop() {
				if entries, err := s.Select(store.Query{Limit: 256}); err != nil || len(entries) != 256 {
					b.Fatal(len(entries), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(256*b.N), "ns/object")
		})
		b.Run(test.name+"/Write", func(b *testing.B) { benchmarkWrites(b, s) })
	}
}

// benchmarkEntries reads and decodes objects that are not in the cache.
func benchmarkEntries(b *testing.B, db *bolt.DB, s store.Store, keys []string) {
	i := 0
	for b.Loop() {
		e, ok, err := s.Entry(keys[(i*7919)%len(keys)])
		if err == nil && ok {
			_, err = s.Decode(store.Entry{Key: e.Key, Raw: e.Raw, Object: e.Object})
		}
		if !ok || err != nil {
			b.Fatal(ok, err)
		}
		i++
	}
	infos, err := db.Scopes()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(infos[0].Bytes)/float64(infos[0].Objects), "file-B/object")
}

// benchmarkWrites writes changes of 1,000 objects and waits until they are on disk.
func benchmarkWrites(b *testing.B, s store.Store) {
	n := 0
	for b.Loop() {
		batch := store.Batch{RV: fmt.Sprint(2000 + n)}
		for i := range 1000 {
			pod := testobjects.Pod((n*1000+i)%*benchPods, 1)
			pod.Annotations = map[string]string{"n": fmt.Sprint(n)}
			batch.Changes = append(batch.Changes, store.Change{Object: pod})
		}
		if err := s.Apply(batch); err != nil {
			b.Fatal(err)
		}
		if err := s.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(1000*b.N), "ns/object")
}
