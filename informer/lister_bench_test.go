package informer_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store/bolt"
)

// These benchmarks follow client-go's BenchmarkLister_Match_* and
// BenchmarkSharedIndexInformer (k8s.io/client-go/tools/cache), with realistic pods and
// with client-go's informer in the same run. ListAll is client-go's ListAllByNamespace on
// the informer's indexer; Lister is an informer.Lister on the same informer.

// kind is one way to store pods.
type kind struct {
	name string
	ours bool
	disk bool
	opts informer.Options
}

var kinds = []kind{
	{name: "client-go"},
	{name: "mem", ours: true},
	{name: "bolt", ours: true, disk: true}, // 64 MiB of decoded objects
	{name: "bolt-everything-decoded", ours: true, disk: true, opts: informer.Options{DecodedBytes: -1}},
	{name: "bolt-label-index", ours: true, disk: true, opts: informer.Options{Indexes: []index.Index{index.Label("match")}}},
}

// reader is one way to read pods.
type reader struct {
	name string
	inf  cache.SharedIndexInformer
	list func(namespace string, selector labels.Selector) (found int, err error)
	get  func(namespace, name string) (found bool, err error)
}

// benchServer returns a server of n pods, of which 100 have the label match.
func benchServer(b *testing.B, n int) *fakeapi.Server {
	b.Helper()
	server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
	for i := range n {
		pod := testobjects.Pod(i, 1)
		if i%(n/100) == 0 {
			pod.Labels["match"] = "true"
		}
		if _, err := server.Create(pod); err != nil {
			b.Fatal(err)
		}
	}
	return server
}

// start runs an informer until the benchmark ends, and returns its readers.
func (k kind) start(b *testing.B, server *fakeapi.Server) []reader {
	b.Helper()
	namespaces := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	var readers []reader
	if k.ours {
		if k.disk {
			db, err := bolt.Open(filepath.Join(b.TempDir(), "informers.db"), bolt.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = db.Close() })
			k.opts.Backend = db
		}
		k.opts.Indexers = namespaces
		inf, err := informer.New(server, &corev1.Pod{}, k.opts)
		if err != nil {
			b.Fatal(err)
		}
		readers = append(readers, overIndexer(k.name+"/ListAll", inf), overLister(b, k.name+"/Lister", inf))
	} else {
		readers = append(readers, overIndexer(k.name+"/ListAll", cache.NewSharedIndexInformer(server, &corev1.Pod{}, 0, namespaces)))
	}
	inf := readers[0].inf
	runInformer(b, inf)
	<-inf.HasSyncedChecker().Done()
	// Decode what is decoded once.
	if _, err := readers[0].list("", labels.Everything()); err != nil {
		b.Fatal(err)
	}
	return readers
}

func start(b *testing.B, kinds []kind, server *fakeapi.Server) (readers []reader) {
	b.Helper()
	for _, k := range kinds {
		readers = append(readers, k.start(b, server)...)
	}
	return readers
}

func runInformer(b *testing.B, inf cache.SharedIndexInformer) {
	b.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(b.Context(), klog.Logger{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	b.Cleanup(func() { cancel(); <-done })
}

func overIndexer(name string, inf cache.SharedIndexInformer) reader {
	return reader{
		name: name, inf: inf,
		list: func(namespace string, selector labels.Selector) (found int, err error) {
			err = cache.ListAllByNamespace(inf.GetIndexer(), namespace, selector, func(any) { found++ })
			return found, err
		},
		get: func(namespace, name string) (bool, error) {
			_, found, err := inf.GetIndexer().GetByKey(namespace + "/" + name)
			return found, err
		},
	}
}

func overLister(b *testing.B, name string, inf *informer.Informer) reader {
	b.Helper()
	l, err := informer.NewLister[*corev1.Pod](inf)
	if err != nil {
		b.Fatal(err)
	}
	return reader{
		name: name, inf: inf,
		list: func(namespace string, selector labels.Selector) (int, error) {
			found, err := l.InNamespace(namespace).List(selector)
			return len(found), err
		},
		get: func(namespace, name string) (bool, error) {
			_, err := l.Get(namespace, name)
			return err == nil, err
		},
	}
}

// BenchmarkListerMatch selects pods by a label, 100 of them or none.
func BenchmarkListerMatch(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			readers := start(b, kinds, benchServer(b, n))
			benchList(b, readers, "match=100", "", labels.SelectorFromSet(labels.Set{"match": "true"}), 100)
			benchList(b, readers, "match=0", "", labels.SelectorFromSet(labels.Set{"match": "false"}), 0)
		})
	}
}

// BenchmarkListerRead reads without a selector.
func BenchmarkListerRead(b *testing.B) {
	const pods = 10_000
	readers := start(b, kinds[:4], benchServer(b, pods))
	benchList(b, readers, "everything", "", labels.Everything(), pods)
	benchList(b, readers, "namespace", "default", labels.Everything(), pods/50)
	namespace, name := testobjects.PodKey(pods / 2)
	for _, r := range readers {
		b.Run("get/"+r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if found, err := r.get(namespace, name); err != nil || !found {
					b.Fatal(found, err)
				}
			}
		})
	}
}

func benchList(b *testing.B, readers []reader, what, namespace string, selector labels.Selector, want int) {
	for _, r := range readers {
		b.Run(what+"/"+r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if found, err := r.list(namespace, selector); err != nil || found != want {
					b.Fatalf("found %d, want %d: %v", found, want, err)
				}
			}
		})
	}
}

// BenchmarkListerBesideWrites updates pods while some goroutines continuously list a
// namespace of 40. One operation is one write; ten writes at a time are between the
// server and the handler.
func BenchmarkListerBesideWrites(b *testing.B) {
	const pods = 2_000
	server := benchServer(b, pods)
	for _, k := range kinds[:4] {
		b.Run(k.name, func(b *testing.B) { // one informer at a time
			for _, r := range k.start(b, server) {
				for _, n := range []int{0, 1, 10} {
					name := fmt.Sprintf("%s/readers=%d", strings.TrimPrefix(r.name, k.name+"/"), n)
					b.Run(name, func(b *testing.B) { besideWrites(b, server, r, n, pods) })
				}
			}
		})
	}
}

func besideWrites(b *testing.B, server *fakeapi.Server, r reader, n, pods int) {
	underWay := make(chan struct{}, 10)
	handle, err := r.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { <-underWay }})
	if err != nil {
		b.Fatal(err)
	}
	<-handle.HasSyncedChecker().Done()
	var reads atomic.Int64
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range n {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := r.list("default", labels.Everything()); err != nil {
					b.Error(err)
					return
				}
				reads.Add(1)
			}
		})
	}
	for i := 0; b.Loop(); i++ {
		underWay <- struct{}{}
		if _, err := server.Update(testobjects.Pod(i*7919%pods, int64(i))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(reads.Load())/b.Elapsed().Seconds(), "reads/s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
	close(stop)
	group.Wait()
	for range cap(underWay) { // wait for the writes that are still under way
		underWay <- struct{}{}
	}
	if err := r.inf.RemoveEventHandler(handle); err != nil {
		b.Fatal(err)
	}
}
