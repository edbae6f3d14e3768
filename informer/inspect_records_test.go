package informer_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/wire"
)

// parts requests keys or records from a handler.
func parts(t *testing.T, h http.Handler, path string) wire.Answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != http.StatusOK {
		t.Errorf("%s: %d %s", path, w.Code, w.Body.String())
		return wire.Answer{}
	}
	answer, err := wire.Read(w.Body)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return answer
}

func fileOf(t *testing.T, h http.Handler) (file wire.File) {
	t.Helper()
	status, lines := get(h, "/v1/file")
	if err := json.Unmarshal([]byte(lines[0]), &file); err != nil || status != http.StatusOK {
		t.Errorf("/v1/file: %d %s", status, lines)
	}
	return file
}

// TestEndpointAheadOfCommit checks that answers about a scope match its lister before the
// changes are in the file, from the first list on.
func TestEndpointAheadOfCommit(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		r := w.run(informer.Options{Indexes: []index.Index{index.Label("app")}}, func(inf *informer.Informer) {
			if _, err := inf.AddEventHandler(&log{}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		h := handlerOf(r.inf)
		for _, name := range []string{"", "b", "c"} {
			if name != "" {
				w.put(name, "x")
				synctest.Wait()
			}
			stored, err := r.db.Scopes()
			if err != nil {
				t.Fatal(err)
			}
			file := fileOf(t, h)
			if len(file.Scopes) != 1 {
				t.Fatalf("scopes %+v", file.Scopes)
			}
			got, s := file.Scopes[0], r.inf.GetStore()
			if !got.Complete || got.Objects != len(s.ListKeys()) || got.Checkpoint.RV != s.LastStoreSyncResourceVersion() ||
				len(got.Indexes) != 1 || got.Codec == "" || got.TypeFingerprint == "" {
				t.Errorf("it says %+v; the lister has %d objects up to %s", got, len(s.ListKeys()), s.LastStoreSyncResourceVersion())
			}
			if len(stored) == 1 && stored[0].Checkpoint.RV == got.Checkpoint.RV {
				t.Errorf("the file has %+v already: this proves nothing", stored[0])
			}
		}
		r.end()
	})
}

// TestEndpointRecords checks that keys and records are those that readers of the informer
// see. Those of an informer that has not opened its scope come from the file, and those
// of an informer in memory from the informer.
func TestEndpointRecords(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		w.put("b", "y")
		w.put("c", "y")
		opts := informer.Options{Indexes: []index.Index{index.Label("app"), index.Namespace()}}
		r := w.run(opts).sync()
		scope := r.inf.Scope()
		id := scope.ID()
		check := func(h http.Handler, want string) {
			t.Helper()
			for question, want := range map[string]string{
				"keys?scope=" + id: want,
				"keys?scope=" + id + "&index=" + url.QueryEscape("label:app") + "&value=y":       "default/b default/c",
				"keys?scope=" + id + "&selector=" + url.QueryEscape("app in (x)"):                "default/a",
				"keys?scope=" + id + "&key=default/c&key=default/nosuch&key=default/a":           "default/a default/c",
				"records?scope=" + id + "&have=2-00000000,x&key=default/b&key=x/y&key=default/a": "default/b default/a",
				"keys?scope=" + id + "&index=namespace&value=nosuch":                             "",
				"headers?scope=" + id + "&key=default/b&key=x/y&key=default/a":                   "default/b default/a",
				"records?scope=" + id + "&secrets=show":                                          "",
				"keys?scope=" + id + "&selector=" + url.QueryEscape("app,app notin (x, y)"):      "",
			} {
				answer := parts(t, h, "/v1/"+question)
				keys := answer.Keys
				for _, header := range answer.Headers {
					keys = append(keys, header.Key)
				}
				for _, record := range answer.Records {
					keys = append(keys, record.Key)
					obj, err := codec.DecodeAny(record.Codec, scope.Kind, record.Payload)
					if err != nil || obj.GetObjectKind() == nil {
						t.Errorf("%s: %s cannot be read: %v", question, record.Key, err)
					}
				}
				if got := strings.Join(keys, " "); got != want {
					t.Errorf("%s: %q, want %q", question, got, want)
				}
			}
		}
		h := handlerOf(r.inf)
		check(h, "default/a default/b default/c")
		// A header has what a table of any kind needs, and what a selector does.
		if _, err := w.server.Update(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "c", Labels: map[string]string{"app": "y"}, CreationTimestamp: metav1.NewTime(time.Unix(1_780_000_000, 0)),
		}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		some := parts(t, h, "/v1/headers?scope="+id+"&key=default/c&key=default/a")
		if len(some.Headers) != 2 || some.Headers[0].Key != "default/c" || some.Headers[0].Created.Unix() != 1_780_000_000 ||
			some.Headers[0].Labels["app"] != "y" || some.Headers[1].Key != "default/a" || !some.Headers[1].Created.IsZero() || len(some.Records) > 0 {
			t.Errorf("headers %+v", some)
		}
		if file := fileOf(t, h); file.Path != w.path || file.Inode == 0 || len(file.Scopes) != 1 || file.Scopes[0].ID != id || len(file.Memory) != 0 {
			t.Errorf("file %+v", file)
		}
		// A second informer of the scope runs in memory, so the first one is asked.
		opts.Backend = r.db
		second := w.run(opts).sync()
		both := inspect.NewHandler(inspect.Of(r.db, second.inf, r.inf))
		if file := fileOf(t, both); len(file.Memory) != 0 {
			t.Errorf("file %+v", file)
		}
		if file := fileOf(t, handlerOf(second.inf)); len(file.Memory) != 1 || file.Memory[0].ID != id || !file.Memory[0].Complete || file.Memory[0].Objects != 3 {
			t.Errorf("file %+v", file)
		}
		check(both, "default/a default/b default/c")
		check(handlerOf(second.inf), "default/a default/b default/c")
		second.end()
		// The first one has ended: the one that runs answers.
		r.end()
		opts.Backend = nil // that of the world
		again := w.run(opts).sync()
		check(inspect.NewHandler(inspect.Of(informer.BackendOf(again.inf), r.inf, again.inf)), "default/a default/b default/c")
		again.end()

		db := w.open()
		defer func() { _ = db.Close() }()
		idle, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{Backend: db, Scope: scope})
		if err != nil {
			t.Fatal(err)
		}
		check(inspect.NewHandler(inspect.Of(db, idle)), "default/a default/b default/c")
		check(inspect.NewHandler(inspect.Of(db)), "default/a default/b default/c")
	})
}

// TestEndpointRecordsRefuses checks that a wrong request gets one line that names the
// right one.
func TestEndpointRecordsRefuses(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		r := w.run(informer.Options{Indexes: []index.Index{index.Namespace()}}).sync()
		defer r.end()
		h := handlerOf(r.inf)
		type answer struct {
			Status int
			Error  string
		}
		for question, want := range map[string]answer{
			"keys?scope=nosuch":                   {404, `scope "nosuch" is not known; there are ` + r.inf.Scope().ID() + " (configmaps)"},
			"keys?index=nosuch&value=x":           {404, `index "nosuch" is not known; there are namespace`},
			"keys?selector=%3D":                   {400, `selector "=": `},
			"records?secrets=x":                   {400, `secrets is "x", want redact or show`},
			"records?have=1&have=2":               {400, `parameter "have" is given 2 times, want it once`},
			"objects?limit=1&limit=2":             {400, `parameter "limit" is given 2 times, want it once`},
			"file?scope=" + r.inf.Scope().ID():    {400, `parameter "scope" is not known; /v1/file takes none`},
			"index?name=namespace&secrets=nosuch": {400, `secrets is "nosuch", want redact or show`},
		} {
			status, lines := get(h, "/v1/"+question)
			var got struct{ Error string }
			if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || status != want.Status || !strings.HasPrefix(got.Error, want.Error) {
				t.Errorf("%s: (-want +got)\n%s", question, cmp.Diff(want, answer{status, lines[0]}))
			}
		}
		memory, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if status, lines := get(handlerOf(memory), "/v1/file"); status != http.StatusNotFound || !strings.Contains(lines[0], "in memory") {
			t.Errorf("without a file: %d %s", status, lines)
		}
	})
}
