package run

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

func openFile(t *testing.T) *bolt.DB {
	t.Helper()
	return openFileAt(t, filepath.Join(t.TempDir(), "informers.db"))
}

func openFileAt(t *testing.T, path string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func podsOf(cluster string) store.Scope {
	return store.Scope{Cluster: cluster, Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}
}

func widgetsOf(cluster string) store.Scope {
	return store.Scope{
		Cluster: cluster, Resource: "widgets.example.com", Form: store.Unstructured,
		Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
	}
}

// keep lists objects into a scope of a file, as an earlier run has done. With a reason,
// the checkpoint was made invalid then.
func keep(t *testing.T, db *bolt.DB, scope store.Scope, reason string, objects ...runtime.Object) {
	t.Helper()
	example := runtime.Object(&unstructured.Unstructured{})
	if scope.Form == store.Typed {
		example = &corev1.Pod{}
	}
	c, err := codec.For(example)
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(scope, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	bolttest.List(t, s, "100", objects...)
	if reason == "" {
		return
	}
	if err := s.Invalidate(t.Context(), reason); err != nil {
		t.Fatal(err)
	}
}

func onePod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "a", ResourceVersion: "1"}}
}

// servedOf returns the resources that are served.
func servedOf(s *servedScopes) (names []string) {
	for _, c := range s.Collections() {
		names = append(names, c.Scope.Resource)
	}
	slices.Sort(names)
	return names
}

// TestGoneIsNotServed has a file with the log of a resource that the server no longer
// serves: before the server is reached it is not served as if it had no objects.
func TestGoneIsNotServed(t *testing.T) {
	db := openFile(t)
	keep(t, db, podsOf("c"), "", onePod())
	keep(t, db, widgetsOf("c"), source.ReasonGone)
	s := &servedScopes{db: db, of: &observed{}, cluster: "c", views: map[string]store.Store{}}
	if got, want := servedOf(s), []string{"pods"}; !slices.Equal(got, want) {
		t.Errorf("%v are served, want %v", got, want)
	}
}

// following follows collections, as run does, until the test ends. It is called in a
// bubble of synctest.
func following(t *testing.T, db *bolt.DB, of map[store.Scope]cache.ListerWatcherWithContext) *servedScopes {
	t.Helper()
	fs := &followers{o: &options{}, cluster: &connection{identity: "c"}, db: db}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	t.Cleanup(func() {
		cancel()
		if err := fs.wait(); err != nil {
			t.Error(err)
		}
	})
	for scope, lw := range of {
		f, err := newFollowerOf(db, scope, lw)
		if err != nil {
			t.Fatal(err)
		}
		fs.all = append(fs.all, f)
		fs.start(ctx, f)
	}
	s := &servedScopes{db: db, of: &observed{}, views: map[string]store.Store{}}
	s.of.Store(fs)
	<-time.After(time.Second)
	return s
}

// TestRefusedIsNotServed follows a resource that the server refuses to list: it is not
// waited for, unless an earlier run has kept it.
func TestRefusedIsNotServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	for _, isKept := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := openFileAt(t, path)
			secret := podsOf("c")
			secret.Namespace = "secret"
			want := 1
			if isKept {
				keep(t, db, secret, "", onePod())
				want = 2
			}
			refuses := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
			for range 100 {
				refused := apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
				refuses.FailList(refused)
				refuses.FailWatch(refused)
			}
			s := following(t, db, map[store.Scope]cache.ListerWatcherWithContext{
				podsOf("c"): fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{}), secret: refuses,
			})
			if got := s.Collections(); len(got) != want {
				t.Errorf("with a refused scope that is kept (%t) %d are served, want %d", isKept, len(got), want)
			}
		})
	}
}

// TestUnknownGroupIsServed follows a server that cannot name the resources of an API
// group: what the file has of it is served until it can.
func TestUnknownGroupIsServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		db := openFileAt(t, path)
		for _, identity := range []string{"c", "another"} {
			keep(t, db, widgetsOf(identity), "")
		}
		s := following(t, db, map[store.Scope]cache.ListerWatcherWithContext{
			podsOf("c"): fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{}),
		})
		fs := s.of.Load()
		for _, test := range []struct {
			unknown map[schema.GroupVersion]bool
			want    []string
		}{
			{nil, []string{"pods"}},
			{map[schema.GroupVersion]bool{{Group: "metrics.k8s.io", Version: "v1"}: true}, []string{"pods"}},
			{map[schema.GroupVersion]bool{{Group: "example.com", Version: "v1"}: true}, []string{"pods", "widgets.example.com"}},
		} {
			fs.cluster.everything = &cluster.Everything{Unknown: test.unknown}
			if got := servedOf(s); !slices.Equal(got, test.want) {
				t.Errorf("with the unknown groups %v, %v are served, want %v", test.unknown, got, test.want)
			}
		}
	})
}

// TestClusterBeforeReached serves a file of two clusters before the server is reached:
// what is served is of the cluster that was last found at its address, whatever was
// followed last.
func TestClusterBeforeReached(t *testing.T) {
	db := openFile(t)
	keep(t, db, podsOf("a"), "", onePod())
	keep(t, db, widgetsOf("b"), "")
	none := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(none, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, identity := range []string{"a", "b"} {
		fs := &followers{db: db, cluster: &connection{
			Server: &cluster.Server{Config: &rest.Config{Host: "https://" + identity}}, identity: identity,
		}}
		fs.noteServer(t.Context(), logr.Discard())
	}
	for host, want := range map[string][]string{"a": {"pods"}, "b": {"widgets.example.com"}, "c": nil} {
		o := &options{kube: cluster.NewFlags()}
		*o.kube.KubeConfig, *o.kube.APIServer = none, "https://"+host
		s := &servedScopes{db: db, of: &observed{}, cluster: o.lastCluster(t.Context(), db), views: map[string]store.Store{}}
		if got := servedOf(s); !slices.Equal(got, want) {
			t.Errorf("at the server %s, %v are served, want %v", host, got, want)
		}
	}
}

// TestClusterOfClockAhead checks that of a database that was followed the cluster is
// served that was followed last, and not one that was left while the clock was ahead.
func TestClusterOfClockAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	for cluster, at := range map[string]time.Duration{"left": 24 * time.Hour, "last": time.Hour} {
		synctest.Test(t, func(t *testing.T) { // each begins at the same time
			<-time.After(at)
			db := openFileAt(t, path)
			keep(t, db, podsOf(cluster), "", onePod())
		})
	}
	synctest.Test(t, func(t *testing.T) {
		<-time.After(2 * time.Hour)
		if got := (&options{follows: true}).lastCluster(t.Context(), openFileAt(t, path)); got != "last" {
			t.Errorf("the cluster %q is served, want the last one", got)
		}
	})
}

// TestLogOfGoneOverClockStep checks that a clock that is ahead for a moment drops no log
// of a resource that the server no longer serves, nor one that was left while it was
// ahead.
func TestLogOfGoneOverClockStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := time.Duration(0)
		o := &options{env: cmdutil.Env{Now: func() time.Time { return time.Now().Add(step) }}}
		fs := &followers{o: o, old: map[string]time.Time{}}
		left := store.Info{Scope: widgetsOf("c"), Complete: true, Log: store.LogInfo{Entries: 1}}
		left.Checkpoint = store.Checkpoint{Reason: source.ReasonGone, Time: time.Now()}
		isKept := func(want bool) {
			t.Helper()
			if kept, err := fs.keepLog(t.Context(), left); kept != want || err != nil {
				t.Errorf("kept: %v, %v, want %v", kept, err, want)
			}
		}
		_, age := o.history.ofScope(left.Scope, false).Bounds()
		isKept(true)
		for range 3 {
			step = 2 * age
			isKept(true)
			<-time.After(age / 4)
			step = 0
			isKept(true)
		}
		<-time.After(age / 2)
		isKept(true) // an age has ended just now
		<-time.After(age + time.Second)
		isKept(false)
		left.Checkpoint.Time = time.Now().Add(1000 * age)
		fs.old = map[string]time.Time{}
		isKept(true)
		<-time.After(age + time.Second)
		isKept(false)
	})
}
