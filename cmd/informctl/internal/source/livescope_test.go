package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

func secret(namespace, name, uid, app, value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: "1",
			Labels: map[string]string{"app": app}, CreationTimestamp: metav1.NewTime(time.Unix(1_780_000_000, 0)),
		},
		Data: map[string][]byte{"password": []byte(value)},
	}
}

// hold returns a scope of a database whose handler is served, as serve makes it.
func hold(t *testing.T, serve func(http.Handler) http.Handler) (path string, s store.Store) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "informers.db")
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("5a", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, bolt.Options{Keys: codec.KeyFile(key)})
	if err != nil {
		t.Fatal(err)
	}
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	password, err := index.Field("data.password")
	if err != nil {
		t.Fatal(err)
	}
	s, err = db.Open(store.Scope{Resource: "secrets", Kind: kind, Form: store.Typed},
		store.Options{Codec: codec.ForKind(kind), Indexes: []index.Index{index.Namespace(), index.Label("app"), password}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 300 { // more than one part of each answer
		name := fmt.Sprintf("s-%03d", n)
		if err := list.Add(secret([]string{"a", "b"}[n%2], name, "uid-"+name, []string{"web", "db", "job"}[n%3], "hunter2")); err != nil {
			t.Fatal(err)
		}
	}
	for batch, err := range list.Parts("10") {
		if err == nil {
			err = s.Apply(batch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(rv string, changes ...store.Change) {
		t.Helper()
		if err := errors.Join(s.Flush(t.Context()), s.Apply(store.Batch{RV: rv, Changes: changes}), s.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	write("11", store.Change{Object: secret("a", "s-000", "uid-s-000", "web", "hunter2, changed")})
	// Another object takes its place.
	write("12", store.Change{Object: secret("a", "s-000", "another", "web", "hunter2, another")})
	write("13", store.Change{Key: "b/s-001", RV: "13"})
	short := store.Entry{Key: "b/short", Object: secret("b", "short", "uid-short", "web", "hunter2, short")}
	write("14", store.Change{Key: "b/short", RV: "14", Short: short})

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- inspect.Serve(ctx, inspect.SocketPath(path), serve(inspect.NewHandler(inspect.Of(db))))
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, db.Close()); err != nil {
			t.Error(err)
		}
	})
	for t.Context().Err() == nil {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", inspect.SocketPath(path))
		if err == nil {
			_ = c.Close()
			break
		}
	}
	return path, s
}

func asIs(h http.Handler) http.Handler { return h }

// readerOf returns the only scope of the process that holds a file.
func readerOf(t *testing.T, path string, show bool) store.Reader {
	t.Helper()
	db, err := source.OpenProcess(t.Context(), path, show)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r, err := db.OpenScope(db.Scopes[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLiveScopeIsAsItsStore checks that a scope that is read through its process answers
// each question as the store does that the process reads.
func TestLiveScopeIsAsItsStore(t *testing.T) {
	path, s := hold(t, asIs)
	live := readerOf(t, path, true)
	many := []string{"b/s-003", "a/s-002", "a/s-004", "b/s-005"}
	for n := range 1000 { // more than one request has
		many = append(many, fmt.Sprintf("b/s-004-%032d", n))
	}
	many = append(many, "a/s-006")
	for name, q := range map[string]store.Query{
		"all":            {},
		"namespace":      {Namespace: "b"},
		"selector":       {Selector: labels.SelectorFromSet(labels.Set{"app": "web"})},
		"nothing":        {Selector: labels.Nothing()},
		"index":          {Index: "label:app", Values: []string{"web"}},
		"values":         {Index: "label:app", Values: []string{"web", "db"}},
		"secret index":   {Index: "field:data.password", Values: []string{"aHVudGVyMg=="}},
		"index and more": {Index: "label:app", Values: []string{"web"}, Namespace: "a", Limit: 7, After: "a/s-020"},
		"page":           {After: "a/s-100", Limit: 270},
		"keys":           {Keys: []string{"b/s-003", "a/s-002", "no/such", "a/s-002"}},
		"no keys":        {Keys: []string{}},
		"keys, selected": {Keys: []string{"b/s-003", "a/s-002"}, Selector: labels.SelectorFromSet(labels.Set{"app": "job"})},
		"keys, a page":   {Keys: many, Limit: 2, After: "a/s-002"},
		"many keys":      {Keys: many, Limit: 4},
	} {
		t.Run(name, func(t *testing.T) {
			wantKeys, err := s.Keys(q)
			gotKeys, liveErr := live.Keys(q)
			if diff := cmp.Diff(fmt.Sprint(wantKeys), fmt.Sprint(gotKeys)); diff != "" || err != nil || liveErr != nil {
				t.Errorf("keys: %v, %v (-store +live):\n%s", err, liveErr, diff)
			}
			entries, err := live.Select(q)
			for i, e := range entries {
				if i >= len(wantKeys) || e.Key != wantKeys[i] {
					t.Fatalf("entry %d is %q of %q", i, e.Key, wantKeys)
				}
			}
			want, wantErr := s.Objects(q)
			got, liveErr := live.Objects(q)
			if err := errors.Join(err, wantErr, liveErr); err != nil || len(entries) != len(wantKeys) {
				t.Fatalf("%d entries of %d, %v", len(entries), len(wantKeys), err)
			}
			byName := cmp.Transformer("sorted", func(objects []string) map[string]int {
				m := map[string]int{}
				for _, o := range objects {
					m[o]++
				}
				return m
			})
			if diff := cmp.Diff(texts(want), texts(got), byName); diff != "" {
				t.Errorf("objects (-store +live):\n%.2000s", diff)
			}
		})
	}
	keys := []string{"b/s-003", "no/such", "a/s-002"}
	want, err := s.HeadersOf(keys)
	got, liveErr := live.HeadersOf(keys)
	if diff := cmp.Diff(want, got); diff != "" || err != nil || liveErr != nil {
		t.Errorf("headers: %v, %v (-store +live):\n%s", err, liveErr, diff)
	}
	for _, name := range []string{"label:app", "field:data.password", "namespace"} {
		want, err := s.Values(name)
		got, liveErr := live.Values(name)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || liveErr != nil {
			t.Errorf("values of %s: %v, %v (-store +live):\n%s", name, err, liveErr, diff)
		}
	}
	if _, exists, err := live.Object("no/such"); exists || err != nil {
		t.Errorf("an object that is not there: %t, %v", exists, err)
	}
	if obj, exists, err := live.Object("a/s-000"); !exists || err != nil || obj.(*corev1.Secret).UID != "another" {
		t.Errorf("an object: %v, %t, %v", obj, exists, err)
	}
	if _, err := live.Keys(store.Query{At: store.Place{RV: "11"}}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("at an earlier moment: %v", err)
	}
	if live.Len() != s.Len() || live.Checkpoint().RV != s.Checkpoint().RV {
		t.Errorf("%d objects up to %s, want %d up to %s", live.Len(), live.Checkpoint().RV, s.Len(), s.Checkpoint().RV)
	}
}

func texts[T any](objects []T) (out []string) {
	for _, o := range objects {
		out = append(out, fmt.Sprint(o))
	}
	return out
}

// events returns the events after a place, up to the last mark of the log.
func events(t *testing.T, r store.Reader, after store.Place) (out []store.Event) {
	t.Helper()
	state, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range r.Follow(t.Context(), after) {
		if err != nil {
			t.Fatal(err)
		}
		if out = append(out, e); e.Mark != nil && e.Mark.Mark >= state.Last.Mark {
			break
		}
	}
	return out
}

// TestLiveScopeFollows checks that the log that a process sends is that of the store,
// from each kind of place, and that a place that it does not have is the same error.
func TestLiveScopeFollows(t *testing.T) {
	path, s := hold(t, asIs)
	live := readerOf(t, path, true)
	state, err := s.History()
	got, liveErr := live.History()
	if diff := cmp.Diff(state, got); diff != "" || err != nil || liveErr != nil {
		t.Errorf("history: %v, %v (-store +live):\n%s", err, liveErr, diff)
	}
	content := func(r store.Reader, v *store.Version) string {
		if v == nil {
			return ""
		}
		obj, err := r.Decode(v.Entry)
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprint(v.Header, v.Entry.Key, obj)
	}
	text := func(r store.Reader, after store.Place) (out []string) {
		for _, e := range events(t, r, after) {
			out = append(out, fmt.Sprint(e.Key, e.RV, e.Time, e.Since, e.Inside, e.Mark, content(r, e.Old), content(r, e.New), content(r, e.By), content(r, e.Short)))
		}
		return out
	}
	for name, after := range map[string]store.Place{"all": {}, "a mark": state.Oldest, "a resource version": {RV: "12"}, "a time": {Time: state.Last.Time.Add(-1)}} {
		want := text(s, after)
		if diff := cmp.Diff(want, text(live, after)); diff != "" || len(want) == 0 {
			t.Errorf("after %s: %d events (-store +live):\n%s", name, len(want), diff)
		}
	}
	for _, want := range []error{store.ErrTrimmed, store.ErrLineage} {
		after := store.Place{RV: "1"}
		if want == store.ErrLineage { //nolint:errorlint // it is the one of the list
			after = state.Last
			after.Lineage += "x"
		}
		n := 0
		for _, err := range live.Follow(t.Context(), after) {
			if n++; !errors.Is(err, want) {
				t.Errorf("after %v: %v, want %v", after, err, want)
			}
		}
		if n != 1 {
			t.Errorf("after %v: %d errors", after, n)
		}
	}
}

// TestLiveScopeEnds checks that following ends with its context, and that a log that ends
// before is an error.
func TestLiveScopeEnds(t *testing.T) {
	var cut atomic.Bool
	path, _ := hold(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if cut.Load() && r.URL.Path == "/v1/log" {
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	live := readerOf(t, path, false)
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	n := 0
	for e, err := range live.Follow(ctx, store.Place{}) {
		if last = err; err == nil && e.Mark != nil {
			if n++; n == 2 {
				cancel()
			}
		}
	}
	if cancel(); last == nil || !strings.Contains(last.Error(), "interrupted") {
		t.Errorf("after the end of the context: %v", last)
	}
	cut.Store(true)
	n = 0
	for _, err := range live.Follow(t.Context(), store.Place{}) {
		if n++; err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("after the end of the log: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d errors", n)
	}
}

// TestLiveScopeShowsNoSecrets checks that no method of a reader gets a value of a Secret,
// and that each does that was asked to show them.
func TestLiveScopeShowsNoSecrets(t *testing.T) {
	path, _ := hold(t, asIs)
	for _, show := range []bool{false, true} {
		live := readerOf(t, path, show)
		reads := map[string][]byte{}
		add := func(name string, e store.Entry) {
			reads[name] = append(reads[name], fmt.Sprint(string(e.Raw), e.Object)...)
		}
		entries, err := live.Select(store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			add("Select", e)
		}
		entry, _, err := live.Entry("a/s-000")
		if add("Entry", entry); err != nil {
			t.Fatal(err)
		}
		for _, e := range events(t, live, store.Place{}) {
			for name, v := range map[string]*store.Version{"Old": e.Old, "New": e.New, "By": e.By, "Short": e.Short} {
				if v != nil {
					add(name, v.Entry)
				}
			}
		}
		values, err := live.Values("field:data.password")
		if reads["Values"] = []byte(strings.Join(values, "")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Select", "Entry", "Old", "New", "By", "Short", "Values"} {
			got := bytes.Contains(reads[name], []byte("hunter2")) || bytes.Contains(reads[name], []byte("aHVudGVyM"))
			if got != show || len(reads[name]) == 0 {
				t.Errorf("shown %t: %s has a value: %t, in %d bytes", show, name, got, len(reads[name]))
			}
		}
		keys, err := live.Keys(store.Query{Index: "field:data.password", Values: []string{"aHVudGVyMg=="}})
		if show != (err == nil && len(keys) > 0) {
			t.Errorf("shown %t: a value is looked up: %q, %v", show, keys, err)
		}
	}
}

// TestFetchOfHeaders checks that what a header has is not asked for as a record, too, and
// that a deleted object has an entry without it.
func TestFetchOfHeaders(t *testing.T) {
	var records atomic.Int32
	path, _ := hold(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/records" {
				records.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	})
	db, err := source.OpenProcess(t.Context(), path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	opened, err := db.Open(db.Scopes, source.WholeObjects)
	if err != nil {
		t.Fatal(err)
	}
	for depth, want := range map[source.Depth]int32{source.Header: 0, source.Record: 1} {
		records.Store(0)
		entries, err := opened.Views[0].Fetch([]string{"b/s-003", "no/such", "a/s-002"}, depth)
		if err != nil || len(entries) != 3 || entries[0].Key != "b/s-003" || !source.IsDeleted(entries[1]) || entries[2].Key != "a/s-002" || records.Load() != want {
			t.Errorf("depth %d: %d entries with %d requests for records, want %d: %v", depth, len(entries), records.Load(), want, err)
		}
	}
}
