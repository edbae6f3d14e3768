package bolt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// podScope is a scope of realistic pods.
var podScope = store.Scope{Resource: "pods", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}}

func openPods(tb testing.TB, path string, opts bolt.Options) (*bolt.DB, store.Store) {
	tb.Helper()
	c, err := codec.For(&corev1.Pod{})
	if err != nil {
		tb.Fatal(err)
	}
	db, err := bolt.Open(path, opts)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := db.Open(podScope, store.Options{Codec: c, DecodedBytes: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return db, s
}

// listPods loads n pods with a list, as a cold start does.
func listPods(tb testing.TB, s store.Store, n int, seed int64) {
	tb.Helper()
	r, err := s.Relist()
	if err != nil {
		tb.Fatal(err)
	}
	for _, i := range inKeyOrder(n, seed) {
		if err := r.Add(testobjects.Pod(i, seed)); err != nil {
			tb.Fatal(err)
		}
	}
	for b, err := range r.Parts("1000") {
		if err == nil {
			err = s.Apply(b)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		tb.Fatal(err)
	}
}

// inKeyOrder returns the numbers of n pods in the order of a server's list.
func inKeyOrder(n int, seed int64) []int {
	keys := make([]string, n)
	numbers := make([]int, n)
	for i := range n {
		pod := testobjects.Pod(i, seed)
		keys[i], numbers[i] = pod.Namespace+"/"+pod.Name, i
	}
	slices.SortFunc(numbers, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })
	return numbers
}

func wantPods(t *testing.T, s store.Store, n int, seed int64) {
	t.Helper()
	want := map[string]*corev1.Pod{}
	for i := range n {
		pod := testobjects.Pod(i, seed)
		want[pod.Namespace+"/"+pod.Name] = pod
	}
	found := 0
	for obj, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		pod := obj.(*corev1.Pod)
		// cmp is slow, and finds objects equal that are not to the last bit.
		if want := want[pod.Namespace+"/"+pod.Name]; !reflect.DeepEqual(want, pod) {
			if diff := cmp.Diff(want, pod); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", pod.Name, diff)
			}
		}
		found++
	}
	if found != n {
		t.Errorf("%d pods, want %d", found, n)
	}
}

// TestCompression checks that objects written with one kind of compression can be read
// and changed with any other, and that a relist of the same objects finds no change.
func TestCompression(t *testing.T) {
	t.Parallel()
	const n = 3 * codec.MinSamples
	ways := map[bolt.Compression]string{bolt.Dictionary: "dictionary", bolt.Zstd: "zstd", bolt.Uncompressed: "uncompressed"}
	for first := range ways {
		for second := range ways {
			t.Run(ways[first]+" then "+ways[second], func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "informers.db")
				db, s := openPods(t, path, bolt.Options{Compression: first})
				listPods(t, s, n, 1)
				wantPods(t, s, n, 1)
				closeAll(t, db)

				db, s = openPods(t, path, bolt.Options{Compression: second})
				wantPods(t, s, n, 1)
				r, err := s.Relist()
				if err != nil {
					t.Fatal(err)
				}
				bolt.SetRelistLimit(r, 64<<10) // the relist stages in the file
				for i := range n {
					seed := int64(1)
					if i < n/2 {
						seed = 2
					}
					if err := r.Add(testobjects.Pod(i, seed)); err != nil {
						t.Fatal(err)
					}
				}
				told := 0
				for b, err := range r.Parts("2000") {
					if err == nil {
						told += len(b.Changes)
						err = s.Apply(b)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				if told < n/2 || told > n {
					t.Errorf("%d changes of %d changed objects", told, n/2)
				}
				closeAll(t, db)

				ro, err := bolt.OpenReadOnly(path, bolt.Options{})
				if err != nil {
					t.Fatal(err)
				}
				s, err = ro.Open(podScope, store.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for obj, err := range s.All() {
					if err != nil || obj.(*corev1.Pod).Name == "" {
						t.Fatal(err)
					}
				}
				closeAll(t, ro)
			})
		}
	}
}

func closeAll(t *testing.T, db *bolt.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDictionary checks that pods take less than a fifth of their JSON, that the file
// contains the dictionary once, and that a new process continues to use it.
func TestDictionary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	const n = 500
	db, s := openPods(t, path, bolt.Options{})
	listPods(t, s, n, 1)
	// a small list is compressed by the committer
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	infos, err := db.Scopes()
	if err != nil {
		t.Fatal(err)
	}
	if perPod := infos[0].Bytes / n; perPod > 13_700/5 {
		t.Errorf("a record has %d bytes", perPod)
	}
	closeAll(t, db)
	if got := dictionariesOf(t, path); len(got) != 1 {
		t.Errorf("%d dictionaries, want 1", len(got))
	}
	db, s = openPods(t, path, bolt.Options{})
	wantPods(t, s, n, 1)
	var b store.Batch
	for i := n; i < 2*n; i++ {
		b.Changes = append(b.Changes, store.Change{Object: testobjects.Pod(i, 1)})
	}
	b.RV = "2000"
	if err := s.Apply(b); err != nil {
		t.Fatal(err)
	}
	closeAll(t, db)
	if got := dictionariesOf(t, path); len(got) != 1 {
		t.Errorf("%d dictionaries after more was written, want 1", len(got))
	}
	db, s = openPods(t, path, bolt.Options{})
	wantPods(t, s, 2*n, 1)
	closeAll(t, db)
}

// TestDictionaryOfGrownScope checks that a scope that was not loaded with a list gets a
// dictionary when it has grown, and that later writes are compressed with it.
func TestDictionaryOfGrownScope(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openPods(t, path, bolt.Options{})
	const n = 300
	numbers := inKeyOrder(n, 1)
	for i := range n {
		must(t, s.Apply(store.Batch{RV: fmt.Sprint(i + 1), Changes: []store.Change{{Object: testobjects.Pod(numbers[i], 1)}}}))
		if i%20 == 19 {
			must(t, s.Flush(t.Context()))
		}
	}
	wantPods(t, s, n, 1)
	must(t, db.Close())
	if keys := dictionariesOf(t, path); len(keys) != 1 {
		t.Errorf("there are dictionaries %q, want one", keys)
	}
	db, s = openPods(t, path, bolt.Options{})
	wantPods(t, s, n, 1)
	must(t, db.Close())
}

func inDictionaries(t *testing.T, path string, fn func(b *bbolt.Bucket) error) {
	t.Helper()
	raw, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Update(func(tx *bbolt.Tx) error {
		scopes := tx.Bucket([]byte("scope"))
		return scopes.ForEachBucket(func(id []byte) error {
			if b := scopes.Bucket(id).Bucket([]byte("dictionaries")); b != nil {
				return fn(b)
			}
			return nil
		})
	})
	if err := errors.Join(err, raw.Close()); err != nil {
		t.Fatal(err)
	}
}

func dictionariesOf(t *testing.T, path string) (keys []string) {
	t.Helper()
	inDictionaries(t, path, func(b *bbolt.Bucket) error {
		return b.ForEach(func(k, _ []byte) error {
			keys = append(keys, fmt.Sprintf("%x", k))
			return nil
		})
	})
	return keys
}

// TestDictionaryDamage checks that Open reports a lost, changed or replaced dictionary as
// damage, and that no wrong object is returned.
func TestDictionaryDamage(t *testing.T) {
	healthy := filepath.Join(t.TempDir(), "informers.db")
	db, s := openPods(t, healthy, bolt.Options{})
	listPods(t, s, 2*codec.MinSamples, 1)
	closeAll(t, db)
	image, err := os.ReadFile(healthy)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	spoil := map[string]func(b *bbolt.Bucket) error{
		"lost": func(b *bbolt.Bucket) error {
			k, _ := b.Cursor().First()
			return b.Delete(k)
		},
		"changed": func(b *bbolt.Bucket) error {
			k, v := b.Cursor().First()
			v = append([]byte(nil), v...)
			v[random.IntN(len(v))] ^= 1
			return b.Put(k, v)
		},
		"under another id": func(b *bbolt.Bucket) error {
			k, v := b.Cursor().First()
			v = append([]byte(nil), v...)
			if err := b.Delete(k); err != nil {
				return err
			}
			return b.Put([]byte("\x00\x00\x00\x00\x00\x00\x00\x09"), v)
		},
	}
	for name, f := range spoil {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			if err := os.WriteFile(path, image, 0o600); err != nil {
				t.Fatal(err)
			}
			inDictionaries(t, path, f)
			ro, err := bolt.OpenReadOnly(path, bolt.Options{})
			if err == nil {
				var s store.Store
				if s, err = ro.Open(podScope, store.Options{}); err == nil {
					for _, err = range s.All() {
						if err != nil {
							break
						}
					}
				}
				closeAll(t, ro)
			}
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("read-only: %v, want damage", err)
			}
			db, s := openPods(t, path, bolt.Options{})
			if db.SetAside() == "" || s.Len() != 0 {
				t.Errorf("set aside %q, %d objects", db.SetAside(), s.Len())
			}
			closeAll(t, db)
		})
	}
}

// BenchmarkColdList loads 5,000 pods into a new file.
func BenchmarkColdList(b *testing.B) {
	const n = 5000
	for name, way := range map[string]bolt.Compression{"dictionary": bolt.Dictionary, "zstd": bolt.Zstd, "uncompressed": bolt.Uncompressed} {
		b.Run(name, func(b *testing.B) {
			var size int64
			for b.Loop() {
				path := filepath.Join(b.TempDir(), "informers.db")
				db, s := openPods(b, path, bolt.Options{Compression: way})
				listPods(b, s, n, 1)
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
				info, err := os.Stat(path)
				if err != nil {
					b.Fatal(err)
				}
				size = info.Size()
			}
			b.ReportMetric(float64(size)/n, "file-B/pod")
		})
	}
}
