package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// twoScopes makes a file with the scripts' scope and one scope in a namespace.
func twoScopes(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{Epoch: "e"})
	must(t, err)
	for _, namespace := range []string{"", "ns1"} {
		s, err := db.Open(inNamespace(namespace), scriptOptions())
		must(t, err)
		applyScript(t, s, small, 1, 3)
	}
	must(t, db.SetLedger(t.Context(), "clusters", map[string][]byte{"asked": []byte("cluster")}))
	must(t, db.Close())
}

func inNamespace(namespace string) store.Scope {
	scope := scriptScope()
	scope.Namespace = namespace
	return scope
}

// held describes the scopes of a file.
func held(db *bolt.DB) (string, error) {
	infos, err := db.Scopes()
	var names []string
	for _, info := range infos {
		names = append(names, fmt.Sprintf("%s: %d at %q", info.Scope, info.Objects, info.Checkpoint.RV))
	}
	return strings.Join(names, ", "), err
}

func wantHeld(t *testing.T, db *bolt.DB, want string) {
	t.Helper()
	got, err := held(db)
	if must(t, err); got != want {
		t.Errorf("the file has %q, want %q", got, want)
	}
}

const both = `configmaps: 38 at "3", configmaps in ns1: 38 at "3"`

// TestWipe checks that the selected scopes are gone, now and after a restart, and that
// the others are not.
func TestWipe(t *testing.T) {
	for name, tt := range map[string]struct {
		which    func(store.Scope) bool
		dropped  int
		left     string
		identity string
	}{
		"one":     {func(s store.Scope) bool { return s.Namespace == "ns1" }, 1, `configmaps: 38 at "3"`, "cluster"},
		"nothing": {func(store.Scope) bool { return false }, 0, both, "cluster"},
		"each":    {func(store.Scope) bool { return true }, 2, "", ""},
		"all":     {nil, 2, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			twoScopes(t, path)
			db, err := bolt.Open(path, bolt.Options{Epoch: "e"})
			must(t, err)
			dropped, err := db.Wipe(tt.which)
			if must(t, err); len(dropped) != tt.dropped {
				t.Errorf("dropped %d scopes, want %d", len(dropped), tt.dropped)
			}
			for range 2 {
				wantHeld(t, db, tt.left)
				known, err := db.Ledger(t.Context(), "clusters")
				if must(t, err); string(known["asked"]) != tt.identity {
					t.Errorf("the file knows cluster %q, want %q", known["asked"], tt.identity)
				}
				must(t, db.Close())
				db, err = bolt.Open(path, bolt.Options{Epoch: "e"})
				if must(t, err); db.SetAside() != "" {
					t.Error("the file is damaged")
				}
			}
			must(t, db.Close())
			db, err = bolt.OpenReadOnly(path, bolt.Options{})
			must(t, err)
			epoch, err := bolt.Epoch(db)
			if must(t, err); epoch != "e" {
				t.Errorf("the epoch is %q", epoch)
			}
			if _, err := db.Wipe(nil); !errors.Is(err, store.ErrReadOnly) {
				t.Errorf("read-only: error is %v", err)
			}
			must(t, db.Close())
		})
	}
}

// TestWipeAllIsFresh checks that a file in which everything was wiped has the same keys
// as a new one.
func TestWipeAllIsFresh(t *testing.T) {
	dir := t.TempDir()
	wiped, fresh := filepath.Join(dir, "wiped.db"), filepath.Join(dir, "fresh.db")
	twoScopes(t, wiped)
	db, err := bolt.Open(wiped, bolt.Options{Epoch: "e"})
	must(t, err)
	_, err = db.Wipe(nil)
	must(t, errors.Join(err, db.Close()))
	db, err = bolt.Open(fresh, bolt.Options{Epoch: "e"})
	must(t, errors.Join(err, db.Close()))
	if diff := cmp.Diff(metaKeys(t, fresh), metaKeys(t, wiped)); diff != "" {
		t.Errorf("meta (-fresh +wiped):\n%s", diff)
	}
}

func metaKeys(t *testing.T, path string) (keys []string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).ForEach(func(k, _ []byte) error {
			keys = append(keys, string(k))
			return nil
		})
	}))
	must(t, db.Close())
	return keys
}

// TestWipeOpen checks that an open scope returns ErrWiped until it is listed, that its
// earlier writes do not come back, and that other scopes are not affected.
func TestWipeOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	twoScopes(t, path)
	db, err := bolt.Open(path, bolt.Options{Epoch: "e", CommitInterval: time.Hour})
	must(t, err)
	s, err := db.Open(inNamespace(""), scriptOptions())
	must(t, err)
	other, err := db.Open(inNamespace("ns1"), scriptOptions())
	must(t, err)
	must(t, s.Apply(small.batch(4))) // not written yet
	_, err = db.Wipe(func(s store.Scope) bool { return s.Namespace == "" })
	must(t, err)
	select {
	case <-s.(store.Loser).Lost():
	default:
		t.Error("the store does not say that it has lost what it held")
	}
	if _, err := describe(s, small); !errors.Is(err, store.ErrWiped) {
		t.Errorf("read: error is %v", err)
	}
	if err := s.Apply(small.batch(5)); !errors.Is(err, store.ErrWiped) {
		t.Errorf("Apply: error is %v", err)
	}
	if s.Checkpoint().RV != "" || s.Len() != 0 {
		t.Errorf("checkpoint %+v, %d objects", s.Checkpoint(), s.Len())
	}
	wantState(t, other, small, 3)
	wantHeld(t, db, `configmaps: 0 at "", configmaps in ns1: 38 at "3"`)
	list, err := s.Relist()
	must(t, err)
	must(t, list.Add(small.object(7, 9)))
	for b, err := range list.Parts("9") {
		must(t, errors.Join(err, s.Apply(b)))
	}
	must(t, errors.Join(list.Close(), s.Flush(t.Context())))
	if got := store.Indexer(s).ListKeys(); !slices.Equal(got, []string{small.key(7)}) {
		t.Errorf("after the list there are %q", got)
	}
	must(t, db.Close())
	db, err = bolt.Open(path, bolt.Options{Epoch: "e"})
	must(t, err)
	wantHeld(t, db, `configmaps: 1 at "9", configmaps in ns1: 38 at "3"`)
	must(t, db.Close())
}

// TestWipeCrash checks that after a crash during a wipe the file has all of the scopes or
// none.
func TestWipeCrash(t *testing.T) {
	rng, _ := seeded(t)
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "informers.db"), filepath.Join(dir, "image.db")
	twoScopes(t, path)
	db, err := bolt.Open(path, bolt.Options{Epoch: "e"})
	must(t, err)
	rec := record(t, path, db)
	_, err = db.Wipe(nil)
	must(t, errors.Join(err, db.Close()))
	outcomes := map[string]int{}
	for n := range rec.commits {
		rec.images(rng, n, 40, func(im image) {
			must(t, os.WriteFile(copied, im.content, 0o600))
			db, err := bolt.Open(copied, bolt.Options{Epoch: "e"})
			must(t, err)
			got, err := held(db)
			must(t, errors.Join(err, db.Close()))
			if aside := db.SetAside(); aside != "" || got != both && got != "" {
				t.Fatalf("%s: the file has %q, set aside %q", im.what, got, aside)
			}
			outcomes[got]++
		})
	}
	if len(outcomes) != 2 || len(rec.commits) != 1 {
		t.Errorf("outcomes of %d commits: %v", len(rec.commits), outcomes)
	}
}

// TestWipeHidesDecoded checks that a decoded object is not read while a wipe is written.
func TestWipeHidesDecoded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	twoScopes(t, path)
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	s, err := db.Open(inNamespace(""), scriptOptions())
	must(t, err)
	keys, err := s.Keys(store.Query{})
	must(t, err)
	get := func() (bool, error) {
		_, ok, err := s.Object(keys[0])
		return ok, err
	}
	if ok, err := get(); !ok || err != nil { // it is decoded from here on
		t.Fatalf("before: %t, %v", ok, err)
	}
	var during error
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) {
			_, during = get()
			return next(b, off)
		}
	})
	_, err = db.Wipe(nil)
	must(t, err)
	if !errors.Is(during, store.ErrWiped) {
		t.Errorf("while the wipe is written: %v", during)
	}
	must(t, db.Close())
}

// TestWipeFails checks that a wipe that cannot be written changes nothing, for readers
// and in the file. A wipe that was written although an error was returned counts as a
// wipe.
func TestWipeFails(t *testing.T) {
	for name, fault := range writeFaults {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			twoScopes(t, path)
			db, err := bolt.Open(path, bolt.Options{Epoch: "e"})
			must(t, err)
			s, err := db.Open(inNamespace(""), scriptOptions())
			must(t, err)
			bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
				return func(b []byte, off int64) (int, error) {
					if off < 2*int64(pageSize) {
						return fault(next, b, off) // the meta page ends the transaction
					}
					return next(b, off)
				}
			})
			if _, err := db.Wipe(nil); !errors.Is(err, errFault) {
				t.Fatalf("error is %v", err)
			}
			if name != "nothing is written" { // half of the page contains the whole meta
				if _, err := describe(s, small); !errors.Is(err, store.ErrWiped) {
					t.Errorf("read: error is %v", err)
				}
				wantHeld(t, db, `configmaps: 0 at ""`)
			} else {
				wantState(t, s, small, 3)
				wantHeld(t, db, both)
				must(t, s.Apply(small.batch(4)))
				must(t, s.Flush(t.Context()))
				wantState(t, s, small, 4)
			}
			must(t, db.Close())
			db, err = bolt.Open(path, bolt.Options{Epoch: "e"})
			if must(t, err); db.SetAside() != "" {
				t.Error("the file is damaged")
			}
			must(t, db.Close())
		})
	}
}

// TestWipeWhileUsed wipes scopes while others open, write, list and close them. Every
// read must be whole or return ErrWiped.
func TestWipeWhileUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
	must(t, err)
	var users sync.WaitGroup
	done := make(chan struct{})
	users.Go(func() {
		defer close(done)
		for range 30 {
			if err := useScope(db); err != nil {
				t.Error(err)
			}
		}
	})
	for wipes := 0; ; wipes++ {
		select {
		case <-done:
			users.Wait()
			must(t, db.Close())
			if t.Logf("%d wipes", wipes); wipes == 0 {
				t.Error("nothing was wiped")
			}
			return
		default:
			_, err := db.Wipe(nil)
			must(t, err)
		}
	}
}

func useScope(db *bolt.DB) error {
	s, err := db.Open(scriptScope(), scriptOptions())
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for n := 1; n <= 3; n++ {
		list, err := s.Relist()
		if err != nil {
			return err
		}
		for i := range small.keys {
			if err = errors.Join(err, list.Add(small.object(i, 1))); err != nil {
				break
			}
		}
		if err == nil {
			for b, partErr := range list.Parts(fmt.Sprint(n)) {
				if err = partErr; err == nil {
					err = s.Apply(b)
				}
				if err != nil {
					break
				}
			}
		}
		_ = list.Close()
		if err != nil && !errors.Is(err, store.ErrWiped) {
			return err
		}
		if entries, err := s.Select(store.Query{Limit: 100}); err == nil && len(entries) != small.keys && len(entries) != 0 || err != nil && !errors.Is(err, store.ErrWiped) {
			return fmt.Errorf("%d objects: %w", len(entries), err)
		}
	}
	return nil
}

// TestMaxPending checks that nothing is dropped and no caller blocks beyond the bound.
// Commits and one log line report it until the disk has caught up.
func TestMaxPending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var logged []string
		logger := funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(line, "keep") {
				logged = append(logged, line)
			}
		}, funcr.Options{})
		db, s := mustOpenScript(t, path, bolt.Options{MaxBytes: 256 << 10, MaxPending: 1 << 20, Compression: bolt.Uncompressed, Logger: logger})
		big := script{keys: 400, pad: 4 << 10}
		for n := 1; n <= 5; n++ {
			must(t, s.Apply(big.batch(n)))
			<-time.After(time.Minute)
		}
		wantState(t, s, big, 5)
		c := s.(store.Committer).Commits()
		if c.AllWaiting < 1<<20 || c.AllWaiting != c.Waiting || !strings.Contains(c.TooMuchWaits(), fmt.Sprint(c.AllWaiting)) {
			t.Errorf("commits: %+v", c)
		}
		mu.Lock()
		if len(logged) != 1 || !strings.Contains(logged[0], "1048576") {
			t.Errorf("logged: %q", logged)
		}
		mu.Unlock()
		if _, err := db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		must(t, db.Close())
		c = s.(store.Committer).Commits()
		if c.AllWaiting != 0 || c.TooMuchWaits() != "" {
			t.Errorf("after what waited was dropped: %+v", c)
		}
	})
}

// TestWipeIsNeverSeenHalf checks that the scope is hidden before the wipe is in the file,
// so that no reader sees a scope without objects.
func TestWipeIsNeverSeenHalf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	twoScopes(t, path)
	db, err := bolt.Open(path, bolt.Options{Epoch: "e"})
	must(t, err)
	s, err := db.Open(inNamespace(""), scriptOptions())
	must(t, err)
	looked := 0
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) {
			if off < 2*int64(pageSize) {
				return next(b, off) // under a lock of bbolt that readers need
			}
			if entries, err := s.Select(store.Query{Limit: 100}); !errors.Is(err, store.ErrWiped) {
				t.Errorf("%d objects, error is %v", len(entries), err)
			}
			looked++
			return next(b, off)
		}
	})
	_, err = db.Wipe(nil)
	if must(t, err); looked == 0 {
		t.Error("nobody looked")
	}
	must(t, db.Close())
}

// TestDecodeAfterWipe checks that an entry of a closed store is never decoded with the
// dictionary or the data key of the store that was opened in its place.
func TestDecodeAfterWipe(t *testing.T) {
	for name, opts := range map[string]bolt.Options{"plain": {}, "encrypted": allWith(theKey)} {
		t.Run(name, func(t *testing.T) { decodeAfterWipe(t, opts) })
	}
}

func decodeAfterWipe(t *testing.T, dbOpts bolt.Options) {
	const n = 200
	object := func(i int, c string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("object-%04d", i), UID: "u", ResourceVersion: "1"},
			Data:       map[string]string{"a": strings.Repeat(c, 40) + " is what all of these have in common, and more " + strings.Repeat(c+"-", 200), "b": fmt.Sprint(i * 7919)},
		}
	}
	load := func(s store.Store, c string) {
		list, err := s.Relist()
		must(t, err)
		for i := range n {
			must(t, list.Add(object(i, c)))
		}
		for part, err := range list.Parts("1") {
			must(t, err)
			must(t, s.Apply(part))
		}
		must(t, list.Close())
		must(t, s.Flush(t.Context()))
	}
	opts := scriptOptions()
	opts.DecodedBytes = 1
	db, first := mustOpenScriptWith(t, filepath.Join(t.TempDir(), "informers.db"), dbOpts, opts)
	load(first, "x")
	entries, err := first.Select(store.Query{})
	must(t, err)
	must(t, first.Close())
	_, err = db.Wipe(nil)
	must(t, err)
	second, err := db.Open(scriptScope(), opts)
	must(t, err)
	load(second, "y")
	wrong, failed := 0, 0
	for i, e := range entries {
		obj, err := first.Decode(e)
		if err != nil {
			failed++
			continue
		}
		if got, want := obj.(*corev1.ConfigMap).Data["a"], object(i, "x").Data["a"]; got != want {
			if wrong++; wrong == 1 {
				t.Logf("%s is %.60q, want %.60q", e.Key, got, want)
			}
		}
	}
	if wrong > 0 || failed > 0 {
		t.Errorf("of %d objects that were read before, %d are decoded wrongly without an error, %d with one", n, wrong, failed)
	}
}

// TestWipeCallsBack checks that a function which Wipe calls may call the database.
func TestWipeCallsBack(t *testing.T) {
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	loadScript(t, s, "1", 0)
	must(t, s.Flush(t.Context()))
	done := make(chan error, 1)
	go func() {
		_, err := db.Wipe(func(store.Scope) bool { _ = db.SetAside(); return true })
		done <- err
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Wipe waits for itself")
	}
}

// TestWipeLast checks that the wipe of the last scope drops the ledgers.
func TestWipeLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, a := mustOpenScript(t, path, bolt.Options{})
	loadScript(t, a, "1", 0)
	other := scriptScope()
	other.Namespace = "b"
	b, err := db.Open(other, scriptOptions())
	must(t, err)
	loadScript(t, b, "1", 0)
	must(t, a.Flush(t.Context()))
	must(t, b.Flush(t.Context()))
	must(t, db.SetLedger(t.Context(), "x", map[string][]byte{"k": []byte("v")}))
	must(t, a.Close())
	must(t, b.Close())
	_, err = db.Wipe(func(sc store.Scope) bool { return sc.Namespace == "" })
	must(t, err)
	infos, err := db.Wipe(func(sc store.Scope) bool { return sc.Namespace == "b" })
	must(t, err)
	left, err := db.Scopes()
	must(t, err)
	values, err := db.Ledger(t.Context(), "x")
	must(t, err)
	if len(infos) != 1 || len(left) != 0 || len(values) != 0 {
		t.Errorf("wiped %d, %d scopes are left, ledger %q", len(infos), len(left), values)
	}
}

// TestLenOfListAfterLoss checks that the number of objects is that of the list which is
// served after a wipe or a loss, whatever the disk does and whatever is applied beside
// it.
func TestLenOfListAfterLoss(t *testing.T) {
	fail := func(bolt.WriteAt) bolt.WriteAt {
		return func([]byte, int64) (int, error) { return 0, errFault }
	}
	for name, drop := range map[string]func(*testing.T, *bolt.DB, store.Store){
		"nothing stored": func(*testing.T, *bolt.DB, store.Store) {},
		"wiped": func(t *testing.T, db *bolt.DB, s store.Store) {
			loadScript(t, s, "10", 0, 1, 2)
			must(t, s.Flush(t.Context()))
			_, err := db.Wipe(nil)
			must(t, err)
		},
		"lost": func(t *testing.T, db *bolt.DB, s store.Store) {
			loadScript(t, s, "10", 0, 1, 2)
			must(t, s.Flush(t.Context()))
			must(t, os.Remove(db.Path()))
			must(t, s.Apply(store.Batch{RV: "11"}))
			_ = s.Flush(t.Context())
		},
	} {
		for _, when := range []string{"writes work", "no write", "not the first part", "not the rest"} {
			t.Run(name+", "+when, func(t *testing.T) {
				db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour})
				drop(t, db, s)
				list, err := s.Relist()
				must(t, err)
				if when != "no write" {
					bolt.SetRelistLimit(list, 1<<10)
				}
				if when == "not the first part" {
					bolt.HookWrites(db, fail) // until the file is opened again
				}
				for i := range 20 {
					must(t, list.Add(small.object(i, 1)))
				}
				must(t, list.Add(small.object(3, 2))) // it is listed twice
				list.Remove(small.key(4))
				list.Keep(small.key(5))
				list.Keep("ns0/refused")
				if when == "no write" || when == "not the rest" {
					bolt.HookWrites(db, fail)
				}
				for part, err := range list.Parts("20") {
					must(t, err)
					must(t, s.Apply(part))
				}
				must(t, list.Close())
				want := func() {
					t.Helper()
					keys, err := s.Keys(store.Query{})
					must(t, err)
					all, err := s.Objects(store.Query{})
					must(t, err)
					if len(keys) != 19 || len(all) != 19 || s.Len() != 19 {
						t.Fatalf("%d keys, %d objects, and Len is %d, want 19", len(keys), len(all), s.Len())
					}
				}
				want()
				must(t, s.Flush(t.Context()))
				want()
			})
		}
	}
}
