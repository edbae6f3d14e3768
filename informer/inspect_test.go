package informer_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

// handlerOf returns the HTTP handler of one informer.
func handlerOf(inf *informer.Informer) http.Handler {
	return inspect.NewHandler(inspect.Of(informer.BackendOf(inf), inf))
}

// get sends a request to a handler and returns the lines of the answer.
func get(h http.Handler, path string) (status int, lines []string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
}

// summary returns a short form of a line.
func summary(line string) string {
	var l struct {
		Type       string
		Kind       string
		APIVersion string
		Metadata   metav1.ObjectMeta
		Object     *struct {
			Metadata metav1.ObjectMeta
			Data     map[string]string
		}
		Error string
	}
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return err.Error() + ": " + line
	}
	switch {
	case l.Error != "":
		return "error: " + l.Error
	case l.Object != nil:
		return fmt.Sprintf("%s %s=%s", l.Type, l.Object.Metadata.Name, l.Object.Data["v"])
	case l.Kind != "":
		return fmt.Sprintf("%s %s %s", l.APIVersion, l.Kind, l.Metadata.Name)
	}
	return line
}

func summaries(lines []string) (out []string) {
	for _, line := range lines {
		if line != "" {
			out = append(out, summary(line))
		}
	}
	return out
}

// TestEndpointReads checks the answer of each path.
func TestEndpointReads(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		w.put("b", "y")
		w.put("c", "y")
		if _, err := w.server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "d"}}); err != nil {
			t.Fatal(err)
		}
		r := w.run(informer.Options{Indexes: []index.Index{index.Label("app"), index.Namespace()}}).sync()
		h := handlerOf(r.inf)
		id := r.inf.Scope().ID()
		label, namespace := index.Label("app").Name, index.Namespace().Name
		for path, want := range map[string][]string{
			"/v1/objects": {"v1 ConfigMap a", "v1 ConfigMap b", "v1 ConfigMap c", "v1 ConfigMap d"},
			"/v1/objects?scope=" + id + "&namespace=default&limit=2":           {"v1 ConfigMap a", "v1 ConfigMap b"},
			"/v1/objects?scope=configmaps&limit=2&after=default/b":             {"v1 ConfigMap c", "v1 ConfigMap d"},
			"/v1/objects?selector=app%3Dy":                                     {"v1 ConfigMap b", "v1 ConfigMap c"},
			"/v1/objects?selector=app%3Dnone":                                  nil,
			"/v1/objects?key=other/d&key=no/d":                                 {"v1 ConfigMap d"},
			"/v1/objects?index=" + label + "&value=y":                          {"v1 ConfigMap b", "v1 ConfigMap c"},
			"/v1/objects?index=" + label + "&value=y&after=default/b":          {"v1 ConfigMap c"},
			"/v1/objects?index=" + namespace + "&value=default&selector=app=x": {"v1 ConfigMap a"},
			"/v1/index?name=" + label:                                          {`{"value":"x","count":1}`, `{"value":"y","count":2}`},
			"/v1/index?limit=1&name=" + label:                                  {`{"value":"x","count":1}`},
			"/v1/index?after=x&name=" + label:                                  {`{"value":"y","count":2}`},
		} {
			status, lines := get(h, path)
			if diff := cmp.Diff(want, summaries(lines)); diff != "" || status != http.StatusOK {
				t.Errorf("%s: status %d (-want +got):\n%s", path, status, diff)
			}
		}
		var indexes []index.Index
		if _, lines := get(h, "/v1/indexes"); json.Unmarshal([]byte(lines[0]), &indexes) != nil || len(indexes) != 2 ||
			!strings.Contains(lines[0], fmt.Sprintf("%q", index.Label("app").Identity())) {
			t.Errorf("indexes: %s", lines)
		}
		var scopes []struct {
			ID, Resource string
			Objects      int
		}
		if _, lines := get(h, "/v1/scopes"); json.Unmarshal([]byte(lines[0]), &scopes) != nil || len(scopes) != 1 ||
			scopes[0].ID != id || scopes[0].Resource != "configmaps" || scopes[0].Objects != 4 {
			t.Errorf("scopes: %+v", scopes)
		}
		var all []informer.Status
		if _, lines := get(h, "/v1/status"); json.Unmarshal([]byte(lines[0]), &all) != nil || len(all) != 1 || all[0].Objects != 4 {
			t.Errorf("status: %+v", all)
		}
		r.end()
		if status, lines := get(h, "/v1/objects"); status != http.StatusServiceUnavailable || !strings.Contains(lines[0], "closed") {
			t.Errorf("after the database was closed: %d %s", status, lines)
		}
	})
}

// TestEndpointReadsMany checks an answer of more than a chunk: each object appears once.
func TestEndpointReadsMany(t *testing.T) {
	inBubble(t, func(w *world) {
		want := make([]string, 600)
		for i := range want {
			name := fmt.Sprintf("o-%03d", i)
			w.put(name, "x")
			want[i] = "v1 ConfigMap " + name
		}
		r := w.run(informer.Options{Indexes: []index.Index{index.Label("app")}}).sync()
		for path, want := range map[string][]string{
			"/v1/objects":             want,
			"/v1/objects?limit=300":   want[:300],
			"/v1/objects?limit=256":   want[:256],
			"/v1/objects?limit=10000": want,
			"/v1/objects?index=" + index.Label("app").Name + "&value=x": want,
		} {
			_, lines := get(handlerOf(r.inf), path)
			if diff := cmp.Diff(want, summaries(lines)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
		r.end()
	})
}

// TestEndpointRefuses checks that a wrong request gets one line that names the right one.
func TestEndpointRefuses(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		r := w.run(informer.Options{Indexes: []index.Index{index.Label("app")}}).sync()
		h := handlerOf(r.inf)
		label := index.Label("app").Name
		for _, c := range []struct {
			method, path string
			status       int
			text         string
		}{
			{"POST", "/v1/objects", 405, "only GET"},
			{"HEAD", "/v1/status", 405, "only GET"},
			{"GET", "/v1/pods", 404, "/v1/objects"},
			{"GET", "/", 404, "/v1/status"},
			{"GET", "/v1/objects?scope=pods", 404, r.inf.Scope().ID() + " (configmaps)"},
			{"GET", "/v1/objects?label=x", 400, "takes scope, namespace, selector"},
			{"GET", "/v1/status?scope=x", 400, "takes none"},
			{"GET", "/v1/objects?limit=1&limit=2", 400, "want it once"},
			{"GET", "/v1/objects?limit=-1", 400, "want a number from 1 on"},
			{"GET", "/v1/objects?selector=((", 400, "app=web"},
			{"GET", "/v1/objects?secrets=yes", 400, "want redact or show"},
			{"GET", "/v1/objects?%zz", 400, "parameters cannot be read"},
			{"GET", "/v1/object?key=default/a", 404, "/v1/objects"},
			{"GET", "/v1/query?index=" + label + "&value=x", 404, "/v1/objects"},
			{"GET", "/v1/objects?value=x", 400, "index is missing"},
			{"GET", "/v1/headers?have=&secrets=redact", 400, "is not known; /v1/headers takes"},
			{"GET", "/v1/history?secrets=redact&follow=false", 400, "is not known; /v1/history takes"},
			{"GET", "/v1/log?since=yesterday", 400, "want a time"},
			{"GET", "/v1/log?after=x", 400, "want a place"},
			{"GET", "/v1/index", 400, label},
			{"GET", "/v1/index?name=no", 404, label},
			{"GET", "/v1/objects?index=no&value=x", 404, label},
			{"GET", "/v1/objects?index=" + label, 400, "value is missing"},
			{"GET", "/v1/changes?since=before", 400, "want now"},
			{"GET", "/v1/changes?initial=1", 400, "want false or true"},
		} {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(c.method, c.path, nil))
			var body struct{ Error string }
			if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil || rec.Code != c.status || !strings.Contains(body.Error, c.text) {
				t.Errorf("%s %s: %d %s, want %d with %q", c.method, c.path, rec.Code, rec.Body, c.status, c.text)
			}
		}
		r.end()
	})
}

// TestEndpointNotOpened checks that nothing is read of an informer that has not opened
// its scope, which would seem to be empty, and that what is in the file already can be.
func TestEndpointNotOpened(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		w.run(informer.Options{Indexes: []index.Index{index.Namespace()}}).sync().end()
		db := w.open()
		inf, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{Backend: db, Indexes: []index.Index{index.Namespace()}})
		if err != nil {
			t.Fatal(err)
		}
		h := handlerOf(inf)
		for path, want := range map[string]int{
			"/v1/objects":                               503,
			"/v1/objects?key=default/a":                 503,
			"/v1/objects?index=namespace&value=default": 503,
			"/v1/indexes":                               503,
			"/v1/index?name=namespace":                  200,
			"/v1/keys":                                  200,
			"/v1/keys?scope=configmaps":                 200,
			"/v1/records?key=default/a":                 200,
			"/v1/headers?key=default/a":                 200,
			"/v1/history?scope=configmaps":              200,
			"/v1/status":                                200,
			"/v1/scopes":                                200,
			"/v1/file":                                  200,
			"/v1/objects?scope=pods":                    404,
		} {
			status, lines := get(h, path)
			if status != want || lines[0] == "" || want == 503 && !strings.Contains(lines[0], "has not opened") {
				t.Errorf("%s: %d %s, want %d", path, status, lines, want)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		inf, err = informer.New(w.server, &corev1.ConfigMap{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h = handlerOf(inf)
		for _, path := range []string{"/v1/keys", "/v1/records?key=default/a", "/v1/headers?key=default/a", "/v1/history", "/v1/index?name=namespace"} {
			if status, lines := get(h, path); status != 503 {
				t.Errorf("%s in memory: %d %s, want 503", path, status, lines)
			}
		}
	})
}

// TestEndpointOfFactory checks that a scope is found by its ID, and by its resource if
// that is unique.
func TestEndpointOfFactory(t *testing.T) {
	t.Parallel()
	w := newFactoryWorld(t, &cluster{uid: "one", rv: "10", objects: []string{"a", "b"}, watched: make(chan string, 10)})
	h := inspect.NewHandler(w.factory)
	if status, lines := get(h, "/v1/objects"); status != 404 || !strings.Contains(lines[0], "there is no informer") {
		t.Errorf("without informers: %d %s", status, lines)
	}
	defer w.run(w.make(""))()
	if status, lines := get(h, "/v1/objects?scope=configmaps"); status != 200 || len(lines) != 2 {
		t.Errorf("with one: %d %s", status, lines)
	}
	defer w.run(w.make("one"))()
	status, lines := get(h, "/v1/objects?scope=configmaps")
	all := w.factory.Status()
	if status != 400 || !strings.Contains(lines[0], all[0].Scope.ID) || !strings.Contains(lines[0], all[1].Scope.ID) {
		t.Errorf("with two: %d %s", status, lines)
	}
	if status, lines := get(h, "/v1/objects?scope="+all[1].Scope.ID); status != 200 || len(lines) != 2 {
		t.Errorf("by ID: %d %s", status, lines)
	}
}

// TestEndpointRedactsSecrets checks that Secrets are redacted in every form, in every
// answer that contains objects.
func TestEndpointRedactsSecrets(t *testing.T) {
	metadata := metav1.ObjectMeta{Namespace: "default", Name: "s", Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation: `{"data":{"password":"aHVudGVyMg=="}}`,
	}}
	kind := metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	typed := &corev1.Secret{
		ObjectMeta: metadata, Data: map[string][]byte{"password": []byte("hunter2")},
		StringData: map[string]string{"token": "aHVudGVyMg=="},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	free := &unstructured.Unstructured{Object: content}
	free.SetGroupVersionKind(kind.GroupVersionKind())
	freeList := &unstructured.UnstructuredList{}
	freeList.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	for name, c := range map[string]struct{ example, obj, list runtime.Object }{
		"typed":        {&corev1.Secret{}, typed, &corev1.SecretList{}},
		"unstructured": {&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}, free, freeList},
		"metadata": {
			&metav1.PartialObjectMetadata{TypeMeta: kind},
			&metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: metadata},
			&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PartialObjectMetadataList"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakeapi.New(c.example, c.list, fakeapi.Options{})
				if _, err := server.Create(c.obj); err != nil {
					t.Fatal(err)
				}
				inf, err := informer.New(server, c.example, informer.Options{})
				if err != nil {
					t.Fatal(err)
				}
				r := &run{w: &world{T: t}, inf: inf, done: make(chan struct{})}
				r.start()
				r.sync()
				client := serveInBubble(t, handlerOf(inf))
				for _, path := range []string{"/v1/objects", "/v1/objects?key=default/s", "/v1/changes?initial=true"} {
					hidden := client.firstLine(path)
					if strings.Contains(hidden, "aHVudGVyMg") || !strings.Contains(hidden, "REDACTED") {
						t.Errorf("%s: %s", path, hidden)
					}
					sep := "?"
					if strings.Contains(path, sep) {
						sep = "&"
					}
					if shown := client.firstLine(path + sep + "secrets=show"); !strings.Contains(shown, "aHVudGVyMg") || strings.Contains(shown, "REDACTED") {
						t.Errorf("%s shown: %s", path, shown)
					}
				}
				client.end()
				r.end()
			})
		})
	}
}

// bubbleClient talks to a server over pipes, because a synctest bubble allows no network.
type bubbleClient struct {
	*testing.T
	http.Client
	server *http.Server
	pipes  *pipes
	served sync.WaitGroup
}

type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func serveInBubble(t *testing.T, h http.Handler) *bubbleClient {
	t.Helper()
	c := &bubbleClient{T: t, server: &http.Server{Handler: h}, pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
	c.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			c.pipes.conns <- server
			return client, nil
		},
	}
	c.served.Go(func() { _ = c.server.Serve(c.pipes) })
	return c
}

func (c *bubbleClient) end() {
	_ = c.server.Close()
	c.served.Wait()
	synctest.Wait()
}

// stream is an answer that is read line by line.
type stream struct {
	*http.Response
	lines *bufio.Scanner
}

func (c *bubbleClient) open(path string) *stream {
	c.Helper()
	r, err := c.Get("http://informer" + path)
	if err != nil {
		c.Fatal(err)
	}
	s := &stream{r, bufio.NewScanner(r.Body)}
	s.lines.Buffer(nil, 1<<20)
	return s
}

func (s *stream) next() string {
	if !s.lines.Scan() {
		return "end"
	}
	return s.lines.Text()
}

func (s *stream) close() { _ = s.Body.Close() }

func (c *bubbleClient) firstLine(path string) string {
	c.Helper()
	s := c.open(path)
	defer s.close()
	return s.next()
}

// TestEndpointChanges checks that changes come at once and in order, and that the event
// handler is removed when its client disconnects.
func TestEndpointChanges(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		r := w.run(informer.Options{}).sync()
		client := serveInBubble(t, handlerOf(r.inf))
		now, all := client.open("/v1/changes?since=now"), client.open("/v1/changes?initial=true")
		for _, want := range []string{"INITIAL a=1", "INITIAL b=1"} {
			if got := summary(all.next()); got != want {
				t.Errorf("there at first: %q, want %q", got, want)
			}
		}
		changes := []struct {
			do   func()
			want string
		}{
			{func() { w.put("c", "1") }, "ADDED c=1"},
			{func() { w.put("a", "2") }, "MODIFIED a=2"},
			{func() { w.drop("b") }, "DELETED b=1"},
		}
		for _, c := range changes {
			c.do()
			for name, s := range map[string]*stream{"from now": now, "all": all} {
				if got := summary(s.next()); got != c.want {
					t.Errorf("%s: %q, want %q", name, got, c.want)
				}
			}
		}
		if n := len(r.inf.Status().Handlers); n != 2 {
			t.Errorf("%d handlers with two clients", n)
		}
		now.close()
		synctest.Wait()
		if n := len(r.inf.Status().Handlers); n != 1 {
			t.Errorf("%d handlers when one client has left", n)
		}
		waitFor(time.Hour)
		r.end()
		if got := summary(all.next()); !strings.Contains(got, "stopped") || all.next() != "end" {
			t.Errorf("when the informer has ended: %q", got)
		}
		client.end()
	})
}

// TestEndpointChangesOfColdStart checks that everything that happens after the request is
// a change, even if the informer has just started.
func TestEndpointChangesOfColdStart(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.server.Hold()
		r := w.run(informer.Options{})
		waitFor(time.Second)
		client := serveInBubble(t, handlerOf(r.inf))
		s := client.open("/v1/changes")
		w.server.Release()
		if got := summary(s.next()); got != "ADDED a=1" {
			t.Errorf("told %q", got)
		}
		s.close()
		client.end()
		r.end()
	})
}

// TestEndpointSlowClient checks that a client that reads nothing is disconnected, and
// that no entries are queued for it, whether it has requested the initial objects or not.
func TestEndpointSlowClient(t *testing.T) {
	for _, path := range []string{"/v1/changes", "/v1/changes?initial=true"} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, func(w *world) {
				for i := range 2000 {
					w.put(fmt.Sprintf("o-%04d", i), "1")
				}
				r := w.run(informer.Options{}).sync()
				client := serveInBubble(t, handlerOf(r.inf))
				s := client.open(path)
				for i := range 2000 {
					w.put(fmt.Sprintf("o-%04d", i), "2")
				}
				waitFor(300 * time.Millisecond)
				// The client may be disconnected already, if many changes came before the
				// initial objects.
				if h := r.inf.Status().Handlers; len(h) > 0 && h[0].Waiting > 0 {
					t.Errorf("behind a client that takes nothing: %+v", h)
				}
				waitFor(6 * time.Second)
				if h := r.inf.Status().Handlers; len(h) != 0 {
					t.Errorf("after 6 seconds there still is %+v", h)
				}
				s.close()
				client.end()
				r.end()
			})
		})
	}
}

// TestEndpointTrickle checks that a client that reads the initial objects one by one, so
// that changes are queued behind them, is disconnected, too.
func TestEndpointTrickle(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 4000 {
			w.put(fmt.Sprintf("o-%04d", i), "1")
		}
		r := w.run(informer.Options{}).sync()
		client := serveInBubble(t, handlerOf(r.inf))
		s := client.open("/v1/changes?initial=true")
		read := 0
		for line := ""; line != "end"; read++ {
			line = s.next()
			waitFor(100 * time.Millisecond)
			for i := range 100 {
				w.put(fmt.Sprintf("o-%04d", i), fmt.Sprint(read))
			}
			synctest.Wait()
			if h := r.inf.Status().Handlers; len(h) == 1 && h[0].Waiting > 3000 {
				t.Fatalf("after %d lines: %+v", read, h)
			}
			if read > 200 {
				t.Fatal("it is still there")
			}
		}
		client.end()
		r.end()
	})
}

// TestEndpointBusy checks that four requests read objects at a time. The next one waits
// and is then refused.
func TestEndpointBusy(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 100 {
			w.put(fmt.Sprintf("o-%03d", i), strings.Repeat("x", 60))
		}
		r := w.run(informer.Options{}).sync()
		client := serveInBubble(t, handlerOf(r.inf))
		var streams []*stream
		for range 4 {
			streams = append(streams, client.open("/v1/objects"))
		}
		begin := time.Now()
		s := client.open("/v1/objects")
		if took := time.Since(begin); s.StatusCode != 503 || took != 5*time.Second || !strings.Contains(s.next(), "busy with 4") {
			t.Errorf("fifth: %d after %s", s.StatusCode, took)
		}
		if status, _ := get(handlerOf(r.inf), "/v1/status"); status != 200 {
			t.Errorf("status, which reads no objects: %d", status)
		}
		waitFor(time.Minute) // none of them reads, so all are disconnected
		if s := client.open("/v1/objects"); s.StatusCode != 200 {
			t.Errorf("when the others are gone: %d", s.StatusCode)
		} else {
			_, _ = io.Copy(io.Discard, s.Body)
		}
		for _, s := range streams {
			s.close()
		}
		client.end()
		r.end()
	})
}

// TestEndpointSnapshot checks that the copy is a database as after a commit, and that no
// file remains in the directory.
func TestEndpointSnapshot(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		r := w.run(informer.Options{}).sync()
		waitFor(2 * time.Second)
		w.put("a", "2") // pending
		synctest.Wait()
		rec := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		handlerOf(r.inf).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/snapshot", nil))
		if len(rec.set) < 2 || !rec.set[1].IsZero() {
			t.Errorf("deadlines %v: the copy has one, at which HTTP/2 ends the answer", rec.set)
		}
		if got := rec.Header().Get("Content-Length"); rec.Code != 200 || got != fmt.Sprint(rec.Body.Len()) {
			t.Errorf("%d, %s of %d bytes", rec.Code, got, rec.Body.Len())
		}
		names, err := filepath.Glob(filepath.Join(filepath.Dir(w.path), "*"))
		if diff := cmp.Diff([]string{w.path, w.path + ".lock"}, names); diff != "" || err != nil {
			t.Errorf("files, %v (-want +got):\n%s", err, diff)
		}
		path := filepath.Join(filepath.Dir(w.path), "copy.db")
		if err := os.WriteFile(path, rec.Body.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if objects, cp := w.stored(path); !slices.Equal(objects, []string{"a@2=1", "b@3=1"}) || cp.RV != "3" {
			t.Errorf("copied: %v at %+v", objects, cp)
		}
		r.end()
		if status, lines := get(handlerOf(r.inf), "/v1/snapshot"); status != 503 {
			t.Errorf("of a closed database: %d %s", status, lines)
		}
		memory, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if status, lines := get(handlerOf(memory), "/v1/snapshot"); status != 404 || !strings.Contains(lines[0], "in memory") {
			t.Errorf("of memory: %d %s", status, lines)
		}
	})
}

// TestEndpointQuietFollowers checks that clients who follow a scope that does not change
// hold no place of those that read objects, from the end of the log and from a checkpoint
// that bookmarks have moved beyond it.
func TestEndpointQuietFollowers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.run(informer.Options{}).sync().end()
		r := w.run(informer.Options{}).sync()
		w.passMinutes(3)
		commit()
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		_, lines := get(h, "/v1/history?scope=configmaps")
		var log store.LogState
		if err := json.Unmarshal([]byte(lines[0]), &log); err != nil {
			t.Fatalf("%v: %s", err, lines)
		}
		last, err := json.Marshal(log.Last)
		if err != nil {
			t.Fatal(err)
		}
		rv := r.inf.LastSyncResourceVersion()
		if rv == log.Last.RV {
			t.Fatalf("the checkpoint %s has not moved: this tests nothing", rv)
		}
		for _, path := range []string{"/v1/log?after=" + url.QueryEscape(string(last)), "/v1/changes?since=" + rv} {
			var streams []*stream
			for range 5 {
				s := client.open(path)
				if streams = append(streams, s); s.StatusCode != http.StatusOK {
					t.Errorf("%s: %s %s", path, s.Status, s.next())
				}
			}
			begin := time.Now()
			if status, lines := get(h, "/v1/objects"); status != http.StatusOK || time.Since(begin) > 0 {
				t.Errorf("%s: objects are read after %s: %d %s", path, time.Since(begin), status, lines)
			}
			for _, s := range streams {
				s.close()
			}
			waitFor(time.Minute)
		}
		client.end()
		r.end()
	})
}

// deadlines is a ResponseWriter that has the deadlines of writes.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func (d *deadlines) last() time.Time { return d.set[len(d.set)-1] }

// TestEndpointQuietDeadline checks that no deadline runs while a follower has nothing to
// receive: HTTP/2 would end its answer.
func TestEndpointQuietDeadline(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		r := w.run(informer.Options{}).sync()
		commit()
		h := handlerOf(r.inf)
		for _, path := range []string{"/v1/changes", "/v1/changes?since=" + r.inf.LastSyncResourceVersion(), "/v1/log?scope=configmaps"} {
			ctx, cancel := context.WithCancel(w.Context())
			answer := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			served := make(chan struct{})
			go func() {
				defer close(served)
				h.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
			}()
			synctest.Wait()
			if !answer.last().IsZero() {
				t.Errorf("%s: the answer ends at %s, now it is %s", path, answer.last(), time.Now())
			}
			cancel()
			<-served
		}
		r.end()
	})
}

// TestEndpointUnreadAnswers checks that a client that reads nothing, or a little now and
// then, occupies its place only for a limited time, whatever it requests.
func TestEndpointUnreadAnswers(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 3000 { // more than the buffers of a connection hold
			w.put(fmt.Sprintf("o-%03d", i), fmt.Sprintf("%060d", i))
		}
		r := w.run(informer.Options{Indexes: []index.Index{index.Label("app")}})
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		r.sync()
		rv := w.server.RV()
		for i := range 300 {
			w.put(fmt.Sprintf("o-%03d", i), "x")
		}
		waitFor(2 * time.Second)
		for _, path := range []string{
			"/v1/objects", "/v1/keys", "/v1/index?name=" + index.Label("app").Name,
			"/v1/changes?initial=true", "/v1/changes?since=" + rv,
		} {
			for _, every := range []time.Duration{time.Hour, 8 * time.Second} {
				var streams []*stream
				for range 4 {
					streams = append(streams, client.open(path))
				}
				stop, read := make(chan struct{}), sync.WaitGroup{}
				for _, s := range streams {
					read.Go(func() {
						tick := time.NewTicker(every)
						defer tick.Stop()
						for b := make([]byte, 4096); ; {
							select {
							case <-stop:
								return
							case <-tick.C:
								_, _ = s.Body.Read(b)
							}
						}
					})
				}
				synctest.Wait() // the header comes before the place is taken
				begin := time.Now()
				if _, lines := get(h, "/v1/objects?key=default/o-000"); !strings.Contains(lines[0], "busy") && time.Since(begin) < 4*time.Second {
					t.Errorf("%s, read every %s: has no place", path, every)
				}
				waitFor(3 * time.Minute)
				begin = time.Now()
				if status, _ := get(h, "/v1/objects?key=default/o-000"); status != 200 || time.Since(begin) > 0 {
					t.Errorf("%s, read every %s: after 3 minutes it has its place still", path, every)
				}
				close(stop)
				read.Wait()
				for _, s := range streams {
					s.close()
				}
				waitFor(time.Minute)
			}
		}
		client.end()
		r.end()
	})
}

// TestEndpointCutsWhatIsNotWhole checks that an answer with an end is cut off if the
// process ends before it, instead of seeming to be whole and empty.
func TestEndpointCutsWhatIsNotWhole(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		r := w.run(informer.Options{}).sync()
		h := handlerOf(r.inf)
		for _, path := range []string{"/v1/objects", "/v1/keys", "/v1/records?key=default/a", "/v1/headers?key=default/a"} {
			ctx, cancel := context.WithCancel(w.Context())
			cancel()
			path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "notOlderThan=99999"
			func() {
				defer func() {
					if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares it
						t.Errorf("%s: %v", path, cause)
					}
				}()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
			}()
		}
		r.end()
	})
}
