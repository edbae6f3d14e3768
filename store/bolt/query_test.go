package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// countingCodec counts the objects that it decodes.
type countingCodec struct {
	codec.Codec
	decoded *atomic.Int64
}

func (c countingCodec) Decode(data []byte) (runtime.Object, error) {
	c.decoded.Add(1)
	return c.Codec.Decode(data)
}

// TestDecodedOnce checks that a read of many objects uses the cache of decoded objects,
// and that no object is decoded twice if all objects fit the budget.
func TestDecodedOnce(t *testing.T) {
	const objects = 40
	s40 := script{keys: objects}
	small := int64(objects) * 100 // the size of more than one object and less than all
	for budget, again := range map[int64]int64{-1: 0, 0: 0, small: objects} {
		path := filepath.Join(t.TempDir(), "informers.db")
		scriptFile(t, path, s40, 1)
		db, err := bolt.Open(path, bolt.Options{})
		must(t, err)
		opts := scriptOptions()
		counter := countingCodec{opts.Codec, &atomic.Int64{}}
		opts.Codec, opts.DecodedBytes = counter, budget
		s, err := db.Open(scriptScope(), opts)
		must(t, err)
		decodes := func(read func()) int64 {
			before := counter.decoded.Load()
			read()
			return counter.decoded.Load() - before
		}
		list := func() {
			if found, err := s.Objects(store.Query{}); len(found) != s.Len() {
				t.Errorf("Objects are %d of %d: %v", len(found), s.Len(), err)
			}
		}
		byIndex := func() {
			_, err := store.Indexer(s).ByIndex("namespace", "ns0")
			must(t, err)
		}
		got := []int64{decodes(list), decodes(list)}
		for i := range objects { // offers each object to the cache
			_, _, err := store.Indexer(s).GetByKey(s40.key(i))
			must(t, err)
		}
		got = append(got, decodes(list), decodes(byIndex))
		must(t, s.Apply(s40.batch(2)))
		got = append(got, decodes(list))
		want := []int64{objects, again, 0, 0, 0}
		if budget == small {
			got, want = got[:2], want[:2]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("budget %d: objects decoded by first List, second, third, ByIndex, List after a batch (-want +got):\n%s", budget, diff)
		}
		wantState(t, s, s40, 2)
		must(t, db.Close())
	}
}

// TestSelectMeetsDamage damages the file of an open store. A damaged header or a missing
// object is an error, because it may hide a matching object. A damaged object that does
// not match is not an error.
func TestSelectMeetsDamage(t *testing.T) {
	red := store.Query{Selector: labels.SelectorFromSet(labels.Set{"color": "red"})}
	blue := store.Query{Selector: labels.SelectorFromSet(labels.Set{"color": "blue"})}
	for what, c := range map[string]struct {
		damage func(t *testing.T, b []byte) (at int)
		fails  []store.Query
		works  []store.Query
	}{
		"object": {
			damage: func(t *testing.T, b []byte) int { return find(t, b, "content-of-red") },
			fails:  []store.Query{{}, red, {Namespace: "ns"}, {Index: "namespace", Values: []string{"ns"}}},
			works:  []store.Query{blue},
		},
		"object's key": { // its record, 8 bytes further on, also contains the key
			damage: func(t *testing.T, b []byte) int {
				for at := 0; ; at++ {
					if at += find(t, b[at:], "ns/red"); bytes.HasPrefix(b[at+len("ns/red")+8:], []byte("ns/red")) {
						return at
					}
				}
			},
			fails: []store.Query{{}, red, {Namespace: "ns"}, {Index: "namespace", Values: []string{"ns"}}},
			works: []store.Query{blue},
		},
		"header": { // it contains the object's label but no content
			damage: func(t *testing.T, b []byte) int { return find(t, b, "\xa5color\xa3red") },
			fails:  []store.Query{{}, red, blue, {Namespace: "ns"}, {Index: "namespace", Values: []string{"ns"}}},
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScript(t, path, bolt.Options{})
			for _, color := range []string{"red", "blue"} {
				cm := configMap("ns/"+color, "1", "content-of-"+color).(*corev1.ConfigMap)
				cm.Labels = map[string]string{"color": color}
				must(t, store.Indexer(s).Add(cm))
			}
			must(t, db.Close())
			_, s = mustOpenScript(t, path, bolt.Options{}) // nothing is decoded yet
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			must(t, err)
			b := read(t, path)
			at := c.damage(t, b)
			_, err = f.WriteAt([]byte{b[at] ^ 1}, int64(at))
			must(t, errors.Join(err, f.Close()))
			for _, q := range c.fails {
				if entries, err := s.Select(q); !errors.Is(err, store.ErrCorrupt) || len(entries) > 0 {
					t.Errorf("Select(%+v) = %d entries, %v; want %v", q, len(entries), err, store.ErrCorrupt)
				}
			}
			if found, err := store.Indexer(s).ByIndex("namespace", "ns"); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("ByIndex = %d objects, %v; want %v", len(found), err, store.ErrCorrupt)
			}
			x := store.Indexer(s)
			if found := x.List(); found != nil || !errors.Is(x.Err(), store.ErrCorrupt) {
				t.Errorf("List has %d objects, Err %v; want %v", len(found), x.Err(), store.ErrCorrupt)
			}
			for _, q := range c.works {
				if entries, err := s.Select(q); err != nil || len(entries) != 1 {
					t.Errorf("Select(%+v) = %d entries, %v; want one", q, len(entries), err)
				}
			}
		})
	}
}

// find returns the first offset of text in b.
func find(t *testing.T, b []byte, text string) int {
	t.Helper()
	at := bytes.Index(b, []byte(text))
	if at < 0 {
		t.Fatalf("%q is not in the file: the test proves nothing", text)
	}
	return at
}

// TestReadOnlyIsWhole removes the last element of each leaf page, which no checksum
// detects. A reader's Select and its headers must be complete or return an error.
func TestReadOnlyIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	s300 := script{keys: 300}
	scriptFile(t, path, s300, 1)
	good := trimmed(read(t, path))
	keys := map[string][]string{}
	for namespace := range 4 {
		name := fmt.Sprintf("ns%d", namespace)
		entries, err := selectReadOnly(path, name)
		must(t, err)
		for _, e := range entries {
			keys[name] = append(keys[name], e.Key)
		}
	}
	failed := 0
	for _, leaf := range usedPages(good, pageLeaf) {
		count := leaf*pageSize + 10
		n := binary.LittleEndian.Uint16(good[count:])
		must(t, os.WriteFile(path, patched(good, count, binary.LittleEndian.AppendUint16(nil, n-1)), 0o600))
		for namespace := range 4 {
			name := fmt.Sprintf("ns%d", namespace)
			entries, err := selectReadOnly(path, name)
			if errors.Is(err, store.ErrCorrupt) {
				failed++
			} else if err != nil || len(entries) != 75 {
				t.Errorf("without an element of page %d, Select has %d objects of 75, %v", leaf, len(entries), err)
			}
			headers, err := headersReadOnly(path, keys[name])
			if !errors.Is(err, store.ErrCorrupt) && (err != nil || len(headers) != 75) {
				t.Errorf("without an element of page %d, HeadersOf has %d objects of 75, %v", leaf, len(headers), err)
			}
		}
	}
	if failed == 0 {
		t.Error("no damage was met: the test proves nothing")
	}
}

func selectReadOnly(path, namespace string) (entries []store.Entry, err error) {
	err = inReadOnly(path, func(s store.Store) error {
		entries, err = s.Select(store.Query{Namespace: namespace})
		return err
	})
	return entries, err
}

func headersReadOnly(path string, keys []string) (headers []store.Header, err error) {
	err = inReadOnly(path, func(s store.Store) error {
		headers, err = s.HeadersOf(keys)
		return err
	})
	return headers, err
}

func inReadOnly(path string, do func(store.Store) error) error {
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		return err
	}
	s, err := db.Open(scriptScope(), scriptOptions())
	if err == nil {
		err = do(s)
	}
	return errors.Join(err, db.Close())
}
