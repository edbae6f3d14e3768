package bolt_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var otherKey = fixedKeys{{9, 9, 9}}

// changingKeys is a provider whose keys or error are set by a test.
type changingKeys struct {
	mu   sync.Mutex
	keys []codec.Key
	err  error
}

func (c *changingKeys) Keys(context.Context) ([]codec.Key, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys, c.err
}

func (c *changingKeys) set(keys []codec.Key, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys, c.err = keys, err
}

func allWith(keys codec.KeyProvider) bolt.Options {
	return bolt.Options{Keys: keys, EncryptAll: true}
}

// encryptedFile makes an encrypted database of n batches and closes it.
func encryptedFile(t *testing.T, path string, keys codec.KeyProvider, n int) {
	t.Helper()
	db, s := mustOpenScript(t, path, allWith(keys))
	applyScript(t, s, small, 1, n)
	must(t, db.Close())
}

// logged returns options with a logger, and a function that returns the logged lines.
func logged(opts bolt.Options) (bolt.Options, func() []string) {
	var mu sync.Mutex
	var lines []string
	opts.Logger = funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
	return opts, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
}

// TestSecretNeedsKey checks that Secrets are not written without a key in any form, and
// that other objects are.
func TestSecretNeedsKey(t *testing.T) {
	secret := corev1.SchemeGroupVersion.WithKind("Secret")
	for name, test := range map[string]struct {
		scope  store.Scope
		secret bool
	}{
		"typed":        {store.Scope{Resource: "secrets", Kind: secret}, true},
		"unstructured": {store.Scope{Resource: "secrets", Kind: secret, Form: store.Unstructured}, true},
		"metadata":     {store.Scope{Resource: "secrets", Kind: secret, Form: store.Metadata}, true},
		"no kind":      {store.Scope{Resource: "secrets", Kind: schema.GroupVersionKind{Version: "v1"}, Form: store.Metadata}, true},
		"no resource":  {store.Scope{Kind: secret}, true},
		"another group": {store.Scope{
			Resource: "secrets.example.com", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Secret"},
		}, false},
		"configmaps": {scriptScope(), false},
	} {
		t.Run(name, func(t *testing.T) {
			without, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
			must(t, err)
			defer func() { must(t, without.Close()) }()
			_, err = without.Open(test.scope, scriptOptions())
			if got := errors.Is(err, store.ErrNoKey); got != test.secret || !test.secret && err != nil {
				t.Errorf("without a key: %v", err)
			}
			with, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{Keys: theKey})
			must(t, err)
			defer func() { must(t, with.Close()) }()
			if _, err = with.Open(test.scope, scriptOptions()); err != nil {
				t.Errorf("with a key: %v", err)
			}
			infos, err := with.Scopes()
			if must(t, err); len(infos) != 1 || infos[0].Encrypted != test.secret {
				t.Errorf("encrypted is not %t: %+v", test.secret, infos)
			}
		})
	}
	if _, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{EncryptAll: true}); err == nil || !strings.Contains(err.Error(), "EncryptAll needs Keys") {
		t.Errorf("EncryptAll without Keys: %v", err)
	}
}

// TestEncryptedReopen checks that the content can be read with the key after a restart,
// in all ways and also with everything decoded.
func TestEncryptedReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	encryptedFile(t, path, theKey, 7)
	for _, decoded := range []int64{0, -1} {
		db, err := bolt.Open(path, allWith(theKey))
		must(t, err)
		opts := scriptOptions()
		opts.DecodedBytes = decoded
		s, err := db.Open(scriptScope(), opts)
		must(t, err)
		wantState(t, s, small, 7)
		must(t, db.Close())
	}
	db, err := bolt.OpenReadOnly(path, bolt.Options{Keys: theKey})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	s, err := db.Open(scriptScope(), scriptOptions())
	must(t, err)
	wantState(t, s, small, 7)
}

// TestOtherKey checks that encrypted scopes start cold, with one log line, if the key is
// not that of the file or is missing, or if a scope is to be encrypted from now on.
func TestOtherKey(t *testing.T) {
	for name, test := range map[string]struct {
		before, after bolt.Options
		want          string // "" if the scope is kept
	}{
		"the same key":         {allWith(theKey), allWith(theKey), ""},
		"still encrypted":      {allWith(theKey), bolt.Options{Keys: theKey}, ""},
		"an older key behind":  {allWith(theKey), allWith(append(slices.Clone(otherKey), theKey...)), ""},
		"another key":          {allWith(theKey), allWith(otherKey), "the key that it was encrypted with is lost"},
		"no key":               {allWith(theKey), bolt.Options{}, "it is encrypted and no key was given"},
		"encrypted from now":   {bolt.Options{}, allWith(theKey), "it was stored without encryption"},
		"a key, not for these": {bolt.Options{}, bolt.Options{Keys: theKey}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScript(t, path, test.before)
			applyScript(t, s, small, 1, 3)
			must(t, db.Close())
			opts, lines := logged(test.after)
			db, s = mustOpenScript(t, path, opts)
			if test.want == "" {
				wantState(t, s, small, 3)
				if got := lines(); len(got) > 0 {
					t.Errorf("logged: %q", got)
				}
				return
			}
			if got := s.Checkpoint(); got.RV != "" || got.Reason != test.want || s.Len() != 0 {
				t.Errorf("checkpoint %+v with %d objects, want reason %q", got, s.Len(), test.want)
			}
			if got := lines(); len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("logged: %q", got)
			}
			applyScript(t, s, small, 1, 5)
			must(t, db.Close())
			_, s = mustOpenScript(t, path, test.after)
			wantState(t, s, small, 5)
		})
	}
}

// TestOtherKeyKeepsOthers checks that a lost key does not drop scopes that are not
// encrypted.
func TestOtherKeyKeepsOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	secrets := store.Scope{Resource: "secrets", Kind: corev1.SchemeGroupVersion.WithKind("Secret")}
	for i, keys := range []fixedKeys{theKey, otherKey} {
		db, s := mustOpenScript(t, path, bolt.Options{Keys: keys})
		sealed, err := db.Open(secrets, scriptOptions())
		must(t, err)
		if i == 0 {
			applyScript(t, s, small, 1, 3)
			applyScript(t, sealed, small, 1, 3)
		} else {
			wantState(t, s, small, 3)
			if sealed.Len() != 0 {
				t.Errorf("%d objects are left of what nobody can read", sealed.Len())
			}
		}
		must(t, db.Close())
	}
}

// TestProviderFails checks that nothing is dropped while the provider fails, and that the
// next Open requests the key again.
func TestProviderFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	encryptedFile(t, path, theKey, 3)
	errAway := errors.New("not mounted yet")
	for _, err := range []error{errAway, nil} { // nil: neither an error nor a key
		keys := &changingKeys{err: err}
		db, err := bolt.Open(path, allWith(keys))
		must(t, err)
		if _, err := db.Open(scriptScope(), scriptOptions()); !errors.Is(err, store.ErrNoKey) || keys.err != nil && !errors.Is(err, errAway) {
			t.Errorf("Open: %v", err)
		}
		keys.set(theKey, nil)
		s, err := db.Open(scriptScope(), scriptOptions())
		must(t, err)
		wantState(t, s, small, 3)
		must(t, db.Close())
	}
}

// TestReadWithoutKey checks that a reader without the key can list the scopes and verify
// the file. Reading objects returns an error that names the scope and is not damage.
func TestReadWithoutKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	encryptedFile(t, path, theKey, 3)
	for name, keys := range map[string]codec.KeyProvider{
		"none": nil, "another": otherKey, "failing": &changingKeys{err: errors.New("away")},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := bolt.OpenReadOnly(path, bolt.Options{Keys: keys})
			must(t, err)
			defer func() { must(t, db.Close()) }()
			infos, err := db.Scopes()
			must(t, err)
			s, err := db.Open(scriptScope(), scriptOptions())
			must(t, err)
			n := len(small.state(3))
			if got := store.Indexer(s).ListKeys(); len(got) != n || s.Len() != n || infos[0].Objects != n || !infos[0].Encrypted || s.Checkpoint().RV != "3" {
				t.Errorf("%d keys, %d objects, %+v, want %d", len(got), s.Len(), infos, n)
			}
			for _, idx := range infos[0].Indexes {
				if want := map[string]int{"namespace": 4, "label:app": 5}[idx.Name]; idx.Values != want {
					t.Errorf("index %s has %d values, want %d", idx.Name, idx.Values, want)
				}
			}
			if _, err := s.Select(store.Query{Selector: labels.Nothing()}); err != nil {
				t.Errorf("the file does not add up: %v", err)
			}
			for what, read := range map[string]func() error{
				"GetByKey": func() error { _, _, err := store.Indexer(s).GetByKey(small.key(0)); return err },
				"Entry":    func() error { _, _, err := s.Entry(small.key(0)); return err },
				"Pages":    func() error { _, err := s.Select(store.Query{Limit: 10}); return err },
				"Select":   func() error { _, err := s.Select(store.Query{}); return err },
				"by label": func() error {
					_, err := s.Select(store.Query{Selector: labels.Set{"app": "app1"}.AsSelector()})
					return err
				},
				"by exists":  func() error { _, err := s.Select(store.Query{Selector: mustParse(t, "app")}); return err },
				"ByIndex":    func() error { _, err := store.Indexer(s).ByIndex("label:app", "app1"); return err },
				"IndexKeys":  func() error { _, err := store.Indexer(s).IndexKeys("label:app", "app1"); return err },
				"All":        func() error { return firstError(s.All()) },
				"Headers":    func() error { return firstError(store.HeadersOfAll(s)) },
				"List":       func() error { x := store.Indexer(s); x.List(); return x.Err() },
				"ListValues": func() error { _, err := s.Values("label:app"); return err },
			} {
				err := read()
				if !errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "configmaps") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func mustParse(t *testing.T, s string) labels.Selector {
	t.Helper()
	selector, err := labels.Parse(s)
	must(t, err)
	return selector
}

func firstError[V any](seq func(func(V, error) bool)) (err error) {
	for _, err = range seq {
		if err != nil {
			break
		}
	}
	return err
}

// TestRekey checks that after a new first key and Rekey the old key is not needed, that
// existing objects can be read, and that new ones are encrypted with another data key.
func TestRekey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	encryptedFile(t, path, theKey, 3)
	both := append(slices.Clone(otherKey), theKey...)
	db, err := bolt.Open(path, bolt.Options{Keys: both})
	must(t, err)
	must(t, db.Rekey(t.Context()))
	must(t, db.Close())
	if got := dataKeys(t, path); !slices.Equal(got, []uint64{1}) {
		t.Errorf("records are under the data keys %d", got)
	}
	db, s := mustOpenScript(t, path, allWith(otherKey))
	wantState(t, s, small, 3)
	applyScript(t, s, small, 4, 4)
	must(t, db.Close())
	if got := dataKeys(t, path); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("records are under the data keys %d, want what was written last under the second", got)
	}
	db, s = mustOpenScript(t, path, allWith(otherKey))
	wantState(t, s, small, 4)
	must(t, db.Close())
	db, err = bolt.Open(path, bolt.Options{Keys: theKey})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	if err := db.Rekey(t.Context()); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("the old key still opens it: %v", err)
	}
}

// TestOpenWraps checks that after an Open with a new first key the old key is not needed.
func TestOpenWraps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	encryptedFile(t, path, theKey, 3)
	both := append(slices.Clone(otherKey), theKey...)
	for _, keys := range []fixedKeys{both, otherKey} {
		db, s := mustOpenScript(t, path, allWith(keys))
		wantState(t, s, small, 3)
		must(t, db.Close())
	}
}

// TestLostFileIsEncryptedAgain checks that a new file that replaces a lost one in a
// running process contains the keys of the data in it.
func TestLostFileIsEncryptedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, allWith(theKey))
	applyScript(t, s, small, 1, 3)
	must(t, os.Remove(path))
	must(t, s.Apply(small.batch(4)))
	_ = s.Flush(t.Context()) // detects that the file is gone
	r, err := s.Relist()
	must(t, err)
	for _, obj := range small.state(5) {
		must(t, r.Add(obj))
	}
	finish(t, s, r, "5")
	must(t, db.Close())
	db, s = mustOpenScript(t, path, allWith(theKey))
	if wantState(t, s, small, 5); db.SetAside() != "" {
		t.Errorf("set aside as %s", db.SetAside())
	}
}

// TestRekeyRunning checks that Rekey of a running database needs only the provider's new
// key.
func TestRekeyRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	keys := &changingKeys{keys: theKey}
	db, s := mustOpenScript(t, path, allWith(keys))
	applyScript(t, s, small, 1, 3)
	keys.set(otherKey, nil)
	must(t, db.Rekey(t.Context()))
	applyScript(t, s, small, 4, 4)
	must(t, db.Close())
	_, s = mustOpenScript(t, path, allWith(otherKey))
	wantState(t, s, small, 4)
}

// TestRekeyAfterWipe checks that what comes after a wipe of everything is not sealed with
// the key that Rekey was to replace.
func TestRekeyAfterWipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	keys := &changingKeys{keys: theKey}
	db, s := mustOpenScript(t, path, allWith(keys))
	applyScript(t, s, small, 1, 3)
	keys.set(otherKey, nil)
	_, err := db.Wipe(nil)
	must(t, err)
	must(t, db.Rekey(t.Context()))
	list, err := s.Relist()
	must(t, err)
	for b, err := range list.Parts("3") {
		must(t, errors.Join(err, s.Apply(b)))
	}
	must(t, errors.Join(list.Close(), s.Flush(t.Context())))
	applyScript(t, s, small, 4, 4)
	must(t, db.Close())
	db, s = mustOpenScript(t, path, allWith(otherKey))
	if rv := s.Checkpoint().RV; rv != "4" {
		t.Errorf("resource version %q with the new key, want 4", rv)
	}
	must(t, db.Close())
}

// TestRekeyOfNothing checks that Rekey does not change a file without encrypted scopes.
func TestRekeyOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 3)
	before := read(t, path)
	db, err := bolt.Open(path, bolt.Options{Keys: theKey})
	must(t, err)
	must(t, db.Rekey(t.Context()))
	must(t, db.Close())
	if !bytes.Equal(before, read(t, path)) {
		t.Error("the file was changed")
	}
	reader, err := bolt.OpenReadOnly(path, bolt.Options{Keys: theKey})
	must(t, err)
	defer func() { must(t, reader.Close()) }()
	if err := reader.Rekey(t.Context()); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

// TestSealBudget checks that a new data key begins before one has sealed too often, also
// if other processes continue the count, and that all sealed objects can be read.
func TestSealBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	const budget = 400
	n := 0
	for range 6 {
		db, err := bolt.Open(path, allWith(theKey))
		must(t, err)
		bolt.SetSealBudget(db, budget)
		s, err := db.Open(scriptScope(), scriptOptions())
		must(t, err)
		if n > 0 {
			wantState(t, s, small, n)
		}
		applyScript(t, s, small, n+1, n+10)
		n += 10
		for id, seals := range bolt.Seals(db) {
			if seals > budget {
				t.Errorf("data key %d has sealed %d times", id, seals)
			}
		}
		must(t, db.Close())
	}
	// There are 60 batches of 5 objects with 2 seals each. The first has all keys.
	if used := dataKeys(t, path); len(used) < 2 {
		t.Errorf("the data keys in use are %d", used)
	}
	_, s := mustOpenScript(t, path, allWith(theKey))
	wantState(t, s, small, n)
}

// dataKeys returns the IDs of the data keys that seal the script's records.
func dataKeys(t *testing.T, path string) []uint64 {
	t.Helper()
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	return bolt.DataKeys(db, scriptScope())
}

// markers are the texts in a Secret that must not be in a file.
var markers = map[string]string{
	"data":       "mArkerOfDataThatNobodyMayRead",
	"label":      "mArkerOfLabel",
	"annotation": "mArkerOfAnnotation",
	"uid":        "mArkerOfUID",
	"value":      "mArkerOfIndexValue",
	"long value": "mArkerOfLongIndexValue" + strings.Repeat("-longValue", 300),
}

// marked returns a Secret with all markers. n is its version.
func marked(name string, n int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, ResourceVersion: fmt.Sprint(n), UID: types.UID(markers["uid"] + name),
			Labels:      map[string]string{"app": markers["label"]},
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: markers["annotation"] + fmt.Sprint(n)},
		},
		Data: map[string][]byte{"password": []byte(markers["data"] + fmt.Sprint(n))},
	}
}

// found returns the markers that are in b, as plain text or in base64.
func found(b []byte) (names []string) {
	for name, marker := range markers {
		text := []byte(marker[:min(len(marker), 20)])
		if bytes.Contains(b, text) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString(text[:len(text)/3*3]))) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestNothingInTheClear writes Secrets in every possible way and searches the whole file
// for their bytes, including free pages. The same objects with another kind, which is not
// encrypted, show that the search would find them.
func TestNothingInTheClear(t *testing.T) {
	everything := []string{"annotation", "data", "label", "long value", "uid", "value"}
	for name, test := range map[string]struct {
		kind        string
		compression bolt.Compression
		want        []string
	}{
		"secrets":             {"Secret", bolt.Uncompressed, nil},
		"compressed secrets":  {"Secret", bolt.Dictionary, nil},
		"what is not secrets": {"Thing", bolt.Uncompressed, everything},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, err := bolt.Open(path, bolt.Options{Keys: theKey, Compression: test.compression})
			must(t, err)
			c, err := codec.For(&corev1.Secret{})
			must(t, err)
			values := func(any) ([]string, error) { return []string{markers["value"], markers["long value"]}, nil }
			scope := store.Scope{Resource: strings.ToLower(test.kind) + "s", Kind: corev1.SchemeGroupVersion.WithKind(test.kind)}
			s, err := db.Open(scope, store.Options{
				Codec: c, Indexes: []index.Index{index.Label("app"), {Name: "values", Version: "1", Func: values}},
			})
			must(t, err)
			images := map[string][]byte{}
			image := func(when string) {
				bolt.Quiet(db, func() { images[when] = read(t, path) })
			}
			const n = 200
			firstList(t, s, n)
			image("after a first list")
			r, err := s.Relist()
			must(t, err)
			bolt.SetRelistLimit(r, 8<<10)
			for i := range n {
				must(t, r.Add(marked(fmt.Sprintf("s-%03d", i), 2)))
			}
			for b, err := range r.Parts("2") {
				must(t, err)
				if _, seen := images["with staging"]; !seen {
					image("with staging")
				}
				must(t, s.Apply(b))
			}
			must(t, r.Close())
			must(t, s.Flush(t.Context()))
			image("after a new list")
			must(t, s.Apply(store.Batch{RV: "3", Changes: []store.Change{
				{Object: marked("s-001", 3)}, {Object: marked("new", 3)}, {Key: "default/s-002"},
			}}))
			must(t, s.Flush(t.Context()))
			image("after changes")
			if !bytes.Contains(images["with staging"], []byte("staging")) {
				t.Error("nothing was staged in the file")
			}
			if got, err := store.Indexer(s).IndexKeys("values", markers["long value"]); err != nil || len(got) != n {
				t.Errorf("%d keys by the long value (%v)", len(got), err)
			}
			if diff := cmp.Diff([]string{markers["value"], markers["long value"]}, store.Indexer(s).ListIndexFuncValues("values")); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			must(t, db.Close())
			images["closed"] = read(t, path)
			for when, b := range images {
				if got := found(b); !slices.Equal(got, test.want) {
					t.Errorf("%s, of %d bytes: %q are in the clear", when, len(b), got)
				}
				if !bytes.Contains(b, []byte("default/s-001")) {
					t.Errorf("%s: not even a key is found: this test looks wrong", when)
				}
			}
			if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
				t.Errorf("there are other files: %v", names)
			}
		})
	}
}

// firstList loads n marked Secrets in several transactions.
func firstList(t *testing.T, s store.Store, n int) {
	t.Helper()
	r, err := s.Relist()
	must(t, err)
	bolt.SetRelistLimit(r, 64<<10)
	for i := range n {
		must(t, r.Add(marked(fmt.Sprintf("s-%03d", i), 1)))
	}
	finish(t, s, r, "1")
	must(t, s.Flush(t.Context()))
}

// TestWrappedAfterFailure checks that the keys are wrapped for a new first key at the
// end, if that could not be written before and nothing else is.
func TestWrappedAfterFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	encryptedFile(t, path, theKey, 3)
	opts, lines := logged(allWith(fixedKeys{{7}, theKey[0]}))
	opts.CommitInterval = time.Hour
	db, err := bolt.Open(path, opts)
	must(t, err)
	bolt.HookWrites(db, func(bolt.WriteAt) bolt.WriteAt {
		return func([]byte, int64) (int, error) { return 0, errors.New("the disk fails") }
	})
	_, err = db.Open(scriptScope(), scriptOptions())
	must(t, err)
	_ = bolt.Commit(db)
	if all := strings.Join(lines(), "\n"); strings.Count(all, "Could not wrap") != 1 {
		t.Fatalf("logged: %s", all)
	}
	must(t, db.Close())
	db, s := mustOpenScript(t, path, allWith(fixedKeys{{7}}))
	wantState(t, s, small, 3)
	must(t, db.Close())
}
