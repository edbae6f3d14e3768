package informer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
)

// since requests the changes after a resource version.
func (c *bubbleClient) since(rv string) *stream {
	c.Helper()
	return c.open("/v1/changes?since=" + rv)
}

// wantNext checks the next lines.
func (s *stream) wantNext(t *testing.T, what string, want ...string) {
	t.Helper()
	for _, want := range want {
		if got := summary(s.next()); got != want {
			t.Errorf("%s: told %q, want %q", what, got, want)
		}
	}
}

// askSince asks for the changes after a resource version, for a minute: an accepted
// request does not end.
func askSince(h http.Handler, rv string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/v1/changes?since="+rv, http.NoBody)
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	h.ServeHTTP(w, r.WithContext(ctx))
	return w
}

// wantRefused checks the status and the error of a request for the changes after a
// resource version.
func wantRefused(t *testing.T, h http.Handler, rv string, status int, says string) {
	t.Helper()
	w := askSince(h, rv)
	var body struct{ Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != status || !strings.Contains(body.Error, says) {
		t.Errorf("since %s: %d %s, want %d with %q", rv, w.Code, w.Body, status, says)
	}
}

// wantLogged checks the first changes after a resource version that the process does not
// remember, from the log of the file.
func wantLogged(t *testing.T, h http.Handler, rv string, want ...string) {
	t.Helper()
	w := askSince(h, rv)
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		got = append(got, summary(line))
	}
	if !slices.Equal(got, want) {
		t.Errorf("since %s: told %q, want %q", rv, got, want)
	}
}

// commit waits until what was changed is written.
func commit() { waitFor(2 * time.Second) }

// TestEndpointSince checks that a client receives the changes after a resource version,
// and then the later changes.
func TestEndpointSince(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		r := w.run(informer.Options{})
		client := serveInBubble(t, handlerOf(r.inf))
		r.sync()
		commit()
		for _, change := range []func(){
			func() { w.put("a", "2") }, // 4
			func() { w.put("c", "1") }, // 5
			func() { w.drop("b") },     // 6
			func() { w.put("c", "2") }, // 7
			func() { w.put("b", "2") }, // 8
		} {
			change()
			commit()
		}
		all := []string{"MODIFIED a=2", "ADDED c=1", "DELETED b=1", "MODIFIED c=2", "ADDED b=2"}
		streams := map[string]*stream{}
		for i := range all {
			rv := strconv.Itoa(3 + i)
			streams[rv] = client.since(rv)
			streams[rv].wantNext(t, "since "+rv, all[i:]...)
		}
		streams["8"] = client.since("8")
		w.put("e", "1")
		w.drop("a")
		for rv, s := range streams {
			s.wantNext(t, "after that since "+rv, "ADDED e=1", "DELETED a=2")
			s.close()
		}
		client.end()
		r.end()
	})
}

// TestEndpointSinceRefused checks that a request for unknown changes is refused at once,
// with an error that names the known ones.
func TestEndpointSinceRefused(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("a", "2") // 3
		r := w.run(informer.Options{}).sync()
		h := handlerOf(r.inf)
		for _, rv := range []string{"x", "0", "", "-1", "1.5", "007"} {
			wantRefused(t, h, rv, 400, "want now or a resource version")
		}
		wantRefused(t, h, "3&initial=true", 400, "since=now only")
		wantRefused(t, h, "2", 410, "resource version 2 has expired: changes are known from resource version 3 on")
		begin := time.Now()
		wantRefused(t, h, "4", 504, "resource version 4 is ahead of what is stored, resource version 3")
		if took := time.Since(begin); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("refused after %s", took)
		}
		client := serveInBubble(t, h)
		go func() {
			<-time.After(time.Second)
			w.put("b", "1") // 4
			w.put("b", "2") // 5
		}()
		s := client.since("4") // waits until version 4 is known
		s.wantNext(t, "of what was ahead", "ADDED b=2")
		s.close()
		client.end()
		r.end()
		wantRefused(t, h, "5", 503, "closed")
	})
}

// TestEndpointSinceOfRestart checks that the changes of a catch-up, and those of the
// process before, are found in the log of the file.
func TestEndpointSinceOfRestart(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		idle, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wantRefused(t, handlerOf(idle), "2", 503, "has not opened what it stored yet")
		var h http.Handler
		r := w.run(informer.Options{}).sync()
		w.put("a", "2") // 3
		w.put("a", "3") // 4
		synctest.Wait()
		r.end()
		w.put("b", "1") // 5
		w.drop("a")     // 6
		r = w.run(informer.Options{}).sync()
		h = handlerOf(r.inf)
		wantLogged(t, h, "4", "ADDED b=1", "DELETED a=3")
		r.end()
		w.put("b", "2") // 7
		w.drop("b")     // 8
		r = w.run(informer.Options{}, func(inf *informer.Informer) { h = handlerOf(inf) }).sync()
		client := serveInBubble(t, h)
		wantLogged(t, h, "4", "ADDED b=1", "DELETED a=3", "DELETED b=1")
		s := client.since("6")
		s.wantNext(t, "of what was caught up with", "DELETED b=1")
		s.close()
		client.end()
		r.end()
	})
}

// TestEndpointSinceOfList checks that a client goes on over a list, and not from inside
// of one.
func TestEndpointSinceOfList(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		r := w.run(informer.Options{})
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		r.sync()
		commit()
		list := func(changes, told func()) {
			before := len(w.server.Requests())
			w.server.Down()
			changes()
			w.server.Advance()
			if err := w.server.Compact(w.server.RV()); err != nil {
				t.Fatal(err)
			}
			w.server.Up()
			told()
			waitFor(5 * time.Minute)
			if len(w.lists(before)) == 0 {
				t.Fatal("it was not listed")
			}
		}
		w.put("a", "2") // 3
		commit()
		nobody := func() {}
		list(func() {}, nobody) // 4
		wantLogged(t, h, "2", "MODIFIED a=2")
		list(func() { w.put("a", "3"); w.put("b", "1") }, nobody) // 5, 6, 7
		wantLogged(t, h, "3", "MODIFIED a=3", "ADDED b=1")
		for _, rv := range []string{"5", "6"} {
			wantRefused(t, h, rv, 410, "a list has led past it")
		}
		wantLogged(t, h, "7")
		s := client.since("7")
		w.put("c", "1") // 8
		s.wantNext(t, "from a list on", "ADDED c=1")
		list(func() { w.drop("b"); w.put("a", "4") }, func() { // 9, 10, 11
			s.wantNext(t, "a client that follows", "DELETED b=1", "MODIFIED a=4")
		})
		w.put("c", "2") // 12
		s.wantNext(t, "a client that follows", "MODIFIED c=2")
		wantLogged(t, h, "11", "MODIFIED c=2")
		s.close()
		client.end()
		r.end()
	})
}

// TestEndpointSinceOfRewind checks that resource versions of a former history are not
// valid in the present one.
func TestEndpointSinceOfRewind(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		r := w.run(informer.Options{})
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		r.sync()
		w.put("a", "2") // 3
		w.put("a", "3") // 4
		w.put("a", "4") // 5
		synctest.Wait()
		if err := w.server.Rewind("3"); err != nil {
			t.Fatal(err)
		}
		waitFor(5 * time.Minute)
		w.put("b", "1") // 4
		commit()
		w.put("b", "2") // 5
		commit()
		for _, rv := range []string{"3", "4", "5"} {
			wantRefused(t, h, rv, 410, "has expired")
		}
		w.put("b", "3") // 6
		commit()
		w.put("b", "4") // 7
		commit()
		s := client.since("6")
		s.wantNext(t, "of the new history", "MODIFIED b=4")
		s.close()
		client.end()
		r.end()
	})
}

// TestEndpointSinceOfWipe checks that a wipe ends what the log reaches back to.
func TestEndpointSinceOfWipe(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		r := w.run(informer.Options{})
		h := handlerOf(r.inf)
		client := serveInBubble(t, h)
		r.sync()
		w.put("a", "2") // 3
		waitFor(2 * time.Second)
		if _, err := r.db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		waitFor(5 * time.Minute)
		wantRefused(t, h, "2", 410, "known from resource version 3 on")
		w.put("a", "3") // 4
		synctest.Wait()
		s := client.since("4")
		w.put("a", "4") // 5
		s.wantNext(t, "after a wipe", "MODIFIED a=4")
		s.close()
		client.end()
		r.end()
	})
}

// TestEndpointSinceOfFactory checks informers that are created before and after the
// Handler.
func TestEndpointSinceOfFactory(t *testing.T) {
	t.Parallel()
	w := newFactoryWorld(t, &cluster{uid: "one", rv: "10", objects: []string{"a", "b"}, watched: make(chan string, 10)})
	before := w.make("")
	h := inspect.NewHandler(w.factory)
	after := w.make("one")
	for _, inf := range []cache.SharedIndexInformer{before, after} {
		defer w.run(inf)()
		rv := inf.LastSyncResourceVersion()
		wantRefused(t, h, "1&scope="+inf.(*informer.Informer).Scope().ID(), 410, "known from resource version "+rv+" on")
	}
}

// TestEndpointSinceHasNoGap checks clients that connect, read a few lines, disconnect and
// continue after the last line, while objects change. Each client receives changes in the
// order of resource versions, none twice, and knows the server's state in the end.
func TestEndpointSinceHasNoGap(t *testing.T) {
	inBubble(t, func(w *world) {
		r := w.run(informer.Options{})
		client := serveInBubble(t, handlerOf(r.inf))
		first := w.put("first", "1")
		r.sync()
		commit()
		const changes = 3000
		done := make(chan string) // the last resource version
		go func() {
			random := rand.New(rand.NewPCG(1, 2))
			for i := range changes {
				name := fmt.Sprintf("o-%02d", random.IntN(50))
				if random.IntN(3) > 0 {
					w.put(name, strconv.Itoa(i))
				} else {
					_, _ = w.server.Delete("default/" + name) // it may not exist
				}
				if i%100 == 0 {
					<-time.After(700 * time.Millisecond)
				}
			}
			done <- w.put("last", "1")
		}()
		var following sync.WaitGroup
		states := make([]map[string]string, 4)
		for i := range states {
			following.Go(func() { states[i] = follow(client, first, uint64(i)) })
		}
		<-done
		following.Wait()
		want := map[string]string{}
		for _, obj := range r.inf.GetStore().List() {
			cm := obj.(*corev1.ConfigMap)
			want[cm.Name] = cm.ResourceVersion
		}
		delete(want, "first")
		for _, got := range states {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("a client knows otherwise (-want +got):\n%s", diff)
			}
		}
		client.end()
		r.end()
	})
}

// follow returns the resource version of each object when the client received its last
// change.
func follow(c *bubbleClient, rv string, seed uint64) map[string]string {
	random := rand.New(rand.NewPCG(3, seed))
	state := map[string]string{}
	begin := rv
	for state["last"] == "" {
		since := rv
		s := c.since(rv)
		for range 1 + random.IntN(200) {
			var line struct {
				Type, Error    string
				Inside, Listed bool
				Object         corev1.ConfigMap
			}
			if err := json.Unmarshal([]byte(s.next()), &line); err != nil || line.Error != "" {
				c.Errorf("since %s: %v %s", rv, err, line.Error)
				return nil
			}
			was, _ := strconv.Atoi(rv)
			if !line.Listed {
				rv = line.Object.ResourceVersion
			}
			if is, _ := strconv.Atoi(rv); is <= was && !line.Listed {
				c.Errorf("told of resource version %d after %d", is, was)
			}
			name := line.Object.Name
			_, known := state[name]
			switch {
			case line.Inside: // it may have received other states
			case line.Type == "ADDED" && known:
				c.Errorf("told that %s was added, which was there", name)
			// Else its ADDED would come later.
			case line.Type != "ADDED" && !known && since == begin:
				c.Errorf("told %s of %s, which was not there", line.Type, name)
			}
			if state[name] = line.Object.ResourceVersion; line.Type == "DELETED" {
				delete(state, name)
			}
			if name == "last" {
				break
			}
		}
		s.close()
	}
	return state
}

// TestEndpointListedIsNoPlace checks that a client cannot continue from a part of a list,
// because lists come in key order, not even in a process that knows of no list.
func TestEndpointListedIsNoPlace(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "1") // 3
		var h http.Handler
		r := w.run(informer.Options{}, func(inf *informer.Informer) { h = handlerOf(inf) }).sync()
		client := serveInBubble(t, h)
		s := client.since("now")
		synctest.Wait()
		w.put("b", "2") // 4
		wantPlace := func(what string, is bool) {
			t.Helper()
			line := s.next()
			if got := summary(line); got != what {
				t.Fatalf("told %q, want %q", got, what)
			}
			if listed := strings.Contains(line, `"listed":true`); listed == is {
				t.Errorf("%s is listed: %t", what, listed)
			}
		}
		synctest.Wait()
		w.server.Down()
		w.put("b", "3") // 5
		w.put("a", "2") // 6
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		w.server.Up()
		waitFor(2 * time.Second)
		w.put("b", "4") // 7
		synctest.Wait()
		wantPlace("MODIFIED b=2", true)
		wantPlace("MODIFIED a=2", false)
		wantPlace("MODIFIED b=3", false)
		wantPlace("MODIFIED b=4", true)
		s.close()
		client.end()
		r.end()
	})
}

// TestEndpointSelector checks that a client with a selector receives a line when an
// object enters and leaves its selection.
func TestEndpointSelector(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		w.put("b", "2") // 3
		r := w.run(informer.Options{})
		client := serveInBubble(t, handlerOf(r.inf))
		r.sync()
		commit()
		live := client.open("/v1/changes?selector=app=1")
		named := client.open("/v1/changes?namespace=default&old=true")
		other := client.open("/v1/changes?namespace=other")
		synctest.Wait()
		w.put("a", "2") // 4
		w.put("b", "1") // 5
		w.put("b", "1") // 6
		w.drop("b")     // 7
		live.wantNext(t, "live", "DELETED a=1", "ADDED b=1", "MODIFIED b=1", "DELETED b=1")
		var line struct {
			Object, Old corev1.ConfigMap
		}
		if err := json.Unmarshal([]byte(named.next()), &line); err != nil || line.Object.Data["v"] != "2" || line.Old.Data["v"] != "1" {
			t.Errorf("with the state before: %v %v %v", line.Object.Data, line.Old.Data, err)
		}
		commit()
		since := client.open("/v1/changes?selector=app=1&since=3")
		since.wantNext(t, "from the log", "DELETED a=1") // b came and went in one commit
		wantRefused(t, handlerOf(r.inf), "3&selector==", 400, "selector")
		wantRefused(t, handlerOf(r.inf), "3&old=1", 400, "old is")
		for _, s := range []*stream{live, named, other, since} {
			s.close()
		}
		client.end()
		r.end()
	})
}

// TestEndpointInsideCommit checks a client with a selector whose resource version is
// inside a commit: of the states of that commit the log has only the last ones, so the
// client receives each later change as if the state before had matched.
func TestEndpointInsideCommit(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "0") // 2
		w.put("b", "0") // 3
		r := w.run(informer.Options{}).sync()
		waitFor(time.Minute) // until the list is written
		w.put("a", "1")      // 4
		w.put("b", "2")      // 5
		w.put("a", "2")      // 6
		w.put("c", "1")      // 7
		w.drop("c")          // 8
		waitFor(time.Minute)
		h := handlerOf(r.inf)
		for rv, want := range map[string][]string{
			// c was created and deleted inside the commit, and a was 1 inside it
			"3": nil,
			"5": {"DELETED a=2", "DELETED c=1"},
			"7": {"DELETED c=1"},
			"8": nil,
		} {
			wantLogged(t, h, rv+"&selector=app=1", want...)
		}
		wantLogged(t, h, "5", "MODIFIED a=2", "DELETED c=1")
		wantLogged(t, h, "5&selector=app=1&bookmarks=true", "DELETED a=2", "DELETED c=1", "BOOKMARK =")
		wantLogged(t, h, "8&selector=app=1&bookmarks=true")
		r.end()
	})
}
