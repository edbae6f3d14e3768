package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/clocktest"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// scene is a scope of pods, and the relay.
type scene struct {
	*testing.T
	db     *bolt.DB
	store  store.Store
	from   Collections
	server *Server
	served *served
	pad    int // bytes of an annotation that cannot be compressed
}

// inScene plays a test in a bubble of synctest.
func inScene(t *testing.T, play func(*scene)) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t}
		var err error
		s.db, err = bolt.Open(path, bolt.Options{})
		s.must(err)
		c, err := codec.For(&corev1.Pod{})
		s.must(err)
		s.store, err = s.db.Open(podScope, store.Options{Codec: c})
		s.must(err)
		s.from = Collections{{Scope: podScope, Reader: s.store, Live: true}}
		s.server, err = New(&s.from, Options{Token: "x"})
		s.must(err)
		s.served = s.server.find("pods")
		defer func() {
			s.server.Close()
			_ = s.db.Close()
		}()
		play(s)
	})
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// list lists pods with the names p0 to p<n-1> into the scope.
func (s *scene) list(n, rv int) {
	s.Helper()
	r, err := s.store.Relist()
	s.must(err)
	for i := range n {
		s.must(r.Add(s.pod(i, rv-n+i)))
	}
	for b, err := range r.Parts(fmt.Sprint(rv)) {
		s.must(err)
		s.must(s.store.Apply(b))
	}
	s.must(r.Close())
	s.flush()
}

func onePod(i, rv int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprint("p", i), UID: "uid", ResourceVersion: fmt.Sprint(rv),
	}}
}

func (s *scene) pod(i, rv int) *corev1.Pod {
	p := onePod(i, rv)
	if s.pad > 0 {
		b := make([]byte, s.pad/2)
		_, _ = rand.Read(b) // it cannot fail
		p.Annotations = map[string]string{"pad": hex.EncodeToString(b)}
	}
	return p
}

// put changes a pod. With rv 0 the checkpoint does not move, as if another object could
// not be stored.
func (s *scene) put(i, rv int, moves bool) {
	s.Helper()
	b := store.Batch{Changes: []store.Change{{Object: s.pod(i, rv)}}}
	if moves {
		b.RV = fmt.Sprint(rv)
	}
	s.must(s.store.Apply(b))
}

func (s *scene) flush() {
	s.Helper()
	s.must(s.store.Flush(s.Context()))
}

func (s *scene) watch(rv string, name string) (watch.Interface, error) {
	s.Helper()
	o := &metainternalversion.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true}
	if name != "" {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name)
	}
	w, err := s.served.Watch(request.WithNamespace(s.Context(), "default"), o)
	if err == nil {
		s.Cleanup(w.Stop)
	}
	return w, err
}

// next returns what a watch is sent next but for bookmarks: the type and the resource
// version, or what the error says, or that it has ended, or that nothing comes.
func next(w watch.Interface) string {
	patience := time.After(time.Hour)
	var e watch.Event
	var ok bool
	for e.Type == "" || ok && e.Type == watch.Bookmark {
		select {
		case e, ok = <-w.ResultChan():
		case <-patience:
			return "nothing"
		}
		if !ok {
			break
		}
	}
	switch {
	case !ok:
		return "end"
	case e.Type == watch.Error:
		return string(e.Object.(*metav1.Status).Reason)
	}
	return string(e.Type) + " " + metaOf(e.Object).GetResourceVersion()
}

// goes is a Source whose collections go.
type goes struct {
	all  Collections
	gone atomic.Bool
}

func (g *goes) Collections() []Collection {
	if g.gone.Load() {
		return nil
	}
	return g.all
}

// TestGone has the source lose a collection, and nobody asks for objects: its watches
// expire.
func TestGone(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		from := &goes{all: s.from}
		server, err := New(from, Options{Token: "x"})
		s.must(err)
		defer server.Close()
		s.served = server.find("pods")
		w, err := s.watch("100", "")
		s.must(err)
		from.gone.Store(true)
		if got := next(w); got != "Expired" {
			t.Errorf("the watch is sent %s, want Expired", got)
		}
	})
}

// TestWiped drops the content of a scope: its watches expire, as do those that come while
// there is none.
func TestWiped(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("100", "")
		s.must(err)
		synctest.Wait()
		_, err = s.db.Wipe(func(store.Scope) bool { return true })
		s.must(err)
		if got := next(w); got != "Expired" {
			t.Errorf("the watch is sent %s, want Expired", got)
		}
		w, err = s.watch("100", "")
		s.must(err)
		if got := next(w); got != "Expired" {
			t.Errorf("another watch is sent %s, want Expired", got)
		}
	})
}

// unreadable is a Reader whose log cannot be read once fails is closed.
type unreadable struct {
	store.Store
	fails chan struct{}
}

func (r unreadable) Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		select {
		case <-r.fails:
			yield(store.Event{}, syscall.EIO)
		case <-ctx.Done():
			yield(store.Event{}, ctx.Err())
		}
	}
}

// TestUnreadableLog has a log that cannot be read for a while: watches just end, behind a
// bookmark of what their clients have.
func TestUnreadableLog(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		r := unreadable{s.store, make(chan struct{})}
		s.from[0].Reader = r
		s.served = s.server.find("pods")
		w, err := s.watch("100", "")
		s.must(err)
		synctest.Wait()
		close(r.fails)
		if e := <-w.ResultChan(); e.Type != watch.Bookmark || metaOf(e.Object).GetResourceVersion() != "100" {
			t.Errorf("the watch is sent %v, want a bookmark of 100", e)
		}
		if got := next(w); got != "end" {
			t.Errorf("the watch is sent %s, want the end", got)
		}
	})
}

// TestHeld has an object that cannot be stored for hours: what was told before ends once,
// further watches are refused, and a list tells the last good moment.
func TestHeld(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("100", "")
		s.must(err)
		s.put(1, 101, false)
		s.flush()
		if got := next(w); got != "Expired" {
			t.Errorf("the watch is sent %s, want Expired", got)
		}
		for range 3 {
			<-time.After(staleAfter)
			if _, err := s.watch("100", ""); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("another watch gets %v, want 503", err)
			}
		}
		l, err := s.served.List(s.Context(), &metainternalversion.ListOptions{})
		s.must(err)
		if rv := l.(*list).meta.ResourceVersion; rv != "100" {
			t.Errorf("the list tells %s, want 100", rv)
		}
		s.put(1, 102, true)
		s.flush()
		<-time.After(retryEvery)
		w, err = s.watch("102", "")
		s.must(err)
		s.put(2, 103, true)
		if got := next(w); got != "MODIFIED 103" {
			t.Errorf("the watch after it is sent %s", got)
		}
	})
}

// TestHeldBehindBookmark has an object that cannot be stored after bookmarks have moved
// the resource version: what was told does not go back.
func TestHeldBehindBookmark(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		s.must(s.store.Apply(store.Batch{RV: "120"}))
		s.flush()
		list := func(o metainternalversion.ListOptions) {
			l, err := s.served.List(s.Context(), &o)
			s.must(err)
			if rv := l.(*list).meta.ResourceVersion; rv != "120" {
				t.Errorf("the list tells %s, want 120", rv)
			}
		}
		list(metainternalversion.ListOptions{})
		s.put(1, 130, false)
		s.flush()
		list(metainternalversion.ListOptions{})
		list(metainternalversion.ListOptions{ResourceVersion: "120", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	})
}

// TestHeldBeyondLog has an object that cannot be stored until the log does not reach back
// to before: lists say so, and the Server is ready.
func TestHeldBeyondLog(t *testing.T) {
	inScene(t, func(s *scene) {
		ready := func(want int) {
			w := httptest.NewRecorder()
			s.server.ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), "GET", "https://localhost/readyz", nil))
			if w.Code != want {
				t.Errorf("/readyz answers %d %s, want %d", w.Code, w.Body, want)
			}
		}
		list := func(want string) {
			_, err := s.served.List(s.Context(), &metainternalversion.ListOptions{})
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("a list is answered with %v, want 503 and %q", err, want)
			}
		}
		ready(503)
		list("the list of pods is not complete in a file")
		s.list(3, 100)
		for i := range 100 {
			<-time.After(time.Minute)
			s.put(1, 101+i, false)
			s.flush()
		}
		ready(200)
		list("the log does not reach back")
	})
}

// TestHeldDuringList has an object that cannot be stored while the objects of a watch are
// sent to a slow client: the watch ends behind them, since the log cannot be followed.
func TestHeldDuringList(t *testing.T) {
	inScene(t, func(s *scene) {
		const n = 2 * watchBuffer
		s.list(n, 100)
		w, err := s.served.Watch(request.WithNamespace(s.Context(), "default"), &metainternalversion.ListOptions{SendInitialEvents: new(true)})
		s.must(err)
		defer w.Stop()
		synctest.Wait() // it waits for the client
		s.put(1, 101, false)
		s.flush()
		<-time.After(2 * staleAfter)
		for range n {
			if got := next(w); !strings.HasPrefix(got, "ADDED") {
				t.Fatalf("the watch is sent %s, want its objects", got)
			}
		}
		if got := next(w); got != "end" {
			t.Errorf("behind its objects the watch is sent %s, want the end", got)
		}
	})
}

// TestNotLoaded asks before the first list is complete: nothing is said not to exist.
func TestNotLoaded(t *testing.T) {
	inScene(t, func(s *scene) {
		ctx := request.WithNamespace(s.Context(), "default")
		if _, err := s.served.Get(ctx, "p0", &metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a get is answered with %v, want 503", err)
		}
		if _, err := s.served.List(ctx, &metainternalversion.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a list is answered with %v, want 503", err)
		}
		if _, err := s.watch("100", ""); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a watch is answered with %v, want 503", err)
		}
		s.list(1, 100)
		if _, err := s.served.Get(ctx, "p1", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a get of what does not exist is answered with %v, want 404", err)
		}
	})
}

// TestWatchFromZero watches from 0 in each way to write it: there are initial events.
func TestWatchFromZero(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(1, 100)
		for _, rv := range []string{"0", "00"} {
			w, err := s.watch(rv, "")
			s.must(err)
			if got := next(w); got != "ADDED 99" {
				t.Errorf("a watch from %q is sent %s, want ADDED 99", rv, got)
			}
		}
	})
}

// over is a Context that ends without a wait being interrupted.
type over struct{ context.Context }

func (over) Done() <-chan struct{} { return nil }

func (over) Err() error { return context.Canceled }

// TestMomentOfEnded has a request end in the moment in which its flush succeeds.
func TestMomentOfEnded(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(1, 100)
		s.put(1, 110, true)
		place, told, err := s.served.moment(over{s.Context()}, "", false)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the moment is %v at %q, %v, want %v", place, told, err, context.Canceled)
		}
	})
}

// TestPendingGet watches one object from a resource version that a get has told before it
// was written, inside of a commit.
func TestPendingGet(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		s.put(1, 105, true)
		ctx := request.WithNamespace(s.Context(), "default")
		obj, err := s.served.Get(ctx, "p1", &metav1.GetOptions{})
		s.must(err)
		rv := metaOf(obj.(*object)).GetResourceVersion()
		if rv != "105" {
			t.Fatalf("the get tells %s, want 105", rv)
		}
		s.served.hub.start()
		synctest.Wait()
		one, err := s.watch(rv, "p1")
		s.must(err)
		all, err := s.watch(rv, "")
		s.must(err)
		s.put(2, 107, true)
		s.put(1, 110, true)
		if got := next(one); got != "MODIFIED 110" {
			t.Errorf("the watch of the object is sent %s", got)
		}
		if got := next(all); got != "Expired" {
			t.Errorf("the watch of all is sent %s, want Expired", got)
		}
	})
}

// TestYoungWatchEnds closes the Server before a watch was sent anything. Its client would
// list again if it heard nothing at all.
func TestYoungWatchEnds(t *testing.T) {
	for _, rv := range []string{"100", "110"} {
		inScene(t, func(s *scene) {
			s.list(3, 100)
			w, err := s.watch(rv, "")
			s.must(err)
			synctest.Wait()
			s.server.Close()
			e, ok := <-w.ResultChan()
			if !ok || e.Type != watch.Bookmark || metaOf(e.Object).GetResourceVersion() != rv {
				t.Errorf("a watch from %s is sent %v, want a bookmark of it", rv, e)
			}
			if got := next(w); got != "end" {
				t.Errorf("a watch from %s is sent %s then, want the end", rv, got)
			}
		})
	}
}

// TestYoungWatchIsNotSlow has the file change between the moment at which a watch finds
// its place and that at which it goes on from there.
func TestYoungWatchIsNotSlow(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		p, err := s.served.selection(request.WithNamespace(s.Context(), "default"), &metainternalversion.ListOptions{})
		s.must(err)
		s.served.hub.start()
		for rv := 101; rv <= 130; rv++ { // chance decides what it sees first
			w := &watcher{s: s.served, p: p, out: make(chan watch.Event, watchBuffer)}
			ctx, cancel := context.WithCancel(s.Context())
			from, err := w.enter(ctx, store.Place{RV: fmt.Sprint(rv - 1)})
			s.must(err)
			s.put(1, rv, true)
			s.flush()
			synctest.Wait()
			ended := make(chan error, 1)
			go func() { ended <- w.serve(ctx, from, fmt.Sprint(rv-1)) }()
			synctest.Wait()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) || len(w.out) != 1 {
				t.Fatalf("a watch from %d ends with %v and was sent %d events", rv-1, err, len(w.out))
			}
		}
	})
}

// TestSlowWatchIsOwedABookmark ends watches that are too slow before they were sent
// anything: each gets its bookmark.
func TestSlowWatchIsOwedABookmark(t *testing.T) {
	inScene(t, func(s *scene) {
		for range 30 { // chance decides whether it hears first that it is too slow
			slow := make(chan struct{})
			close(slow)
			w := &watcher{s: s.served, owes: true, slow: slow, out: make(chan watch.Event, watchBuffer)}
			if w.fail(s.Context(), errSlow, "100"); len(w.out) != 1 {
				t.Fatal("a watch ends without a bookmark")
			}
		}
	})
}

// TestWatchesAreCounted begins watches and ends them. One counts as soon as it has found
// its place, so that what comes then is not dropped.
func TestWatchesAreCounted(t *testing.T) {
	inScene(t, func(s *scene) {
		check := func(when string, want int) {
			s.served.hub.mu.Lock()
			defer s.served.hub.mu.Unlock()
			if got := s.served.hub.watching; got != want {
				t.Errorf("%s there are %d watches, want %d", when, got, want)
			}
		}
		_, err := s.watch("100", "")
		if !apierrors.IsServiceUnavailable(err) {
			t.Fatalf("before a list a watch is answered with %v, want 503", err)
		}
		check("after one that is refused", 0)
		s.list(3, 100)
		w, err := s.watch("100", "")
		s.must(err)
		check("with one", 1)
		w.Stop()
		synctest.Wait()
		check("after it has ended", 0)
		w, err = s.watch("50", "")
		s.must(err)
		if got := next(w); got != "Expired" {
			t.Errorf("a watch from 50 is sent %s, want Expired", got)
		}
		synctest.Wait()
		check("after one that has expired", 0)
	})
}

// TestCloseWhileWaiting closes the Server while a watch waits for its place.
func TestCloseWhileWaiting(t *testing.T) {
	inScene(t, func(s *scene) {
		ended := make(chan error, 1)
		s.served.hub.start()
		go func() {
			_, err := s.served.hub.enter(s.Context(), store.Place{RV: "100"})
			ended <- err
		}()
		synctest.Wait()
		s.server.Close()
		if err := <-ended; err == nil {
			t.Error("it has found a place")
		}
	})
}

// TestWarning looks at what an answer says after the server was not heard for long.
func TestWarning(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(1, 100)
		ask := func() string {
			r := httptest.NewRequestWithContext(s.Context(), "GET", "https://localhost/api/v1/namespaces/default/pods/p0", nil)
			r.Header.Set("Authorization", "Bearer x")
			w := httptest.NewRecorder()
			s.server.ServeHTTP(w, r)
			if w.Code != 200 {
				t.Fatalf("it answers %d: %s", w.Code, w.Body)
			}
			return w.Header().Get("Warning")
		}
		if got := ask(); got != "" {
			t.Errorf("it warns: %s", got)
		}
		heard := s.store.Checkpoint().Time
		<-time.After(staleAfter + time.Second)
		want := fmt.Sprintf(`299 - "pods: as of %s, the server was not heard since, or an object cannot be stored"`, heard.UTC().Format(time.RFC3339))
		if got := ask(); got != want {
			t.Errorf("it warns: %s, want %s", got, want)
		}
		of := s.from[0].Reader
		s.from[0].Reader = quietReader{of}
		if got := ask(); got != "" {
			t.Errorf("of a collection without bookmarks it warns: %s", got)
		}
		s.from[0].Reader = of
		s.must(s.store.Invalidate(s.Context(), "a list that fails"))
		want = fmt.Sprintf(`299 - "pods: as of %s or later, it was not listed again yet"`, heard.UTC().Format(time.RFC3339))
		if got := ask(); got != want {
			t.Errorf("before a list it warns: %s, want %s", got, want)
		}
		s.list(1, 200)
		for note, want := range map[string]string{
			"a note": `299 - "pods: a note"`, "": "",
			"an error\nof \"two\" lines, C:\\x": `299 - "pods: an error of \"two\" lines, C:\\x"`,
		} {
			s.from[0].Note = note
			if got := ask(); got != want {
				t.Errorf("with the note %q it warns: %s, want %s", note, got, want)
			}
		}
	})
}

type quietReader struct{ store.Reader }

func (quietReader) IsQuiet() bool { return true }

// TestListDoesNotWait lists twice when nothing has come meanwhile: there is nothing to be
// written.
func TestListDoesNotWait(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		s.put(1, 105, true)
		began := time.Now()
		for range 5 {
			l, err := s.served.List(s.Context(), &metainternalversion.ListOptions{})
			s.must(err)
			if rv := l.(*list).meta.ResourceVersion; rv != "105" {
				t.Fatalf("the list tells %s, want 105", rv)
			}
		}
		if took := time.Since(began); took > settleEvery {
			t.Errorf("five lists have taken %v", took)
		}
	})
}

// TestLargeCommit has a commit that is read from the log in several parts: a watch from
// the mark before it is sent all of it, one from inside of it expires.
func TestLargeCommit(t *testing.T) {
	for _, c := range []struct{ rv, want string }{{"1000", "MODIFIED 1001"}, {"1500", "Expired"}} {
		inScene(t, func(s *scene) {
			const n = 600
			s.pad = 4 << 10
			s.list(n, 1000)
			for i := range n {
				s.put(i, 1001+i, true)
			}
			s.flush()
			s.put(1, 1700, true)
			s.flush()
			w, err := s.watch(c.rv, "")
			s.must(err)
			if got := next(w); got != c.want {
				t.Errorf("a watch from %s is sent %s, want %s", c.rv, got, c.want)
			}
		})
	}
}

// TestAhead watches from a resource version that the relay has not reached: what leads
// there is not sent, what follows is.
func TestAhead(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("110", "")
		s.must(err)
		for _, rv := range []int{105, 110, 115} {
			s.put(1, rv, true)
			s.flush()
		}
		if got := next(w); got != "MODIFIED 115" {
			t.Errorf("the watch is sent %s, want MODIFIED 115", got)
		}
	})
}

// TestAheadOfTheEnd watches from a resource version that is never reached, since nothing
// follows what is served.
func TestAheadOfTheEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		at   bool // the state is that of a moment, and not that of a file
	}{{"a file", false}, {"a moment", true}} {
		t.Run(test.name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.list(3, 100)
				if s.from[0].Live = false; test.at {
					state, err := s.store.History()
					s.must(err)
					s.from[0].At = state.Readable
				}
				server, err := New(s.from, Options{Token: "x"})
				s.must(err)
				defer server.Close()
				s.served = server.find("pods")
				for rv, want := range map[string]string{"100": "nothing", "110": "Expired"} {
					w, err := s.watch(rv, "")
					s.must(err)
					if got := next(w); got != want {
						t.Errorf("a watch from %s is sent %s, want %s", rv, got, want)
					}
				}
			})
		})
	}
}

// TestAheadIsReached watches from a resource version that the relay has not reached, and
// then has: the watch is no different from others, and gets bookmarks.
func TestAheadIsReached(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("110", "")
		s.must(err)
		s.put(1, 110, true)
		s.flush()
		e := <-w.ResultChan()
		if got := string(e.Type) + " " + metaOf(e.Object).GetResourceVersion(); got != "BOOKMARK 110" {
			t.Errorf("the watch is sent %s, want BOOKMARK 110", got)
		}
	})
}

// TestSlowWatch has a client that reads nothing while more is written than is kept for
// it: its watch ends behind a whole group, from where it can go on.
func TestSlowWatch(t *testing.T) {
	inScene(t, func(s *scene) {
		const n = 3 * watchBuffer
		s.list(n, 100)
		w, err := s.watch("100", "")
		s.must(err)
		rv := 100
		write := func() {
			for i := range n {
				rv++
				s.put(i, rv, true)
			}
			s.flush()
		}
		write()
		synctest.Wait() // the watch is inside of the first group
		s.served.hub.mu.Lock()
		s.served.hub.bytes += maxChain // as of larger objects
		s.served.hub.mu.Unlock()
		write()
		synctest.Wait() // it is cut off
		last := ""
		for e := range w.ResultChan() {
			last = metaOf(e.Object).GetResourceVersion()
		}
		again, err := s.watch(last, "")
		s.must(err)
		if got := next(again); strings.HasPrefix(got, "Expired") {
			t.Errorf("a client that was told up to %s is sent %s", last, got)
		}
	})
}

// TestNothingIsHeld looks for a change when nobody watches any more.
func TestNothingIsHeld(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("100", "")
		s.must(err)
		begin := s.served.hub.tail()
		s.put(1, 101, true)
		s.flush()
		if got := next(w); got != "MODIFIED 101" {
			t.Fatalf("the watch is sent %s", got)
		}
		held := weak.Make(begin.group.changes[0])
		begin = nil
		w.Stop()
		synctest.Wait()
		runtime.GC()
		if held.Value() != nil {
			t.Error("a change is held although nobody watches")
		}
		w, err = s.watch("101", "")
		s.must(err)
		s.put(1, 102, true)
		if got := next(w); got != "MODIFIED 102" {
			t.Errorf("another watch is sent %s", got)
		}
	})
}

// TestFormerHistory watches from a resource version of a history that was rewound. It is
// above what the new history has reached.
func TestFormerHistory(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		s.must(s.store.Apply(store.Batch{Reason: "rewound", Rewound: true}))
		s.list(2, 50)
		w, err := s.watch("90", "")
		s.must(err)
		if got := next(w); got != "Expired" {
			t.Errorf("the watch is sent %s, want Expired", got)
		}
		w, err = s.watch("50", "")
		s.must(err)
		s.put(1, 60, true)
		if got := next(w); got != "MODIFIED 60" {
			t.Errorf("a watch of the new history is sent %s", got)
		}
	})
}

// TestFormerHistoryIsPassed watches from a resource version of a history that was rewound
// when bookmarks have moved the new history past it, but nothing has changed.
func TestFormerHistoryIsPassed(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		s.must(s.store.Apply(store.Batch{Reason: "rewound", Rewound: true}))
		s.list(2, 50)
		for _, told := range []string{"95", "120"} {
			s.must(s.store.Apply(store.Batch{RV: told}))
			s.flush()
			w, err := s.watch("90", "")
			s.must(err)
			if got := next(w); got != "Expired" {
				t.Errorf("when %s is told, a watch of the old history is sent %s, want Expired", told, got)
			}
			l, err := s.served.List(s.Context(), &metainternalversion.ListOptions{})
			s.must(err)
			if rv := l.(*list).meta.ResourceVersion; rv != told {
				t.Fatalf("the list tells %s, want %s", rv, told)
			}
			w, err = s.watch(told, "")
			s.must(err)
			if got := next(w); got != "nothing" {
				t.Errorf("a watch from what a list has told, %s, is sent %s", told, got)
			}
		}
	})
}

// TestListedBackIsPassed checks the same of a list of an earlier state that nobody has
// called a rewind, while the hub follows the log.
func TestListedBackIsPassed(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("100", "")
		s.must(err)
		defer w.Stop()
		s.must(s.store.Invalidate(s.Context(), "an object could not be stored"))
		s.list(2, 50)
		s.must(s.store.Apply(store.Batch{RV: "95"}))
		s.flush()
		w, err = s.watch("90", "")
		s.must(err)
		if got := next(w); got != "Expired" {
			t.Errorf("a watch of the old history is sent %s, want Expired", got)
		}
	})
}

// TestListedBackBelowWatch has a watch wait for what the file has not reached, when a
// list brings an earlier state: the history that the client knows is no more.
func TestListedBackBelowWatch(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("110", "")
		s.must(err)
		defer w.Stop()
		synctest.Wait()
		s.must(s.store.Invalidate(s.Context(), "an object could not be stored"))
		s.list(2, 50)
		s.must(s.store.Apply(store.Batch{RV: "120"}))
		s.flush()
		if got := next(w); got != "Expired" {
			t.Errorf("a watch of the old history is sent %s, want Expired", got)
		}
	})
}

// TestBookmarkBehindGroup has a commit end above the last change that a watch is sent: a
// bookmark says so, and the watch goes on from there.
func TestBookmarkBehindGroup(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		w, err := s.watch("100", "p1")
		s.must(err)
		s.put(1, 105, true)
		s.put(2, 110, true)
		for _, want := range []string{"MODIFIED 105", "BOOKMARK 110"} {
			e := <-w.ResultChan()
			if got := string(e.Type) + " " + metaOf(e.Object).GetResourceVersion(); got != want {
				t.Errorf("the watch is sent %s, want %s", got, want)
			}
		}
	})
}

// TestBookmarksDoNotGoBack has the minute's bookmark fall due when a commit is written
// that the hub has not appended yet, so that its node is not the newest place.
func TestBookmarksDoNotGoBack(t *testing.T) {
	for _, test := range []struct {
		lists bool // an earlier state after that
		want  int  // bookmarks
	}{{false, 0}, {true, 1}} {
		inScene(t, func(s *scene) {
			s.list(3, 100)
			s.must(s.store.Apply(store.Batch{RV: "105"}))
			s.flush()
			s.served.hub.start()
			synctest.Wait()
			defer s.served.hub.watch()() // else what is passed is cut off
			n := s.served.hub.tail()
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			w := &watcher{s: s.served, bookmarks: true, out: make(chan watch.Event, watchBuffer)}
			_ = w.serve(ctx, entry{at: n}, "105") // it ends at once
			if test.lists {
				s.must(w.tell(s.Context(), &group{place: n.place}))
			}
			s.put(1, 106, true)
			s.flush()
			ahead := ""
			s.must(w.mark(s.Context(), n, &ahead))
			if len(w.out) != test.want {
				t.Errorf("behind 105, with an earlier list: %v, the watch is sent %d bookmarks, want %d", test.lists, len(w.out), test.want)
			}
		})
	}
}

// full is a Reader whose disk is full.
type full struct{ store.Store }

func (full) Flush(context.Context) error { return syscall.ENOSPC }

// TestDiskFull lists while nothing can be written: the last state on the disk is told,
// with a warning.
func TestDiskFull(t *testing.T) {
	inScene(t, func(s *scene) {
		s.list(3, 100)
		s.from[0].Reader = full{s.store}
		s.served = s.server.find("pods")
		s.put(1, 105, true)
		l, err := s.served.List(s.Context(), &metainternalversion.ListOptions{})
		s.must(err)
		if rv := l.(*list).meta.ResourceVersion; rv != "100" {
			t.Errorf("the list tells %s, want 100", rv)
		}
		want := "pods: what was received last cannot be written: no space left on device"
		if got := s.served.warnings(time.Now()); !slices.Equal(got, []string{want}) {
			t.Errorf("it warns %q, want %q", got, want)
		}
	})
}

// asOf is a Reader whose content was last heard of at a time.
type asOf struct {
	store.Store
	time time.Time
}

func (r asOf) Checkpoint() store.Checkpoint { return store.Checkpoint{RV: "100", Time: r.time} }

// TestStaleByWrongClock checks that users are warned of what is old where the clock was
// ahead when it came, and where the machine has slept since.
func TestStaleByWrongClock(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		time time.Time
		want int
	}{
		"just now":        {now.Add(-time.Second), 0},
		"slept":           {clocktest.Stepped(12 * time.Hour), 1},
		"the clock ahead": {now.Add(24 * time.Hour).Round(0), 1},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.list(3, 100)
				s.from[0].Reader = asOf{s.store, test.time}
				s.served = s.server.find("pods")
				if got := s.served.warnings(now); len(got) != test.want {
					t.Errorf("it warns %q, want %d warnings", got, test.want)
				}
			})
		})
	}
}
