package informer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

// TestStatusOfStarts checks how a start reached its state, and the counters.
func TestStatusOfStarts(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		r := w.run(informer.Options{}).sync()
		w.check(r, "cold", informer.Status{
			Start: "listed", StartReason: "nothing stored yet", Objects: 2, Listed: 2, Lists: 1,
			ListsByReason: map[string]int{"nothing stored yet": 1}, Checkpoint: informer.CheckpointStatus{RV: "3"},
		})
		r.end()
		w.put("b", "2") // 4
		r = w.run(informer.Options{}).sync()
		w.check(r, "warm", informer.Status{
			Start: "resumed", Objects: 2, Resumes: 1, Events: 1, Checkpoint: informer.CheckpointStatus{RV: "4"},
		})
		w.server.Down() // or the watch might still bring what comes next
		w.put("c", "1") // 5
		if err := w.server.Compact("5"); err != nil {
			t.Fatal(err)
		}
		w.server.Up()
		waitFor(time.Minute)
		w.check(r, "history lost", informer.Status{
			Start: "resumed", Objects: 3, Resumes: 2, Events: 1, Listed: 3, Lists: 1, Checkpoint: informer.CheckpointStatus{RV: "5"},
			ListsByReason: map[string]int{"the server no longer has the history": 1},
		})
		if err := w.server.Rewind("4"); err != nil {
			t.Fatal(err)
		}
		waitFor(time.Minute)
		w.check(r, "history rewound", informer.Status{
			Start: "resumed", Objects: 2, Resumes: 2, Events: 1, Listed: 2, Lists: 2, Checkpoint: informer.CheckpointStatus{RV: "4"},
			ListsByReason: map[string]int{"the server no longer has the history": 1, "history was rewound": 1},
		})
		r.end()
		if got := r.inf.Status().Behind; got != "stopped" {
			t.Errorf("of an informer that has ended: %q", got)
		}
	})
}

// check compares the status of a synced informer, without times and written bytes.
func (w *world) check(r *run, when string, want informer.Status) {
	w.Helper()
	got := r.inf.Status()
	want.Scope = informer.ScopeStatus{
		ID: r.inf.Scope().ID(), Resource: "configmaps", APIVersion: "v1", Kind: "ConfigMap", Form: "typed",
	}
	want.Persisted, want.File, want.Synced, want.CaughtUp = true, w.path, true, true
	if diff := cmp.Diff(want, got,
		cmpopts.IgnoreTypes(time.Time{}), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(informer.Status{}, "Commits", "Log", "Reads", "FileBytes", "Errors", "ProcessBytes", "MemoryBytes"),
		cmpopts.IgnoreFields(informer.CheckpointStatus{}, "AgeSeconds"),
	); diff != "" {
		w.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// TestStatusOfTimes checks the times of the last events and the age of the checkpoint.
func TestStatusOfTimes(t *testing.T) {
	inBubble(t, func(w *world) {
		r := w.run(informer.Options{}).sync()
		if s := r.inf.Status(); !s.LastEvent.IsZero() || !s.LastErrorTime.IsZero() || !s.Time.Equal(time.Now()) {
			t.Errorf("before anything happened: event %v, error %v, looked %v", s.LastEvent, s.LastErrorTime, s.Time)
		}
		waitFor(time.Second)
		w.put("a", "1")
		waitFor(0)
		event := time.Now()
		waitFor(2 * time.Second)
		s := r.inf.Status()
		if !s.LastEvent.Equal(event) || s.Checkpoint.AgeSeconds != 2 || !s.Checkpoint.Time.Equal(event) {
			t.Errorf("event at %v: seen at %v, checkpoint %+v", event, s.LastEvent, s.Checkpoint)
		}
		if c := s.Commits; c == nil || c.Count == 0 || c.PendingBytes != 0 || c.Degraded || !c.Last.After(event) || s.FileBytes == 0 || s.ProcessBytes < 1<<20 {
			t.Errorf("commits: %+v, file: %d bytes, process: %d bytes", c, s.FileBytes, s.ProcessBytes)
		}
		w.put("a", "2")
		waitFor(0)
		if c := r.inf.Status().Commits; c.PendingBytes == 0 {
			t.Errorf("nothing is pending inside the commit interval: %+v", c)
		}
		w.server.Down()
		waitFor(time.Minute)
		s = r.inf.Status()
		if s.LastError == "" || s.Errors == 0 || time.Since(s.LastErrorTime) > time.Minute || !s.CaughtUp {
			t.Errorf("server down: %d errors, %q at %v, caught up: %v", s.Errors, s.LastError, s.LastErrorTime, s.CaughtUp)
		}
		w.server.Up()
		waitFor(time.Minute)
		w.server.Advance() // bookmarks only come after a change
		waitFor(20 * time.Minute)
		if s = r.inf.Status(); s.LastError != "" || s.LastBookmark.IsZero() {
			t.Errorf("server up: %q, bookmark %v", s.LastError, s.LastBookmark)
		}
		r.end()
	})
}

// TestQuiet checks that a collection without bookmarks, such as Events, counts as new for
// as long as the server answers, although its checkpoint does not move.
func TestQuiet(t *testing.T) {
	for _, hasBookmarks := range []bool{false, true} {
		inBubble(t, func(w *world) {
			w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{NoBookmarks: !hasBookmarks})
			w.put("a", "1")
			r := w.run(informer.Options{}).sync()
			isQuiet := r.inf.Reader().(interface{ IsQuiet() bool }).IsQuiet
			for range 4 {
				waitFor(30 * time.Minute)
				if hasBookmarks {
					w.server.Advance()
					waitFor(20 * time.Minute)
				}
				if s := r.inf.Status(); isQuiet() == hasBookmarks || time.Since(s.LastAnswer) > 15*time.Minute || s.LastBookmark.IsZero() == hasBookmarks {
					t.Errorf("bookmarks %v: quiet %v, last answer %v ago, checkpoint %v old, bookmark %v",
						hasBookmarks, isQuiet(), time.Since(s.LastAnswer), s.Checkpoint.AgeSeconds, s.LastBookmark)
				}
			}
			w.server.Down()
			waitFor(15 * time.Minute)
			if isQuiet() {
				t.Error("quiet while the server is down")
			}
			w.server.Up()
			waitFor(15 * time.Minute)
			if isQuiet() == hasBookmarks {
				t.Errorf("bookmarks %v: quiet %v after the server has come back", hasBookmarks, isQuiet())
			}
			r.end()
		})
	}
}

// TestStatusSaysWhatIsMissing checks why an informer has not caught up, is not persisted
// or has not stored an object.
func TestStatusSaysWhatIsMissing(t *testing.T) {
	inBubble(t, func(w *world) {
		unstarted, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s := unstarted.Status(); s.Behind != "not started" || s.Persisted || s.Commits != nil {
			t.Errorf("before Run: %+v", s)
		}
		w.put("a", "1")
		w.server.Hold()
		r := w.run(informer.Options{})
		waitFor(time.Second)
		if s := r.inf.Status(); s.CaughtUp || s.Listing != "nothing stored yet" || s.Behind != "listing, 0 objects so far: nothing stored yet" {
			t.Errorf("while it lists: %q, %q", s.Listing, s.Behind)
		}
		second := w.run(informer.Options{Backend: r.db})
		w.server.Release()
		second.sync()
		if s := second.inf.Status(); s.Persisted || !strings.Contains(s.Memory, "in use") || s.File != "" || s.Behind != "" {
			t.Errorf("of a scope that is in use: %+v", s)
		}
		second.end()
		r.sync().end()
		w.server.Down()
		r = w.run(informer.Options{})
		waitFor(time.Second)
		if s := r.inf.Status(); s.CaughtUp || s.Behind == "" || s.Behind != s.LastError {
			t.Errorf("with the server down: %q, last error %q", s.Behind, s.LastError)
		}
		r.end()
		w.server.Up()
		r = w.run(informer.Options{TransformVersion: "1"}, func(inf *informer.Informer) {
			_ = inf.SetTransform(func(obj any) (any, error) {
				if obj.(*corev1.ConfigMap).Data["v"] == "bad" {
					return nil, errors.New("no")
				}
				return obj, nil
			})
		}).sync()
		w.put("z", "bad")
		w.put("y", "bad")
		waitFor(5 * time.Minute)
		if s := r.inf.Status(); s.RejectedCount != 2 || s.RejectedFirst != "default/y" || s.Lists == 0 {
			t.Errorf("rejected: %d, first %q", s.RejectedCount, s.RejectedFirst)
		}
		r.end()
		// The reason in the file has a number and a key; the counted reason has neither.
		r = w.run(informer.Options{TransformVersion: "1"}).sync()
		if s := r.inf.Status(); s.ListsByReason["objects could not be stored"] != 1 || !strings.Contains(s.StartReason, "default/y") {
			t.Errorf("reasons %v, of the start %q", s.ListsByReason, s.StartReason)
		}
		r.end()
	})
}

// TestStatusOfHandlers checks the queue of each handler.
func TestStatusOfHandlers(t *testing.T) {
	inBubble(t, func(w *world) {
		r, gate, _, _ := slowRun(w, 1<<30, 5000)
		handlers := r.inf.Status().Handlers
		if len(handlers) != 2 {
			t.Fatalf("handlers: %+v", handlers)
		}
		slow, fast := handlers[0], handlers[1]
		if slow.Type != "*informer_test.pointers" || slow.BytesInFile != informer.InFiles(r.inf) || slow.BytesInFile == 0 {
			t.Errorf("slow: %+v, want %d bytes in files", slow, informer.InFiles(r.inf))
		}
		// The handler is processing one of the 64 that it took.
		if slow.Waiting < 5000-64 || slow.Waiting > 5000 || fast.Waiting != 0 || fast.BytesInFile != 0 || !fast.Synced {
			t.Errorf("slow: %+v, fast: %+v", slow, fast)
		}
		close(gate)
		r.end()
	})
}

// stuckBackend is a backend whose Select waits for a gate, like on a disk that hangs. The
// informer holds its lock meanwhile.
type stuckBackend struct {
	store.Backend
	entered, gate chan struct{}
}

func (b *stuckBackend) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	return &stuckStore{s, b}, err
}

type stuckStore struct {
	store.Store
	backend *stuckBackend
}

func (s *stuckStore) Select(q store.Query) ([]store.Entry, error) {
	close(s.backend.entered)
	<-s.backend.gate
	return s.Store.Select(q)
}

// TestStatusDoesNotWaitForTheDisk checks that Status then returns the previous result.
func TestStatusDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	w := &world{T: t, path: filepath.Join(t.TempDir(), "informers.db"), server: fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})}
	w.put("a", "1")
	db := w.open()
	defer func() { _ = db.Close() }()
	b := &stuckBackend{db, make(chan struct{}), make(chan struct{})}
	r := w.run(informer.Options{Backend: b})
	<-r.inf.HasSyncedChecker().Done()
	before := r.inf.Status()
	if before.Objects != 1 {
		t.Fatalf("%d objects", before.Objects)
	}
	other, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := inspect.NewHandler(inspect.Of(b, r.inf, other))
	handle(w, &log{})(r.inf)
	<-b.entered
	for range 2 {
		if diff := cmp.Diff(before, r.inf.Status()); diff != "" {
			t.Errorf("behind a disk that hangs (-before +now):\n%s", diff)
		}
	}
	var both []informer.Status
	_, lines := get(h, "/v1/status")
	if err := json.Unmarshal([]byte(lines[0]), &both); err != nil || len(both) != 2 || both[1].Time.IsZero() {
		t.Errorf("one that hangs holds up another: %v, %+v", err, both)
	}
	close(b.gate)
	for now := before; !now.Time.After(before.Time); now = r.inf.Status() {
		runtime.Gosched()
	}
	r.end()
}

// TestStatusJSON checks that a client receives the informer's status, without times of
// events that have not happened.
func TestStatusJSON(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := informer.Status{
		Time: when, Scope: informer.ScopeStatus{Resource: "pods"}, ListsByReason: map[string]int{"x": 1},
		Checkpoint: informer.CheckpointStatus{RV: "1", Time: when, AgeSeconds: 1.5},
		Commits:    &informer.CommitStatus{LastSeconds: 0.25}, Handlers: []informer.HandlerStatus{{Type: "T"}},
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"time":"2026-01-02T03:04:05Z"`, `"ageSeconds":1.5`, `"lastSeconds":0.25`} {
		if !strings.Contains(string(b), part) {
			t.Errorf("no %s in %s", part, b)
		}
	}
	if strings.Contains(string(b), "0001") {
		t.Errorf("a time that never was: %s", b)
	}
	var back informer.Status
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, back); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
}

// TestFactoryStatus checks the status of every informer that has not ended, sorted by
// scope.
func TestFactoryStatus(t *testing.T) {
	t.Parallel()
	w := newFactoryWorld(t, &cluster{uid: "one", rv: "10", objects: []string{"a", "b"}, watched: make(chan string, 10)})
	never := w.make("two")
	stop := w.run(w.make("one"))
	stopAll := w.run(w.make(""))
	defer stopAll()
	if diff := cmp.Diff([]string{" not started", "configmaps/ ", "configmaps/one "}, w.statuses()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := never.(*informer.Informer).Status(); s.Scope.ID != "" || s.Scope.Resource != "configmaps" {
		t.Errorf("before it runs, its scope is %+v", s.Scope)
	}
	stop()
	if diff := cmp.Diff([]string{" not started", "configmaps/ "}, w.statuses()); diff != "" {
		t.Errorf("after one has ended (-want +got):\n%s", diff)
	}
}

// TestFileCannotBeUsed checks that an informer whose file cannot be used runs in memory,
// and that log, status and change of the file say so.
func TestFileCannotBeUsed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.run(informer.Options{}).sync().end()
		if err := os.Link(w.path, w.path+".link"); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(w.path)
		if err != nil {
			t.Fatal(err)
		}
		w.put("a", "2")
		l := &log{}
		r := w.run(informer.Options{}, func(inf *informer.Informer) {
			if _, err := inf.AddEventHandler(l); err != nil {
				t.Fatal(err)
			}
		}).sync()
		w.want(l, "initial a@3=2")
		s := r.inf.Status()
		if s.Persisted || !strings.Contains(s.Memory, "hard links") || s.Commits == nil || !s.Commits.Degraded || s.Commits.Error != s.Memory || s.File != "" {
			t.Errorf("%+v, commits %+v", s, s.Commits)
		}
		r.end()
		after, err := os.ReadFile(w.path)
		if err != nil || !bytes.Equal(before, after) {
			t.Errorf("the file has changed (%v)", err)
		}
	})
}

// factoryWorld is a factory and the server of its informers.
type factoryWorld struct {
	*testing.T
	factory *informer.Factory
	client  kubernetes.Interface
}

func newFactoryWorld(t *testing.T, c *cluster) *factoryWorld {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	db := (&world{T: t, path: filepath.Join(t.TempDir(), "informers.db")}).open()
	t.Cleanup(func() { _ = db.Close() })
	cfg := &rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}}
	factory, client := clientOf(t, db, cfg, informer.FactoryOptions{})
	return &factoryWorld{t, factory, client}
}

// make creates an informer of the ConfigMaps in a namespace.
func (w *factoryWorld) make(namespace string) cache.SharedIndexInformer {
	lw := cache.NewListWatchFromClient(w.client.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything())
	return w.factory.NewInformer(lw, &corev1.ConfigMap{}, 0, nil)
}

// TestInformersInOrder checks that a factory returns its informers in one order, so that
// of two that cannot be told apart it is always the same one that metrics are of.
func TestInformersInOrder(t *testing.T) {
	w := newFactoryWorld(t, &cluster{uid: "one", rv: "10"})
	var want []*informer.Informer
	for range 20 {
		inf, ok := w.make("default").(*informer.Informer)
		if !ok {
			t.Fatal("not an informer of the factory")
		}
		want = append(want, inf)
	}
	if got := w.factory.Informers(); !slices.Equal(got, want) {
		t.Error("not in the order in which they were made")
	}
}

// run starts an informer and waits until it has synced; stop stops it.
func (w *factoryWorld) run(inf cache.SharedIndexInformer) (stop func()) { return runSynced(w, inf) }

// runSynced starts an informer and waits until it has synced; stop stops it.
func runSynced(t testing.TB, inf cache.SharedIndexInformer) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	<-inf.HasSyncedChecker().Done()
	return func() {
		cancel()
		<-done
	}
}

func (w *factoryWorld) statuses() (lines []string) {
	for _, s := range w.factory.Status() {
		line := ""
		if s.CaughtUp {
			line = s.Scope.Resource + "/" + s.Scope.Namespace
		}
		lines = append(lines, line+" "+s.Behind)
	}
	return lines
}
