package bolt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/storetest"
)

var recordScope = store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}

func recordOptions() store.Options {
	return store.Options{Codec: codec.ForKind(recordScope.Kind), Indexes: []index.Index{index.Namespace(), index.Label("app")}}
}

// recordFile opens a file with n pods, compressed with a dictionary.
func recordFile(t *testing.T, path string, n int) (*bolt.DB, store.Store) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	s, err := db.Open(recordScope, recordOptions())
	must(t, err)
	list, err := s.Relist()
	must(t, err)
	for i := range n {
		must(t, list.Add(testobjects.Pod(i, 1)))
	}
	for batch, err := range list.Parts("10") {
		must(t, err)
		must(t, s.Apply(batch))
	}
	must(t, list.Close())
	must(t, s.Flush(t.Context()))
	return db, s
}

// TestRecords checks that the encoded records are the content of the store, whether it is
// written or decoded or not, and that decoding them needs only the dictionaries that are
// returned with them.
func TestRecords(t *testing.T) {
	_, s := recordFile(t, filepath.Join(t.TempDir(), "informers.db"), 200)
	_ = store.Indexer(s).List()
	keys := store.Indexer(s).ListKeys()
	changed := testobjects.Pod(7, 2)
	must(t, s.Apply(store.Batch{Changes: []store.Change{{Object: changed}, {Key: keys[3]}}}))
	records, err := s.(store.Recorder).Records(append([]string{"no/such"}, keys...))
	must(t, err)
	if len(records.Records) != len(keys)-1 || len(records.Dictionaries) == 0 {
		t.Errorf("%d records of %d keys, %d dictionaries", len(records.Records), len(keys)-1, len(records.Dictionaries))
	}
	for _, r := range records.Records {
		payload := r.Payload
		if r.Dictionary != 0 {
			z, err := codec.NewCompressor(records.Dictionaries[r.Dictionary])
			must(t, err)
			payload, err = z.Decompress(nil, payload)
			must(t, err)
		}
		got, err := codec.DecodeAny(r.Codec, recordScope.Kind, payload)
		must(t, err)
		want, _, err := store.Indexer(s).GetByKey(r.Key)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", r.Key, diff)
		}
	}
}

// TestKeys checks that Keys finds the same objects as Select.
func TestKeys(t *testing.T) {
	_, s := recordFile(t, filepath.Join(t.TempDir(), "informers.db"), 300)
	all := store.Indexer(s).ListKeys()
	must(t, s.Apply(store.Batch{Changes: []store.Change{{Key: all[0]}, {Object: testobjects.Pod(1000, 1)}}}))
	namespace := testobjects.Pod(60, 1).Namespace
	app, err := labels.Parse("app=" + testobjects.Pod(60, 1).Labels["app"])
	must(t, err)
	for name, q := range map[string]store.Query{
		"all": {}, "namespace": {Namespace: namespace}, "part": {After: all[9], Limit: 20},
		"index":       {Index: "namespace", Values: []string{namespace}},
		"selector":    {Selector: app},
		"both":        {Index: "namespace", Values: []string{namespace}, Selector: app},
		"none":        {Selector: labels.Nothing()},
		"no value":    {Index: "namespace", Values: []string{"nosuch"}},
		"index, part": {Index: "namespace", Values: []string{namespace}, After: namespace + "/m", Limit: 3},
	} {
		entries, err := s.Select(q)
		must(t, err)
		want := []string{}
		for _, e := range entries {
			want = append(want, e.Key)
		}
		got, err := s.Keys(q)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := s.Keys(store.Query{Index: "nosuch"}); !errors.Is(err, store.ErrNoIndex) {
		t.Errorf("an index that there is not: %v", err)
	}
}

// TestView checks that a scope that is not open can be viewed without changing it, and
// that it can be opened afterwards with its whole content.
func TestView(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	first, s := recordFile(t, path, 100)
	keys := store.Indexer(s).ListKeys()
	must(t, first.Close())
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	before, err := db.Scopes()
	must(t, err)
	id := before[0].ID
	view, scope, err := db.View(id)
	must(t, err)
	if scope != recordScope {
		t.Errorf("scope %v", scope)
	}
	got, err := view.Keys(store.Query{Limit: 1000})
	must(t, err)
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if values := store.Indexer(view).ListIndexFuncValues("namespace"); len(values) != before[0].Indexes[1].Values {
		t.Errorf("%d values of %+v", len(values), before[0].Indexes)
	}
	obj, ok, err := store.Indexer(view).GetByKey(keys[0])
	if err != nil || !ok || obj.(metav1.Object).GetNamespace()+"/"+obj.(metav1.Object).GetName() != keys[0] {
		t.Errorf("%s: %v, %t, %v", keys[0], obj, ok, err)
	}
	if err := view.Apply(store.Batch{Changes: []store.Change{{Key: keys[0]}}}); err == nil {
		t.Error("a view could be written")
	}
	again, _, err := db.View(id)
	if err != nil || again != view {
		t.Errorf("a second view is another: %v", err)
	}
	opened, err := db.Open(recordScope, recordOptions())
	must(t, err)
	if got := fmt.Sprint(store.Indexer(opened).ListKeys()); got != fmt.Sprint(keys) {
		t.Errorf("opened after the view it holds %s", got)
	}
	if of, _, err := db.View(id); err != nil || of != opened {
		t.Errorf("the view of an open scope is not its store: %v", err)
	}
	after, err := db.Scopes()
	must(t, err)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the view has changed the file (-before +after):\n%s", diff)
	}
	if _, _, err := db.View("nosuch"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a scope that there is not: %v", err)
	}
}

// TestViewOfWiped checks that a scope that was viewed and then wiped does not exist.
func TestViewOfWiped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	first, _ := recordFile(t, path, 10)
	must(t, first.Close())
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	_, _, err = db.View(recordScope.ID())
	must(t, err)
	_, err = db.Wipe(nil)
	must(t, err)
	if view, _, err := db.View(recordScope.ID()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("view %v, error %v", view, err)
	}
}

func TestApplyEncoded(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	must(t, err)
	storetest.RunEncoded(t, db)
}
