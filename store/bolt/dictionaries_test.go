package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// changedPod returns a pod after a rollout that added a long common text to all pods of a
// cluster.
func changedPod(i int) *corev1.Pod { return podWith(i, 7) }

// podWith returns a pod after the rollout of a text.
func podWith(i int, text int64) *corev1.Pod {
	pod := testobjects.Pod(i, 1)
	pod.Annotations = map[string]string{"example.com/policy": fmt.Sprintf("%x", testobjects.Secret(0, text, 4<<10).Data["value"])}
	return pod
}

// change writes the changed states of the numbered pods.
func change(t *testing.T, s store.Store, numbers []int) {
	t.Helper()
	changeTo(t, s, numbers, 7)
}

// changeTo writes the states of the numbered pods after the rollout of a text.
func changeTo(t *testing.T, s store.Store, numbers []int, text int64) {
	t.Helper()
	var b store.Batch
	for _, i := range numbers {
		b.Changes = append(b.Changes, store.Change{Object: podWith(i, text)})
	}
	b.RV = "2000"
	must(t, s.Apply(b))
	must(t, s.Flush(t.Context()))
}

func wantChanged(t *testing.T, s store.Store, numbers []int) {
	t.Helper()
	wantChangedTo(t, s, numbers, 7)
}

func wantChangedTo(t *testing.T, s store.Store, numbers []int, text int64) {
	t.Helper()
	for _, i := range numbers {
		want := podWith(i, text)
		got, ok, err := store.Indexer(s).GetByKey(want.Namespace + "/" + want.Name)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", want.Name, ok, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
}

func bytesOf(t *testing.T, db *bolt.DB) int64 {
	t.Helper()
	infos, err := db.Scopes()
	must(t, err)
	return infos[0].Bytes
}

// TestDictionaryDecays checks that a scope whose objects come to share other content gets
// a new dictionary, only once, and that objects compressed with either dictionary can be
// read.
func TestDictionaryDecays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	const n = 400
	numbers := inKeyOrder(n, 1)
	db, s := openPods(t, path, bolt.Options{})
	bolt.SetTrials(s, 1<<20)
	listPods(t, s, n, 1)
	must(t, s.Flush(t.Context())) // a small list is compressed by the committer
	change(t, s, numbers[:n/4])
	old := bytesOf(t, db)
	for range 4 { // the same changes again: they give no better dictionary
		change(t, s, numbers[:n/4])
	}
	renewed := bytesOf(t, db)
	if 10*renewed > 8*old {
		t.Errorf("%d bytes, %d before there was another dictionary", renewed, old)
	}
	must(t, db.Close())
	if keys := dictionariesOf(t, path); len(keys) != 2 {
		t.Errorf("there are dictionaries %q, want two", keys)
	}
	db, s = openPods(t, path, bolt.Options{})
	wantChanged(t, s, numbers[:n/4])
	got, _, err := store.Indexer(s).GetByKey(testobjects.Pod(numbers[n-1], 1).Namespace + "/" + testobjects.Pod(numbers[n-1], 1).Name)
	must(t, err)
	if diff := cmp.Diff(testobjects.Pod(numbers[n-1], 1), got); diff != "" {
		t.Errorf("a pod of the first dictionary (-want +got):\n%s", diff)
	}
	must(t, db.Close())
}

// TestDictionaryStays checks that more objects of the same kind do not cause a new
// dictionary.
func TestDictionaryStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openPods(t, path, bolt.Options{})
	bolt.SetTrials(s, 1<<20)
	listPods(t, s, 300, 1)
	for i := range 4 {
		listPods(t, s, 300, int64(i+2))
		must(t, s.Flush(t.Context()))
	}
	must(t, db.Close())
	if keys := dictionariesOf(t, path); len(keys) != 1 {
		t.Errorf("there are dictionaries %q, want one", keys)
	}
}

// TestDictionaryDropped checks that the file loses a dictionary that nothing in it uses
// any more when it gets another one, and keeps one that the log uses.
func TestDictionaryDropped(t *testing.T) {
	t.Parallel()
	for _, history := range []store.History{{Bytes: -1}, {}} {
		path := filepath.Join(t.TempDir(), "informers.db")
		const n = 400
		numbers := inKeyOrder(n, 1)
		c, err := codec.For(&corev1.Pod{})
		must(t, err)
		open := func() (*bolt.DB, store.Store) {
			t.Helper()
			db, err := bolt.Open(path, bolt.Options{})
			must(t, err)
			s, err := db.Open(podScope, store.Options{Codec: c, DecodedBytes: 1, History: history})
			must(t, err)
			bolt.SetTrials(s, 1<<20)
			return db, s
		}
		db, s := open()
		listPods(t, s, n, 1)
		must(t, s.Flush(t.Context()))
		for seed := range int64(2) {
			held, err := s.Select(store.Query{Encoded: true, Limit: 1})
			must(t, err)
			want, err := s.Decode(held[0])
			must(t, err)
			for range 4 {
				changeTo(t, s, numbers, seed+7)
			}
			payload, _, err := s.(store.Payloader).AppendPayload(nil, held[0])
			must(t, err)
			got, err := c.Decode(payload)
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the payload of an entry of a former dictionary (-want +got):\n%s", diff)
			}
			must(t, db.Close())
			if aside := db.SetAside(); aside != "" {
				t.Fatalf("set aside as %s", aside)
			}
			db, s = open()
		}
		wantChangedTo(t, s, numbers, 8)
		must(t, db.Close())
		if keys := dictionariesOf(t, path); (len(keys) == 1) != (history.Bytes < 0) {
			t.Errorf("history of %d bytes: there are dictionaries %q", history.Bytes, keys)
		}
		verified(t, path)
	}
}

// verified checks every entry and the log.
func verified(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	if aside := db.SetAside(); aside != "" {
		t.Errorf("set aside as %s", aside)
	}
	infos, err := db.Scopes()
	must(t, err)
	for _, info := range infos {
		must(t, db.VerifyLog(info.ID))
	}
	must(t, db.Close())
}

// TestMendedRecord checks that a record whose dictionary is not known, because of damage
// while the process runs, is mended by a list: the next Open finds nothing wrong.
func TestMendedRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{Compression: bolt.Uncompressed})
	for _, color := range []string{"red", "blue"} {
		must(t, store.Indexer(s).Add(configMap("ns/"+color, "1", "content-of-"+color)))
	}
	must(t, db.Close())
	db, s = mustOpenScript(t, path, bolt.Options{Compression: bolt.Uncompressed})
	b, at := read(t, path), 0
	for ; !bytes.HasPrefix(b[at+len("ns/red")+8:], []byte("ns/red")); at++ {
		at += find(t, b[at:], "ns/red")
		if bytes.HasPrefix(b[at+len("ns/red")+8:], []byte("ns/red")) {
			break
		}
	}
	at += len("ns/red") + 5 // the id of the dictionary: 0
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{b[at] ^ 1}, int64(at))
	must(t, errors.Join(err, f.Close()))
	if _, _, err := s.Object("ns/red"); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("not damaged: %v", err)
	}
	r, err := s.Relist()
	must(t, err)
	for _, color := range []string{"blue", "red"} {
		must(t, r.Add(configMap("ns/"+color, "1", "content-of-"+color)))
	}
	for part, err := range r.Parts("2") {
		must(t, err)
		must(t, s.Apply(part))
	}
	must(t, r.Close())
	must(t, s.Flush(t.Context()))
	if _, ok, err := s.Object("ns/red"); err != nil || !ok {
		t.Fatalf("not mended: %v", err)
	}
	must(t, db.Close())
	db, _ = mustOpenScript(t, path, bolt.Options{})
	if aside := db.SetAside(); aside != "" {
		t.Errorf("a mended file is set aside: %s", read(t, aside+".reason"))
	}
	must(t, db.Close())
}

// TestDictionaryBesideDamagedLog checks that a damaged log leaves the file in use, also
// when a dictionary is written: which dictionaries the log uses is not known then.
func TestDictionaryBesideDamagedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openPods(t, path, bolt.Options{})
	listPods(t, s, 10, 1)
	must(t, s.Flush(t.Context()))
	changeTo(t, s, []int{1, 2, 3}, 7)
	bolt.PutIntoLog(db, podScope)
	var b store.Batch
	for i := range 4 * codec.MinSamples {
		b.Changes = append(b.Changes, store.Change{Object: testobjects.Pod(i, 1)})
	}
	b.RV = "3000"
	must(t, s.Apply(b))
	must(t, s.Flush(t.Context()))
	must(t, db.Close())
	if keys := dictionariesOf(t, path); len(keys) != 1 {
		t.Fatalf("there are dictionaries %q: this tests nothing", keys)
	}
	if aside := db.SetAside(); aside != "" {
		t.Errorf("set aside: %s", read(t, aside+".reason"))
	}
}
