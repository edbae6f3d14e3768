package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// These tests combine dictionaries, keys, wipes and lost files.

// sharing is a text that all Secrets of listSecrets have in common, as ca.crt in a
// cluster.
var sharing = fmt.Appendf(nil, "%x", testobjects.Secret(0, 7, 1<<10).Data["value"])

var secretScope = store.Scope{Resource: "secrets", Kind: corev1.SchemeGroupVersion.WithKind("Secret")}

func openSecrets(t *testing.T, path string, opts bolt.Options) (*bolt.DB, store.Store) {
	t.Helper()
	c, err := codec.For(&corev1.Secret{})
	must(t, err)
	db, err := bolt.Open(path, opts)
	must(t, err)
	s, err := db.Open(secretScope, store.Options{Codec: c})
	must(t, err)
	return db, s
}

func listSecrets(t *testing.T, s store.Store, n, rv int) {
	t.Helper()
	r, err := s.Relist()
	must(t, err)
	for i := range n {
		must(t, r.Add(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s-%04d", i), ResourceVersion: fmt.Sprint(rv), UID: "u"},
			Data:       map[string][]byte{"password": fmt.Appendf(nil, "%d-%d", i, rv), "ca.crt": sharing},
		}))
	}
	finish(t, s, r, fmt.Sprint(rv))
	must(t, s.Flush(t.Context()))
}

// TestNoDictionaryOfSecrets checks that no dictionary is trained in an encrypted scope.
func TestNoDictionaryOfSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openSecrets(t, path, bolt.Options{Keys: theKey})
	bolt.SetTrials(s, 64<<10)
	for rv := 1; rv < 5; rv++ {
		listSecrets(t, s, 300, rv)
	}
	must(t, db.Close())
	if n := len(dictionariesOf(t, path)); n != 0 || bytes.Contains(read(t, path), sharing[:64]) {
		t.Errorf("%d dictionaries; what Secrets share is in the file: %t", n, bytes.Contains(read(t, path), sharing[:64]))
	}
}

// TestNoDictionaryOfWhatWasDropped checks that a scope that is encrypted from now on, or
// that was wiped, does not continue to use the dictionary of its old content.
func TestNoDictionaryOfWhatWasDropped(t *testing.T) {
	for name, opts := range map[string]bolt.Options{"encrypted": {Keys: theKey, EncryptAll: true}, "wiped": {}} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, s := openPods(t, path, bolt.Options{})
		listPods(t, s, 300, 1)
		must(t, db.Close())
		db, s = openPods(t, path, opts)
		if name == "wiped" {
			_, err := db.Wipe(nil)
			must(t, err)
		}
		listPods(t, s, 20, 2)
		must(t, db.Close())
		if n := len(dictionariesOf(t, path)); n != 0 {
			t.Errorf("%s: %d dictionaries", name, n)
		}
	}
}

// TestLostAfterView checks that a lost file is replaced by a new one even if a scope
// without its key was viewed before.
func TestLostAfterView(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openSecrets(t, path, bolt.Options{Keys: theKey})
	listSecrets(t, s, 10, 1)
	must(t, db.Close())
	db, s = mustOpenScript(t, path, bolt.Options{CommitInterval: time.Millisecond})
	applyScript(t, s, small, 1, 2)
	_, _, err := db.View(secretScope.ID())
	must(t, err)
	must(t, os.Remove(path))
	must(t, s.Apply(small.batch(3)))
	_ = s.Flush(t.Context())
	r, err := s.Relist()
	must(t, err)
	for _, obj := range small.state(5) {
		must(t, r.Add(obj))
	}
	finish(t, s, r, "5")
	must(t, s.Flush(t.Context()))
	wantState(t, s, small, 5)
	must(t, db.Close())
}

// TestWipeBesideView checks that Wipe and View do not deadlock while the keys are
// rewrapped.
func TestWipeBesideView(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openSecrets(t, path, bolt.Options{Keys: theKey})
	listSecrets(t, s, 10, 1)
	must(t, db.Close())
	for range 20 {
		// Another first key wraps the data keys again.
		db, err := bolt.Open(path, bolt.Options{Keys: fixedKeys{{7}, theKey[0]}})
		must(t, err)
		done := make(chan error, 2)
		bolt.Quiet(db, func() {
			go func() { _, err := db.Wipe(nil); done <- err }()
			go func() { _, _, err := db.View(secretScope.ID()); done <- err }()
		})
		for range 2 {
			if err := <-done; err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		}
		must(t, db.Close())
	}
}
