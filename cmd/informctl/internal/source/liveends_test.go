package source_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

func answer(h http.Handler, path string) (code int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// TestIndexOfTheInformerThatIsRead has two informers of Secrets with different indexes of
// one name: whether a value may be looked up is asked of the one that is read.
func TestIndexOfTheInformerThatIsRead(t *testing.T) {
	server := fakeapi.New(&corev1.Secret{}, &corev1.SecretList{}, fakeapi.Options{})
	if _, err := server.Create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", Labels: map[string]string{"app": "web"}},
		Data:       map[string][]byte{"password": []byte("hunter2")},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := func(o informer.Options) *informer.Informer {
		inf, err := informer.New(server, &corev1.Secret{}, o)
		if err != nil {
			t.Fatal(err)
		}
		go inf.RunWithContext(ctx)
		<-inf.HasSyncedChecker().Done()
		return inf
	}
	shown := start(informer.Options{Indexes: []index.Index{index.Label("app")}})
	hidden := start(informer.Options{Indexers: cache.Indexers{"label:app": func(obj any) ([]string, error) {
		return []string{string(obj.(*corev1.Secret).Data["password"])}, nil
	}}})
	for name, infs := range map[string][]*informer.Informer{"alone": {hidden}, "last": {shown, hidden}} {
		h := inspect.NewHandler(inspect.Of(nil, infs...))
		for _, path := range []string{"/v1/keys?index=label:app&value=hunter2", "/v1/objects?index=label:app&value=hunter2", "/v1/index?name=label:app&after=hunter1"} {
			if code, body := answer(h, path); code != http.StatusForbidden {
				t.Errorf("%s: %s answers %d, %q", name, path, code, body)
			}
		}
	}
}

// TestSecretInAnotherScope asks a process for a Secret that is in a scope of another
// kind.
func TestSecretInAnotherScope(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Bundle"}
	scope := store.Scope{Resource: "bundles.example.com", Kind: kind, Form: store.Unstructured}
	s, err := db.Open(scope, store.Options{Codec: codec.ForKind(kind)})
	if err != nil {
		t.Fatal(err)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "a", "name": "x", "uid": "u", "resourceVersion": "1"},
		"stringData": map[string]any{"password": "hunter2"},
	}}
	if err := errors.Join(s.Apply(store.Batch{RV: "1", Changes: []store.Change{{Object: secret}}}), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	h := inspect.NewHandler(inspect.Of(db))
	for _, path := range []string{"/v1/records?key=a/x", "/v1/objects?key=a/x", "/v1/headers?key=a/x"} {
		if code, body := answer(h, path+"&scope="+scope.ID()); strings.Contains(body, "hunter2") {
			t.Errorf("%s answers %d, %q", path, code, body)
		}
	}
}

// TestKeysTwice asks a process for keys that are given so often that they take several
// requests.
func TestKeysTwice(t *testing.T) {
	path, s := hold(t, asIs)
	live := readerOf(t, path, true)
	q := store.Query{Keys: append(slices.Repeat([]string{"a/s-002"}, 3000), "a/s-004", "a/s-006"), Limit: 2}
	want, err := s.Keys(q)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := live.Keys(q); err != nil || !slices.Equal(got, want) {
		t.Errorf("the keys are %q, %v, want %q", got, err, want)
	}
}

// TestIndexOfProcess compares the answers about an index with those of the store.
func TestIndexOfProcess(t *testing.T) {
	path, _ := hold(t, asIs)
	live := readerOf(t, path, true)
	if _, err := live.Keys(store.Query{Index: "none", Values: []string{"x"}}); !errors.Is(err, store.ErrNoIndex) {
		t.Errorf("keys by an unknown index: %v", err)
	}
	if _, err := live.Values("none"); !errors.Is(err, store.ErrNoIndex) {
		t.Errorf("values of an unknown index: %v", err)
	}
	if keys, err := live.Keys(store.Query{Index: "label:app"}); err != nil || len(keys) > 0 {
		t.Errorf("keys by no value: %q, %v", keys, err)
	}
}

// TestFollowEndsWithProcess follows with a context that lasts longer than that of the
// process.
func TestFollowEndsWithProcess(t *testing.T) {
	path, _ := hold(t, asIs)
	ctx, cancel := context.WithCancel(t.Context())
	db, err := source.OpenProcess(ctx, path, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r, err := db.OpenScope(db.Scopes[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, err := range r.Follow(context.WithoutCancel(t.Context()), store.Place{}) {
			_ = err
			cancel() // of the process, with the first event
		}
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it goes on after the end of the context of the process")
	}
}

// wipedLog is a log of which the scope was wiped since its state was asked for.
type wipedLog struct{ store.Reader }

// Follow implements store.Reader.
func (wipedLog) Follow(ctx context.Context, _ store.Place) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if yield(store.Event{Mark: &store.Mark{Place: store.Place{Lineage: "new", Mark: 1}}}, nil) {
			<-ctx.Done()
			yield(store.Event{}, ctx.Err())
		}
	}
}

// TestHistoryOfWiped checks that the changes end if their marks begin again.
func TestHistoryOfWiped(t *testing.T) {
	v := &source.View{Reader: wipedLog{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last error
	for _, err := range v.Changes(ctx, store.LogState{Last: store.Place{Lineage: "old", Mark: 10}}, store.Place{}, time.Time{}, store.LogFilter{}, false) {
		last = err
	}
	if !errors.Is(last, store.ErrLineage) {
		t.Errorf("they end with %v, want %v", last, store.ErrLineage)
	}
}

// TestManyDays parses more days than a duration has.
func TestManyDays(t *testing.T) {
	for _, days := range []int{106_752, 200_000, 213_504, 10_000_000} {
		if d, err := cmdutil.ParseSince(fmt.Sprint(days, "d")); err == nil {
			t.Errorf("%d days are %s", days, d)
		}
	}
	if d, err := cmdutil.ParseSince("106751d"); err != nil || d != 106_751*24*time.Hour {
		t.Errorf("106751 days are %s, %v", d, err)
	}
}
