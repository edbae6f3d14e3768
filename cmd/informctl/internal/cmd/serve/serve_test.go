package serve

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// keep lists an object into a scope of a file, as a run does that ends then.
func keep(t *testing.T, path, resource, kind string, obj runtime.Object, rv string) {
	t.Helper()
	keepWith(t, path, bolt.Options{}, resource, kind, obj, rv)
}

func keepWith(t *testing.T, path string, opts bolt.Options, resource, kind string, obj runtime.Object, rv string) {
	t.Helper()
	db, err := bolt.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	c, err := codec.For(obj)
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(store.Scope{Resource: resource, Kind: corev1.SchemeGroupVersion.WithKind(kind)}, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(obj); err != nil {
		t.Fatal(err)
	}
	for b, err := range r.Parts(rv) {
		if err == nil {
			b.CatchUp = true
			err = s.Apply(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestScopeOfClockAhead serves a file of which one scope was kept last under a clock that
// was a day ahead: the state that all answers name is that of the other one.
func TestScopeOfClockAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	meta := metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a", ResourceVersion: "1"}
	synctest.Test(t, func(t *testing.T) { // each begins at the same time
		<-time.After(24 * time.Hour)
		keep(t, path, "nodes", "Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "n", ResourceVersion: "1"}}, "100")
	})
	synctest.Test(t, func(t *testing.T) {
		kept := time.Now()
		keep(t, path, "pods", "Pod", &corev1.Pod{ObjectMeta: meta}, "110")
		<-time.After(time.Minute)
		db, err := source.OpenDatabase(path, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		held, err := (&options{}).collections(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if want := kept.UTC().Format(time.RFC3339); held.state != want {
			t.Errorf("the state is that of %s, want %s", held.state, want)
		}
		for _, c := range held.all {
			if isWarned := c.Note != ""; isWarned != (c.Scope.Resource == "nodes") {
				t.Errorf("the note of %s is %q", c.Scope.Resource, c.Note)
			}
		}
	})
}

// TestScopesOfDifferentAges serves a file whose scopes were followed at different times:
// what is older than the state that all answers name says so.
func TestScopesOfDifferentAges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		meta := metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a", ResourceVersion: "1"}
		began := time.Now()
		keep(t, path, "nodes", "Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "n", ResourceVersion: "1"}}, "100")
		<-time.After(time.Minute)
		keep(t, path, "pods", "Pod", &corev1.Pod{ObjectMeta: meta}, "110")
		<-time.After(time.Hour)
		keep(t, path, "pods", "Pod", &corev1.Pod{ObjectMeta: meta}, "200")
		db, err := source.OpenDatabase(path, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		as, or := "as of "+began.UTC().Format(time.RFC3339)+", the server was not heard ", ", or an object could not be stored"
		for _, test := range []struct {
			at    store.Place
			notes map[string]string
		}{
			{store.Place{}, map[string]string{"nodes": as + "since" + or, "pods": ""}},
			{store.Place{Time: began.Add(2 * time.Minute)}, map[string]string{"nodes": "", "pods": ""}},
			{store.Place{Time: began.Add(30 * time.Minute)}, map[string]string{"nodes": as + "then" + or, "pods": ""}},
		} {
			held, err := (&options{at: test.at}).collections(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			if len(held.all) != 2 {
				t.Errorf("at %v %d collections are served, want 2", test.at, len(held.all))
			}
			for _, c := range held.all {
				if want := test.notes[c.Scope.Resource]; c.Note != want {
					t.Errorf("at %v the note of %s is %q, want %q", test.at, c.Scope.Resource, c.Note, want)
				}
			}
		}
	})
}

// TestScopesWithoutKey serves a file of which some resources are encrypted: without the
// key they are not served, and said.
func TestScopesWithoutKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	keyFile := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keyFile, []byte(strings.Repeat("1d", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := codec.KeyFile(keyFile)
	meta := metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a", ResourceVersion: "1"}
	keepWith(t, path, bolt.Options{Keys: keys, EncryptAll: true}, "pods", "Pod", &corev1.Pod{ObjectMeta: meta}, "110")
	collections := func(keys codec.KeyProvider) (served []string, said string, err error) {
		db, err := source.OpenDatabase(path, keys, false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		held, err := (&options{env: cmdutil.Env{Streams: streams}}).collections(t.Context(), db)
		for _, c := range held.all {
			served = append(served, c.Scope.Resource)
		}
		return served, errOut.String(), err
	}
	if served, said, err := collections(nil); err == nil || !strings.Contains(said, "pods: not served: ") || !strings.Contains(said, "no key was given") {
		t.Errorf("without anything else: %q, %q, %v", served, said, err)
	}
	keep(t, path, "nodes", "Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "n", ResourceVersion: "1"}}, "100")
	if served, said, err := collections(nil); err != nil || !slices.Equal(served, []string{"nodes"}) || !strings.Contains(said, "pods: not served: ") {
		t.Errorf("%q, %q, %v", served, said, err)
	}
	if served, said, err := collections(keys); err != nil || len(served) != 2 || said != "" {
		t.Errorf("with the key: %q, %q, %v", served, said, err)
	}
}
